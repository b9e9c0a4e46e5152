"""Compactions as OpenLineage events: a run begins once and ends once, whatever happens, and no value is told.

The real client writes them to a file, as OPENLINEAGE_CONFIG and OPENLINEAGE__TRANSPORT… of a user say.
"""

from __future__ import annotations

import json

import jsonschema
import pyarrow as pa
import pytest
from iceberg_fixtures import lake  # noqa: F401  (fixture)
from lineage_events import validated

import deltacompact
from deltacompact import Settings, compact
from deltacompact.base.events import SessionFinished, SessionStarted
from deltacompact.base.model import Partition
from deltacompact.sinks.openlineage import Lineage, dataset_name, lineage_sinks

LOCAL = Settings(executor="local", local_threads=1)


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What was told so far: the events of a file, each as OpenLineage requires it."""
    config, log = tmp_path / "openlineage.yml", tmp_path / "events.jsonl"
    config.write_text(f"transport:\n  type: file\n  log_file_path: {log}\n  append: true\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
    return lambda: [validated(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_compaction_is_told_from_its_start_to_its_version(tmp_path, said):
    catalog = deltacompact.open_catalog(tmp_path / "lake 1")
    catalog.create_table("orders", primary_keys=["id"], partition_keys=["day"])
    for day in ("a", "b"):
        catalog.append("orders", pa.table({"id": [1, 2], "name": ["John", "Jane"]}), partition={"day": day})
    result = compact("orders", delta_catalog_client=catalog, settings=LOCAL)
    events = said()
    assert sorted((event["job"]["name"], event["eventType"]) for event in events) == [
        (f"compact.orders.day={day}", state) for day in "ab" for state in ("COMPLETE", "START")
    ]
    assert len({event["run"]["runId"] for event in events}) == 2
    ends = [event for event in events if event["eventType"] == "COMPLETE"]
    for event, session in zip(sorted(ends, key=lambda event: event["job"]["name"]), result.sessions, strict=True):
        (output,), (read,) = event["outputs"], event["inputs"]
        for dataset in (output, read):
            assert (dataset["namespace"], dataset["name"]) == ("file", f"{tmp_path}/lake 1/orders")
        assert output["facets"]["version"]["datasetVersion"] == session.version
        assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
        assert event["job"]["namespace"] == "deltacompact"
        assert event["job"]["facets"]["jobType"]["jobType"] == "COMPACTION"
    assert {event["inputs"][0]["facets"]["version"]["datasetVersion"] for event in events} == {"0"}
    assert "John" not in json.dumps(events)
    compact("orders", delta_catalog_client=catalog, settings=LOCAL)
    assert said() == events, "what has nothing to do is no run"


def test_a_failure_is_told_without_values(tmp_path, said):
    (sink,) = lineage_sinks("s3://lake/tables")
    sink(SessionStarted("orders", Partition(), "5c", 1, 10, "1 delta"))
    sink(SessionFinished("orders", Partition(), "'John' is no int64", 0, "SchemaError: a.csv, column 'total'"))
    begun, failed = said()
    assert (begun["eventType"], failed["eventType"]) == ("START", "FAIL")
    assert begun["run"]["runId"] == failed["run"]["runId"]
    assert failed["run"]["facets"]["errorMessage"]["message"] == "SchemaError: a.csv, column 'total'"
    assert "outputFacets" not in failed["outputs"][0] or not failed["outputs"][0]["outputFacets"]


@pytest.mark.parametrize(
    "broken",
    [
        {"eventTime": "yesterday"},
        {"producer": "deltacompact"},
        {"eventType": "BEGUN"},
        {"run": {"runId": "1"}},
        {"job": {"namespace": "deltacompact"}},
        {"job": {"namespace": "deltacompact", "name": "t", "facets": {"jobType": 5}}},
        {"outputs": [{"namespace": "s3://lake", "name": "t", "facets": {"version": {"datasetVersion": "1"}}}]},
    ],
    ids=lambda broken: next(iter(broken)),
)
def test_an_event_that_lacks_what_is_required_is_found(said, broken):
    (sink,) = lineage_sinks("s3://lake/tables")
    sink(SessionStarted("orders", Partition(), "5c", 1, 10, "1 delta"))
    (event,) = said()
    with pytest.raises(jsonschema.ValidationError):
        validated(event | broken)


def test_a_mode_of_an_iceberg_table_is_told_with_its_snapshot(lake, said):
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    lake.create("ns.t", rows.schema)
    for _ in range(3):
        lake.append("ns.t", rows)
    catalog, before = deltacompact.open_catalog(lake.catalog), lake.state("ns.t").snapshot
    result = compact("ns.t", delta_catalog_client=catalog, options={"rewrite-all": "true"}, settings=LOCAL)
    assert [event["eventType"] for event in said()] == ["START", "RUNNING", "COMPLETE"]
    (output,), (read,) = said()[-1]["outputs"], said()[-1]["inputs"]
    assert read["facets"]["version"]["datasetVersion"] == str(before.snapshot_id)
    assert (output["namespace"], output["name"]) == (f"iceberg://{lake.catalog.name}", "ns.t")
    assert output["facets"]["version"]["datasetVersion"] == str(result.snapshots[-1])
    (output,) = said()[1]["outputs"]
    report, snapshot = output["outputFacets"]["icebergCommitReport"], lake.state("ns.t").snapshot
    assert (report["snapshotId"], report["operation"]) == (snapshot.snapshot_id, "replace")
    assert report["sequenceNumber"] == snapshot.sequence_number
    metrics = report["commitMetrics"]
    assert (metrics["addedDataFiles"], metrics["removedDataFiles"], metrics["attempts"]) == (1, 3, 1)
    assert (metrics["totalRecords"], metrics["totalDeleteFiles"]) == (6, 0)


def versions(event):
    """What upkeep began with, and what there is afterwards."""
    told = [dataset["facets"] for dataset in (*event["inputs"], *event["outputs"])]
    return [facets["version"]["datasetVersion"] if facets else None for facets in told]


def test_upkeep_is_told_with_the_version_that_it_kept(lake, tmp_path, said):
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    lake.create("ns.t", rows.schema)
    for _ in range(3):
        lake.append("ns.t", rows)
    head = str(lake.state("ns.t").snapshot.snapshot_id)
    table = deltacompact.open_catalog(lake.catalog).table("ns.t")
    table.maintain(expire_snapshots=True, dry_run=True)
    assert said() == [], "a dry run does nothing"
    table.maintain(rewrite_manifests=True)
    begun, done = said()
    assert (begun["eventType"], done["eventType"]) == ("START", "COMPLETE")
    assert (begun["job"]["name"], begun["job"]["facets"]["jobType"]["jobType"]) == ("maintain.ns.t", "MAINTENANCE")
    assert versions(begun) == [head, None]
    assert versions(done) == [head, str(lake.state("ns.t").snapshot.snapshot_id)]
    with pytest.raises(deltacompact.InputError):
        table.maintain()
    assert said()[-1]["eventType"] == "FAIL"
    orders = deltacompact.open_catalog(tmp_path / "lake").create_table("orders", primary_keys=["id"])
    orders.append(rows)
    orders.compact(settings=LOCAL)
    before, version = len(said()), orders.versions()[-1].version
    orders.vacuum()
    assert [(event["eventType"], event["job"]["name"]) for event in said()[before:]] == [
        ("START", "vacuum.orders"),
        ("COMPLETE", "vacuum.orders"),
    ]
    assert versions(said()[-1]) == [version, version]
    (tmp_path / f"lake/orders/stream/{version}" / f"{0:020d}.json").write_text("no entry")
    with pytest.raises(deltacompact.DeltaCompactError):
        deltacompact.open_catalog(tmp_path / "lake").table("orders").vacuum(full=True)
    assert said()[-1]["run"]["facets"]["errorMessage"]["message"] == "CorruptionError"


@pytest.mark.parametrize(
    ("catalog", "named"),
    [
        ("s3://lake/tables/", ("s3://lake", "tables/orders")),
        ("s3://lake", ("s3://lake", "orders")),
        ("file:///srv/my%20lake/", ("file", "/srv/my lake/orders")),
        ("iceberg://prod", ("iceberg://prod", "orders")),
    ],
)
def test_datasets_are_named_as_others_name_them(catalog, named):
    assert dataset_name(catalog, "orders") == named


def test_nobody_is_told_where_nobody_asks_and_a_bad_configuration_fails_nothing(tmp_path, monkeypatch, caplog):
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert lineage_sinks("s3://lake") == []
    (tmp_path / "bad.yml").write_text("transport: {type: nothing-known}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "bad.yml"))
    assert lineage_sinks("s3://lake") == []
    assert "no OpenLineage events" in caplog.text
    monkeypatch.delenv("OPENLINEAGE_CONFIG")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "console")
    assert len(lineage_sinks("s3://lake")) == 1


def test_a_run_that_ends_is_forgotten():
    events = []
    lineage = Lineage("s3://lake", events.append)
    for number in range(20):
        lineage(SessionStarted("orders", Partition((("n", str(number)),)), "5c", 1, 10, "1 delta"))
        lineage(SessionFinished("orders", Partition((("n", str(number)),)), None, 1, version="1-a"))
    assert len(events) == 40 and lineage._runs == {}


def test_a_server_that_does_not_answer_is_asked_once(caplog):
    asked = []

    def emit(event):
        asked.append(event)
        raise ConnectionError("nobody there")

    lineage = Lineage("s3://lake", emit)
    for number in range(20):
        lineage(SessionStarted("orders", Partition((("n", str(number)),)), "5c", 1, 10, "1 delta"))
    assert len(asked) == 1 and caplog.text.count("nobody there") == 1
