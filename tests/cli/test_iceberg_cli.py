"""The ways in: open_catalog, compact(), and the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial

import pyarrow as pa
import pytest
from iceberg_fixtures import lake, silence_is_short  # noqa: F401  (fixtures)
from iceberg_lake import Lake
from publications import configure
from pyiceberg.utils.config import Config
from table_t import ids

import deltacompact
from deltacompact import cli
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

T = "ns.t"


@pytest.fixture
def configured(lake, monkeypatch):
    """The lake under PyIceberg's own configuration. Returns its URI."""
    return filled(lake, monkeypatch)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A lake for all that is refused, because nothing is written then."""
    lake = Lake(tmp_path_factory.mktemp("untouched"), "untouched")
    with pytest.MonkeyPatch.context() as patch:
        filled(lake, patch)
        yield lake


def filled(lake, monkeypatch):
    configure(lake, monkeypatch)
    lake.create(T, pa.schema([("id", pa.int64())]))
    for number in range(5):
        lake.append(T, [{"id": number}])
    lake.delete_by_key(T, {"id": [2]})
    return f"iceberg://{lake.name}"


def said(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_compact_rewrites_a_table_of_a_named_catalog(lake, configured):
    catalog = deltacompact.open_catalog(configured)
    result = deltacompact.compact(T, delta_catalog_client=catalog, mode="rewrite", options={"min-input-files": 2})
    assert isinstance(result, deltacompact.RewriteResult)
    assert (result.files_in, result.files_out, result.dead_by_key) == (5, 1, 1)
    assert ids(lake) == [0, 1, 3, 4]


def test_a_loaded_catalog_is_taken_as_it_is(lake, configured):
    catalog = deltacompact.open_catalog(lake.catalog)
    assert isinstance(catalog, deltacompact.IcebergCatalog)
    deltacompact.compact(T, delta_catalog_client=catalog)
    assert ids(lake) == [0, 1, 3, 4]


def test_the_command_line_rewrites(lake, configured, capsys):
    assert cli.run(["compact", configured, T, "--mode", "rewrite", "--option", "min-input-files=2", "--json"]) == 0
    document = json.loads(said(capsys))
    assert (document["rows_in"], document["rows_out"], document["delete_files_removed"]) == (5, 4, 1)
    assert document["reasons"] == {"too_small": 5}
    assert cli.run(["compact", configured, T]) == 0
    assert said(capsys) == "nothing to do: 1 file: too few in the partition to be merged\n"
    assert ids(lake) == [0, 1, 3, 4]


def test_a_plan_says_which_files_are_divided(lake, configured, capsys):
    lake.append(T, [{"id": 7}, {"id": 8}])
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("id")
    assert cli.run(["plan", configured, T, "--option", "rewrite-all=true", "--option", "output-spec-id=1"]) == 0
    assert "2 rows -> 1 file or more, divided by partition spec 1\n" in said(capsys)


def test_rows_are_clustered(lake, configured, capsys):
    assert cli.run(["plan", configured, T, "--cluster-by", "id*2", "--option", "rewrite-all=true"]) == 0
    assert said(capsys).startswith("clustered by id*2\n5 files (5 rewrite all), ")
    assert cli.run(["compact", configured, T, "--cluster-by", "id*2", "--option", "rewrite-all=true"]) == 0
    assert capsys.readouterr().out.startswith("5 files -> 1 file, ")
    assert ids(lake) == [0, 1, 3, 4]


def test_a_plan_is_written_read_and_carried_out(lake, configured, capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert cli.run(["plan", configured, T, "--option", "rewrite-all=true", "--out", str(path)]) == 0
    assert said(capsys).startswith("5 files (5 rewrite all), ")
    assert cli.run(["compact", configured, T, "--from-plan", str(path), "--mode", "convert"]) == 2
    assert f"{path} is a plan of --mode rewrite, not convert" in capsys.readouterr().err
    assert len(lake.state(T).data) == 5
    lake.append(T, [{"id": 9}])
    assert cli.run(["compact", configured, T, "--from-plan", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("5 files -> 1 file, ")
    started, written, committed = err.splitlines()
    assert started.startswith("ns.t: 1 group to rewrite, 5 rows, ")
    assert written.startswith("ns.t: group 1 of 1 written, ")
    assert committed == f"ns.t: 1 group committed as snapshot {lake.state(T).snapshot_id}"
    assert lines[1] == "5 rows = 4 live + 0 deleted by position + 1 deleted by key; 1 delete file removed"
    assert ids(lake) == [0, 1, 3, 4, 9]
    assert cli.run(["compact", configured, T, "--from-plan", str(path)]) == 3
    assert "the plan is stale: another commit removed" in capsys.readouterr().err


def test_a_plan_says_how_long_it_takes_and_what_it_costs(lake, configured, capsys):
    words = ["plan", configured, T, "--where", "id > 2", "--option", "min-input-files=2"]
    assert cli.run([*words, "--usd-per-core-hour", "36000"]) == 0
    lines = said(capsys).splitlines()
    assert lines[0].startswith("2 files (2 too small), ")
    assert lines[1] == "stay: 3 files: no rows in them for which `where` is true"
    assert re.fullmatch(r"5 data files -> 4, [\d.]+ KiB -> about [\d.]+ KiB, 1 delete file -> about 1", lines[2])
    assert re.fullmatch(r"expected: 0\.\d s with start-up on \d+ slots?, 0\.0 core-seconds, 0\.\d{4} USD", lines[3])
    assert cli.run([*words, "--json", "--usd-per-core-hour", "36000"]) == 0
    document = json.loads(said(capsys))
    expected = document["expected"]
    assert expected["wall_s"] == pytest.approx(expected["seconds"] + 0.3)
    assert (document["before"]["data_files"], document["after"]["data_files"]) == (5, 4)
    assert expected["usd"] == pytest.approx(expected["core_seconds"] * 10)
    assert sum(expected["group_core_seconds"]) <= expected["core_seconds"]


def test_events_tell_of_groups_and_commits(lake, configured):
    events = []
    catalog = deltacompact.open_catalog(configured)
    options = {"rewrite-all": "true", "max-file-group-input-files": "2", "partial-progress.enabled": "true"}
    deltacompact.compact(T, delta_catalog_client=catalog, options=options, event_sinks=[events.append])
    names = [type(event).__name__ for event in events]
    assert names == ["ModeStarted", *["GroupWritten", "GroupsCommitted"] * 3, "ModeFinished"]
    assert [(event.written, event.groups) for event in events if hasattr(event, "written")] == [(1, 3), (2, 3), (3, 3)]
    assert sum(event.rows for event in events if hasattr(event, "written")) == events[0].rows == 5
    assert events[-1].error is None
    with pytest.raises(deltacompact.InputError):
        catalog.rewrite(T, {"where": "nobody = 1"}, emit=events.append)
    assert "nobody" in events[-1].error


def test_show_asks_the_catalog_once(configured, capsys, monkeypatch):
    """The metadata of a table can have megabytes. `show` had them read again for what it expects."""
    asked, load = [], IcebergTable.load
    monkeypatch.setattr(IcebergTable, "load", lambda *given: asked.append(given) or load(*given))
    assert cli.run(["show", configured, T]) == 0
    assert "a compaction would take" in said(capsys)
    assert len(asked) == 1


def test_the_command_line_shows_what_a_branch_is_made_of(lake, configured, capsys):
    assert cli.run(["show", configured, T]) == 0
    shown = capsys.readouterr().out.splitlines()
    head = lake.state(T).snapshot_id
    assert shown[:2] == [
        f"{T}: format version 2; branches and tags: main",
        f"branch main: snapshot {head}, 6 manifests",
    ]
    assert re.fullmatch(r"  5 data files, [\d.]+ KiB, 5 rows", shown[2])
    of_equality = "1 of equality; compact --mode convert replaces those of equality"
    assert shown[3] == f"  1 delete file with 1 row: {of_equality}"
    assert re.fullmatch(r"  a compaction would take 0\.\d s with start-up on \d+ slots?, 0\.0 core-seconds", shown[-1])
    assert str(deltacompact.open_catalog(configured).table(T)).splitlines() == shown
    assert cli.run(["show", configured, T, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["snapshot_id"], document["data_rows"], document["equality_delete_files"]) == (head, 5, 1)


def test_show_says_what_a_compaction_costs_or_why_there_is_none(lake, configured, capsys):
    assert cli.run(["show", configured, T, "--usd-per-core-hour", "1", "--json"]) == 0
    assert {"usd", "wall_s"} <= set(json.loads(said(capsys))["expected"])
    assert cli.run(["compact", configured, T]) == 0
    capsys.readouterr()
    assert cli.run(["show", configured, T]) == 0
    assert said(capsys).splitlines()[-1].startswith("  a compaction has nothing to do: ")
    lake.edit_metadata(T, {"properties": {"commit.retry.num-retries": "many"}})
    assert cli.run(["show", configured, T]) == 0
    assert said(capsys).splitlines()[-1].startswith("  a compaction cannot be planned: ")


def test_of_many_files_the_first_are_named(lake, configured, capsys):
    words = ["maintain", configured, T, "--expire-snapshots", "--option", "older-than=1ms", "--dry-run"]
    assert cli.run(["compact", configured, T, "--option", "delete-file-threshold=1"]) == 0
    capsys.readouterr()
    assert cli.run(words) == 0
    would, *paths, rest = capsys.readouterr().out.splitlines()[1:]
    assert would.startswith("  would be deleted: 5 data, 1 deletes, 6 manifests, 6 manifest lists, ")
    assert (len(paths), rest) == (10, "  and 8 more")


def test_what_a_catalog_lacks_is_told_with_how_to_get_it(tmp_path, monkeypatch, capsys):
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def describe(kind):
        monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__TYPE", kind)
        monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__URI", "thrift://127.0.0.1:9")
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    describe("hive")
    assert cli.run(["show", "iceberg://away"]) == 2
    assert "'away' cannot be opened: Apache Hive support not installed: pip install " in capsys.readouterr().err
    describe("glue")
    assert cli.run(["show", "iceberg://away"]) == 2
    assert "'away' has no AWS region: set glue.region in .pyiceberg.yaml" in capsys.readouterr().err
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert cli.run(["show", "iceberg://away", "ns.t"]) == 2
    assert "'away' has no AWS credentials: set AWS_ACCESS_KEY_ID" in capsys.readouterr().err


def test_the_command_line_maintains(lake, configured, capsys):
    words = ["maintain", configured, T, "--expire-snapshots", "--rewrite-manifests", "--remove-orphans"]
    assert cli.run([*words, "--option", "retain-last=2", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    expired, manifests, orphans = out.splitlines()
    assert (
        expired
        == "snapshots: none of 6 snapshots: each is younger than 120 hours, or kept by a branch, tag or bookmark"
    )
    assert manifests.startswith("manifests: 5 manifests -> 1, 1 kept; 5 entries, ")
    assert manifests.endswith(" KiB would be rewritten")
    assert orphans.endswith("each is reached, hidden or another table's")
    assert "reading 6 snapshots" in err
    assert len(lake.state(T).manifests) == 6
    assert cli.run([*words, "--json"]) == 0
    out, _ = capsys.readouterr()
    document = json.loads(out)
    assert (document["rewrite_manifests"]["replaced"], document["rewrite_manifests"]["created"]) == (5, 1)
    assert document["expire_snapshots"]["nothing_to_do"]
    assert len(lake.state(T).manifests) == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        (
            "",
            "PyIceberg cannot read its configuration, .pyiceberg.yaml in PYICEBERG_HOME, the home folder or this one: ",
        ),
        ("catalog: [prod]", "PyIceberg cannot read its configuration, .pyiceberg.yaml in PYICEBERG_HOME"),
        ("catalog: 5", "Iceberg catalog 'prod' is not configured: "),
    ],
)
def test_a_configuration_that_pyiceberg_cannot_read_is_bad_input(tmp_path, configuration, said):
    """PyIceberg reads it when it is imported."""
    (tmp_path / ".pyiceberg.yaml").write_text(configuration)
    done = subprocess.run(
        [sys.executable, "-m", "deltacompact", "show", "iceberg://prod", T],
        env={**os.environ, "PYICEBERG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"deltacompact: {said.strip()}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compact", "ICEBERG", "ns.nobody"], "has no table 'ns.nobody'"),
        (["compact", "ICEBERG", "ns.tt"], "has no table 'ns.tt' (did you mean 'ns.t'?)"),
        (["compact", "ICEBERG", "nobody"], "name it as namespace.table"),
        (["compact", "ICEBERG", T, "--branch", "nobody"], "has no branch 'nobody'"),
        (["compact", "ICEBERG", T, "--option", "size=1"], "unknown option 'size': known are target-file-size-bytes"),
        (["compact", "ICEBERG", T, "--option", "rewrite-all"], "--option 'rewrite-all': write KEY=VALUE"),
        (["compact", "ICEBERG", T, "--where", "nobody = 1"], "there is no column 'nobody' (columns: "),
        (["plan", "ICEBERG", T, "--where", "id ="], "where 'id =' cannot be parsed: write it like day = '2026-11-22'"),
        (["compact", "ICEBERG", T, "--where", "id = 1", "--from-plan", "p"], "--where and --from-plan: a plan has"),
        (["compact", "ICEBERG", T, "--cluster-by", "id", "--from-plan", "p"], "--cluster-by and --from-plan: a plan"),
        (["compact", "ICEBERG", T, "--cluster-by", "color"], "column 'color' is not in table 'ns.t': it has id"),
        (["plan", "ICEBERG", T, "--cluster-by", "id*x"], "option cluster-by: the weight 'x' of 'id*x' is no number"),
        (["compact", "ICEBERG", T, "--cluster-by", "id", "--mode", "convert"], "unknown option 'cluster-by'"),
        (
            ["compact", "ICEBERG", T, "--primary-key", "id"],
            "for an Iceberg table, give --option key-columns=NAME",
        ),
        (
            ["compact", "ICEBERG", T, "--partition", "day=1"],
            "for an Iceberg table, give --where",
        ),
        (["compact", "ICEBERG", T, "--purge"], "deltacompact: --purge is for delta streams\n"),
        (["plan", "ICEBERG", T, "--target-file-bytes", "9"], "give --option target-file-size-bytes=N"),
        (["validate", "ICEBERG", T, "--partition", "day=1"], "deltacompact: --partition is for delta streams\n"),
        (["show", "ICEBERG", T, "--branch", "nobody"], "has no branch 'nobody' (branches: main)"),
        (["show", "ICEBERG", T, "--versions"], "--versions is for delta streams"),
        (["show", "FOLDER", "--branch", "b"], "--branch is for tables of Iceberg catalogs"),
        (["validate", "FOLDER", T, "--before", "1"], "--before is for tables of Iceberg catalogs"),
        (["compact", "ICEBERG", T, "--from-plan", __file__], "test_iceberg_cli.py is not a plan that `plan iceberg://"),
        (["compact", "ICEBERG", T, "--from-plan", "/nowhere.json"], "/nowhere.json cannot be read"),
        (["compact", "iceberg://nobody", T], "'nobody' is not configured: URI missing. Set it in .pyiceberg.yaml, or"),
        (["compact", "iceberg://", T], "iceberg:// names no catalog"),
        (["compact", "iceberg:///nobody", T], "iceberg:///nobody names no catalog: write iceberg://NAME"),
        (["publish", "ICEBERG", T], "publish does not take the Iceberg catalog iceberg://"),
        (["read", "ICEBERG", T, "--partition", "day=1"], "--partition is for delta streams"),
        (["read", "ICEBERG", T, "--as-of", "7"], "has no snapshot '7'"),
        (["export", "FOLDER", T, "x.csv", "--branch", "b"], "--branch is for tables of Iceberg catalogs"),
        (["rollback", "ICEBERG", T], "either a VERSION or --to TIME"),
        (["rollback", "ICEBERG", T, "--to", "7"], "a version or snapshot goes without --to"),
        (["rollback", "ICEBERG", T, "--to", "1999-01-01"], "has no snapshot of 1999-01-01"),
        (["maintain", "ICEBERG", T], "say what to do: --expire-snapshots, --rewrite-manifests, "),
        (["maintain", "ICEBERG", T, "--remove-orphans", "--option", "older-than=1h"], "is less than 24 hours"),
        (["maintain", "ICEBERG", T, "--rewrite-manifests", "--branch", "b"], "has no branch 'b'"),
        (["maintain", "FOLDER", T, "--expire-snapshots"], "maintain takes an Iceberg catalog (iceberg://NAME), not /"),
        (["compact", "FOLDER", T, "--branch", "b"], "--branch is for tables of Iceberg catalogs"),
    ],
)
def test_bad_input_is_refused_in_one_line(untouched, capsys, words, message):
    before = untouched.state(T)
    places = {"ICEBERG": f"iceberg://{untouched.name}", "FOLDER": str(untouched.folder / "streams")}
    assert cli.run([places.get(word, word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert untouched.state(T) == before


def test_arguments_of_iceberg_tables_are_refused_for_delta_streams(tmp_path, lake, configured):
    streams = deltacompact.open_catalog(tmp_path / "streams")
    with pytest.raises(deltacompact.InputError, match="mode, options and branch are for tables of Iceberg catalogs"):
        deltacompact.compact("t", delta_catalog_client=streams, mode="rewrite")
    with pytest.raises(deltacompact.InputError, match="mode 'merge' is none of: rewrite, convert, upsert"):
        deltacompact.compact(T, delta_catalog_client=deltacompact.open_catalog(configured), mode="merge")


@pytest.mark.parametrize(
    "given",
    [
        {"primary_keys": ["id"]},
        {"sort_keys": ["id"]},
        {"desired_sla": 60},
        {"destination_compacted_table_id": "db.copy"},
        {"rows_per_primary_key_index_file": 9},
        {"rows_per_compacted_file": 9},
        {"hash_bucket_count": 9},
        {"sns_event_topic_arn": "arn:aws:sns:eu-west-1:123456789012:events"},
        {"compacted_file_content_type": "orc"},
        {"partitions": [{"day": "1"}]},
        {"purge": True},
    ],
    ids=lambda given: next(iter(given)),
)
def test_arguments_of_delta_streams_are_refused_for_iceberg_tables(untouched, given):
    """The whole branch was rewritten in place, whatever destination or partitions they named."""
    before = untouched.state(T)
    (name,) = given
    with pytest.raises(deltacompact.InputError, match=f"^{name} is for delta streams, and '{T}' is an Iceberg table"):
        deltacompact.compact(T, delta_catalog_client=deltacompact.open_catalog(untouched.catalog), **given)
    assert untouched.state(T) == before


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("rows_per_round", 5, "$"),
        ("rewrite_dead_fraction", 0.5, ": give the option delete-ratio-threshold"),
        ("target_file_bytes", 128 << 20, ": give the option target-file-size-bytes"),
        ("write_amplification_max", 2.0, ": give the option write-amplification-max"),
    ],
)
def test_settings_of_delta_streams_are_refused_for_iceberg_tables(untouched, name, value, advice):
    """They were taken and never read: files got 512 MiB."""
    settings, catalog = deltacompact.Settings(**{name: value}), deltacompact.open_catalog(untouched.catalog)
    ways = (catalog.rewrite, catalog.convert, catalog.upsert)
    for compact in (catalog.table(T).compact, *(partial(way, T) for way in ways)):
        with pytest.raises(deltacompact.InputError, match=f"^the setting {name} is for delta streams{advice}"):
            compact(settings=settings)
    with pytest.raises(deltacompact.InputError, match=f"^the setting {name} is for delta streams{advice}"):
        catalog.expected(catalog.plan(T), settings)


def test_a_catalog_that_does_not_answer_is_named(lake, configured, monkeypatch):
    from sqlalchemy.exc import OperationalError

    catalog = deltacompact.open_catalog(lake.catalog)

    def silent(identifier):
        raise OperationalError("select", {}, Exception("connection refused\nmore lines"))

    monkeypatch.setattr(lake.catalog, "load_table", silent)
    with pytest.raises(deltacompact.StoreError, match=f"Iceberg catalog '{lake.name}' does not answer: ") as caught:
        deltacompact.compact(T, delta_catalog_client=catalog)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "options"),
    [("rewrite", ["rewrite-all=true"]), ("convert", []), ("upsert", ["key-columns=id"])],
    ids=["rewrite", "convert", "upsert"],
)
@pytest.mark.slow
def test_a_plan_foresees_the_files_afterwards(lake, configured, capsys, mode, options):
    lake.append(T, [{"id": 7}])
    lake.append(T, [{"id": 7}])
    words = [configured, T, "--mode", mode, *(word for option in options for word in ("--option", option))]
    if mode == "upsert":
        deltacompact.compact(T, delta_catalog_client=deltacompact.open_catalog(lake.catalog), mode="convert")
    assert cli.run(["plan", *words, "--json"]) == 0
    document = json.loads(said(capsys))
    state = lake.state(T)
    assert document["before"]["data_files"] == len(state.data) == 7
    assert document["before"]["delete_files"] == len(state.deletes) == 1
    assert cli.run(["compact", *words]) == 0
    capsys.readouterr()
    state, after = lake.state(T), document["after"]
    assert len(state.data) == after["data_files"]
    if mode == "rewrite":
        assert len(state.deletes) == after["delete_files"] == 0
        assert 0 < sum(entry.file.file_bytes for entry in state.data) < after["data_bytes"]
    else:
        assert 1 <= len(state.deletes) <= after["delete_files"]


@pytest.mark.slow
def test_a_plan_of_many_groups_is_a_screen(lake, configured, capsys):
    for number in range(20):
        lake.append(T, [{"id": number}])
    words = ["plan", configured, T, "--option", "rewrite-all=true", "--option", "max-file-group-input-files=2"]
    assert cli.run(words) == 0
    lines = said(capsys).splitlines()
    assert lines[0].startswith("25 files (25 rewrite all), ") and lines[0].endswith(" -> 13 files, in 13 groups")
    assert lines[11] == "and 3 more groups: --verbose prints all" and len(lines) == 14
    assert cli.run([*words, "--verbose"]) == 0
    assert len(said(capsys).splitlines()) == 1 + 13 + 2
    assert cli.run([*words, "--verbose", "--files"]) == 0
    files = [line for line in said(capsys).splitlines() if line.startswith("  ") and ".parquet" in line]
    assert len(files) == 25 and sum(line.endswith("1 delete file may apply") for line in files) == 1


def test_show_lists_the_tables_of_a_catalog(lake, configured, capsys):
    lake.catalog.create_namespace("other")
    lake.create("other.empty", pa.schema([("id", pa.int64())]))
    lake.create("other.full", pa.schema([("id", pa.int64())]))
    lake.append("other.full", [{"id": 1}, {"id": 2}])
    assert cli.run(["show", configured]) == 0
    head, uncounted, empty, full = said(capsys).splitlines()
    assert head.split()[:3] == ["data", "files", "rows"] and head.endswith("  table")
    assert uncounted.split()[:4] == ["-"] * 4 and uncounted.endswith("  ns.t")  # its writer counts nothing
    assert empty.split() == ["-"] * 6 + ["other.empty"]
    assert full.split()[:2] == ["1", "2"] and full.endswith("  other.full")
    assert cli.run(["show", configured, "--json"]) == 0
    _, _, full = json.loads(said(capsys))
    assert (full["table"], full["data_files"], full["delete_files"], full["compacted_s"]) == ("other.full", 1, 0, None)
    deltacompact.compact(T, delta_catalog_client=deltacompact.open_catalog(lake.catalog))
    assert cli.run(["show", configured, "--json"]) == 0
    assert json.loads(said(capsys))[0]["compacted_s"] > 0


def test_show_prints_snapshots_and_files(lake, configured, capsys):
    assert cli.run(["show", configured, T, "--snapshots"]) == 0
    lines = said(capsys).splitlines()
    assert len(lines) == 6 and lines[0].endswith(" UTC  delete (main): no counts")
    assert re.match(r"\d+  \d{4}-\d\d-\d\d \d\d:\d\d UTC  append: 1 data file added", lines[-1])
    assert cli.run(["show", configured, T, "--snapshots", "--json"]) == 0
    assert [each["by_deltacompact"] for each in json.loads(said(capsys))] == [False] * 6
    assert cli.run(["show", configured, T, "--files"]) == 0
    files = [line for line in said(capsys).splitlines() if ".parquet" in line]
    assert len(files) == 6 and sum("1 delete file may apply" in line for line in files) == 1
    assert files[-1].startswith("  equality deletes ")
    assert cli.run(["show", configured, "--snapshots"]) == 2


def test_a_run_ends_with_one_line(lake, configured, capsys):
    assert cli.run(["compact", configured, T, "--option", "rewrite-all=true"]) == 0
    assert re.fullmatch(r"Done: 5 rows, \d+\.\d s", capsys.readouterr().out.splitlines()[-1])


def test_history_read_export_and_rollback(lake, configured, capsys, tmp_path):
    assert cli.run(["history", configured, T, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made[0]["operation"] == "append" and made[0]["files_added"] == 1
    assert cli.run(["history", configured, T]) == 0
    assert str(made[0]["snapshot_id"]) in capsys.readouterr().out
    assert cli.run(["read", configured, T, "--as-of", made[0]["time"]]) == 0
    then = capsys.readouterr().out.splitlines()
    assert cli.run(["export", configured, T, str(tmp_path / "then.csv"), "--as-of", str(made[0]["snapshot_id"])]) == 0
    assert f"exported {len(then)} row" in capsys.readouterr().out
    assert cli.run(["rollback", configured, T, "--to", made[0]["time"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshot_id"] == made[0]["snapshot_id"]
    assert cli.run(["rollback", configured, T, str(made[-1]["snapshot_id"])]) == 0
    assert f"roll back to {made[0]['snapshot_id']} to undo that" in capsys.readouterr().out
    assert cli.run(["rollback", configured, T, str(made[0]["snapshot_id"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["former_head"] == made[-1]["snapshot_id"]
    assert cli.run(["read", configured, T]) == 0
    assert capsys.readouterr().out.splitlines() == then
    row = json.loads(then[0])
    assert cli.run(["read", configured, T, "--where", f"id = {row['id']}"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [row]


def test_a_rollback_to_a_time_goes_to_no_tag_of_that_name(lake, configured, capsys):
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_tag(table.history()[0].snapshot_id, "1999-01-01").commit()
    assert cli.run(["rollback", configured, T, "--to", "1999-01-01"]) == 2
    assert "has no snapshot of 1999-01-01" in capsys.readouterr().err
    assert cli.run(["rollback", configured, T, "1999-01-01"]) == 0


@pytest.mark.parametrize("mode", ["rewrite", "convert", "upsert"])
@pytest.mark.slow
def test_a_run_lists_the_files_that_its_snapshots_changed(lake, configured, capsys, mode):
    """Each file that is there afterwards and was not before, and the other way round."""
    options = {"rewrite": ["rewrite-all=true"], "convert": [], "upsert": ["key-columns=id"]}[mode]
    lake.append(T, [{"id": 1}, {"id": 2}])
    lake.append(T, [{"id": 2}])

    def live():
        state = lake.state(T)
        return {entry.file.key for entry in (*state.data, *state.deletes)}

    before = live()
    words = ["compact", configured, T, "--mode", mode, "--files", "--json"]
    assert cli.run([*words, *(word for option in options for word in ("--option", option))]) == 0
    files = json.loads(said(capsys))["changed_files"]
    after = live()
    gone = {path for path, _ in before - after}
    new = {path for path, _ in after - before}
    assert {file["path"] for file in files if file["change"] == "added"} == new != set()
    assert {file["path"] for file in files if file["change"] == "removed"} == gone
    assert bool(gone) == (mode != "upsert")
    lake.append(T, [{"id": 3}])
    assert cli.run(["compact", configured, T, "--option", "rewrite-all=true", "--files"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  added data ") and line.endswith((" B", "KiB")) for line in lines)
    assert sum(line.startswith("  removed data ") for line in lines) >= 2
    assert cli.run(["compact", configured, T, "--files"]) == 0
    assert not any(line.startswith("  ") for line in capsys.readouterr().out.splitlines()), "nothing to do"
