"""A delta table that is published as Delta Lake: what delta-rs reads there is what was compacted."""

from __future__ import annotations

import datetime
import json
import shutil
from dataclasses import replace

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_publications import DeltaPublications
from dying import changed
from publications import LOCAL, WIDE, T, marked_partitions, meeting, plain

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import CorruptionError, InputError, SchemaError
from deltacompact.base.limits import Limits
from deltacompact.delta_streams.appending.other_partitions import OtherPartitions
from deltacompact.delta_streams.appending.stream_fit import StreamFit
from deltacompact.delta_streams.versions import rollback
from deltacompact.index import live_bitmaps
from deltacompact.maintenance.vacuum.vacuum import vacuum

LOG = "_delta_log"


@pytest.fixture
def orders(tmp_path):
    return DeltaPublications(tmp_path, name="dé lta%20")


@pytest.fixture
def by_day(tmp_path):
    return DeltaPublications(tmp_path, ["day"])


def test_each_compaction_is_one_commit_with_the_compacted_files_by_reference(orders):
    orders.append([{"id": number, "v": "a"} for number in range(20)])
    orders.compact()
    assert orders.publish().snapshot == 0
    assert orders.actions("protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    orders.append([{"id": 50, "v": "b"}])
    assert orders.compact(purge=True).publication.snapshot == 1
    assert not (orders.actions("protocol") or orders.actions("metaData"))
    assert orders.shown() == orders.compacted()
    assert not list(orders.out.rglob("*.parquet"))
    assert orders.catalog.publish(T).snapshot is None
    assert len(orders.commits()) == 2


def test_dead_rows_are_deletion_vectors_and_a_removal_names_the_one_it_removes(orders):
    """trino#31253: a removal that does not name the vector leaves the file, and its rows are there twice."""
    changed(orders)
    result = orders.compact().publication
    assert (result.files_removed, result.dead_row_files_added) == (0, 1)
    assert orders.actions("protocol")[0]["readerFeatures"] == ["deletionVectors"]
    (vector,) = [added["deletionVector"] for added in orders.actions("add") if "deletionVector" in added]
    assert (vector["storageType"], vector["cardinality"]) == ("u", 2)
    statistics = [json.loads(added["stats"]) for added in orders.actions("add") if "deletionVector" in added]
    assert [(file["numRecords"], file["tightBounds"]) for file in statistics] == [(20, False)]
    assert orders.shown() == orders.compacted()
    orders.append([{"id": 3}], "delete")
    orders.compact()
    assert [removed.get("deletionVector") for removed in orders.actions("remove")] == [vector]
    assert orders.shown() == orders.compacted()
    orders.compact(purge=True)
    orders.append([{"id": 4}], "delete")
    orders.compact(purge=True)
    assert orders.shown() == orders.compacted()
    assert len(orders.shown()) == 20 + 1 - 3


@pytest.mark.parametrize("rows", [8_192, 8_193, 100_000])
def test_vectors_meet_their_rows_however_many_there_are(orders, rows):
    """delta-rs#4475 (8,193 rows), #4572 (100,000 rows), #4700 (dead rows by position): rows of a file have no order."""
    order = np.random.default_rng(5).permutation(rows)
    orders.append(pa.table({"id": order, "n": np.arange(rows)}))
    orders.compact()
    orders.publish()
    dead = np.unique([0, 1, 4_095, 4_096, 8_190, 8_191, rows - 1, *range(0, rows, 997)])
    orders.append(pa.table({"id": order[dead]}), "delete")
    orders.compact()
    assert orders.actions("add")[0]["deletionVector"]["cardinality"] == len(dead)
    shown = orders.by_delta("select count(*) as n, sum(id) as ids, sum(n) as ns from t").to_pylist()
    kept = orders.catalog.read(T).to_pydict()
    assert shown == [{"n": rows - len(dead), "ids": sum(kept["id"]), "ns": sum(kept["n"])}]


@pytest.mark.slow
def test_checkpoints_bring_no_row_back(orders):
    """delta-rs#3047: 4,000 rows became 12,000 after a checkpoint and two compactions."""
    orders.append([{"id": number, "v": 0} for number in range(400)])
    orders.compact()
    orders.publish()
    for number in range(23):
        orders.append([{"id": number, "v": number}])
        orders.compact(purge=number % 3 == 0)
        if number == 12:
            for old in sorted((orders.out / LOG).glob("*.json"))[:10]:
                old.unlink()
        assert orders.by_delta("select count(*) as n from t").to_pylist() == [{"n": 400}]
    assert len(list((orders.out / LOG).glob("*.checkpoint.parquet"))) == 2
    assert json.loads((orders.out / LOG / "_last_checkpoint").read_text())["version"] == 20
    assert orders.shown() == orders.compacted()
    for version in (10, 15, 20, 23):
        assert orders.by_delta("select count(*) as n from t", version).to_pylist() == [{"n": 400}]
    deltalake.DeltaTable(str(orders.out)).create_checkpoint()
    orders.append([{"id": 1000}])
    orders.compact()
    assert len(orders.shown()) == 401


@pytest.mark.slow
@pytest.mark.parametrize("hint", [None, b"{", b'{"version":99,"size":3}', b"[]"])
def test_a_hint_that_is_gone_or_wrong_only_costs_a_listing(orders, hint):
    changed(orders)
    for number in range(12):
        orders.append([{"id": 100 + number}])
        orders.compact()
    (orders.out / LOG / "_last_checkpoint").unlink()
    if hint is not None:
        (orders.out / LOG / "_last_checkpoint").write_bytes(hint)
    orders.append([{"id": 77}])
    assert orders.compact().publication.error is None
    (orders.out / LOG / "_last_checkpoint").unlink(missing_ok=True)
    assert orders.shown() == orders.compacted()


def test_files_under_their_former_spelling_are_the_same_files(orders):
    """Up to November 2026 a log named them `file:///lake/a.parquet`. A rollback shows such a file once more."""
    changed(orders)
    commit = orders.out / LOG / f"{0:020d}.json"
    commit.write_text(commit.read_text().replace('"path":"/', '"path":"file:///'))
    assert orders.catalog.publish(T).snapshot is None
    result = orders.compact().publication
    assert (result.files_added, result.files_removed) == (1, 0)
    assert [removed["path"][:8] for removed in orders.actions("remove")] == ["file:///"]
    rollback(orders.catalog, T, "1")
    orders.catalog.publish(T)
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    for number in range(10):
        orders.append([{"id": 100 + number}])
        orders.compact()
    (checkpoint,) = (orders.out / LOG).glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint).to_pylist()
    added, removed = (
        {row[kind]["path"].removeprefix("file://") for row in rows if row[kind] and not row[kind]["deletionVector"]}
        for kind in ("add", "remove")
    )
    assert not added & removed
    assert orders.shown() == orders.compacted()


def test_a_log_with_a_hole_is_not_continued(orders):
    changed(orders)
    orders.compact()
    orders.append([{"id": 5}], "delete")
    orders.compact()
    (orders.out / LOG / f"{1:020d}.json").unlink()
    with pytest.raises(CorruptionError, match="commit 1 is missing"):
        orders.catalog.publish(T)
    with pytest.raises(CorruptionError, match="commit 1 is missing"):
        vacuum(orders.catalog, T, age_min_s=0, force=True)


def test_types_are_read_as_they_were_written(orders):
    columns = {name: values for name, values in WIDE.items() if name != "clock"}
    orders.append(pa.table({"id": [1, 2], **columns}))
    orders.compact()
    orders.publish()
    fields = {field.name: field.type for field in deltalake.DeltaTable(str(orders.out)).schema().fields}
    assert [str(fields[name].type) for name in ("tiny", "small", "whole")] == ["byte", "short", "integer"]
    assert orders.actions("protocol")[0]["writerFeatures"] == ["timestampNtz"]
    orders.catalog.publish(T)
    assert orders.shown() == orders.compacted()


@pytest.mark.parametrize(
    "values, words",
    [
        (pa.array([1], pa.uint64()), "column 'bad' is an uint64, and Delta Lake has no unsigned integers"),
        (pa.array([1], pa.timestamp("ns")), "column 'bad' is a timestamp.ns., and Delta Lake has microseconds"),
        (pa.array([1], pa.time64("us")), "column 'bad' is a time64.us., which Delta Lake does not have"),
        (pa.array([None]), "column 'bad' is a null, because no row has had a value in it yet"),
        (pa.array([{"a b": 1}]), "column 'bad', 'a b': Delta Lake allows none of"),
        (pa.array([{"a": 1, "A": 2}]), "columns 'a' and 'A' are one column for Delta Lake"),
    ],
)
def test_what_delta_lacks_is_refused_by_column_before_anything_is_declared(orders, values, words):
    orders.append(pa.table({"id": [1], "bad": values}))
    orders.compact()
    with pytest.raises(SchemaError, match=words):
        orders.publish()
    assert orders.catalog.publication(T) is None
    assert not orders.out.exists() or not list(orders.out.rglob("*.json"))


def test_a_column_without_values_gets_a_type_as_the_refusal_says(orders):
    untyped = {"bad": pa.nulls(2), "deep": pa.array([{"x": None}] * 2, pa.struct([("x", pa.null())]))}
    orders.append(pa.table({"id": [1, 2], **untyped}))
    orders.compact()
    with pytest.raises(SchemaError, match="a type, which it gets with any appended Parquet row, even of null"):
        orders.publish()
    typed = {"bad": pa.nulls(1, pa.string()), "deep": pa.nulls(1, pa.struct([("x", pa.int64())]))}
    orders.append(pa.table({"id": [2], **typed}))
    orders.compact()
    orders.publish()
    assert orders.shown() == orders.compacted()


def test_columns_are_added(orders):
    changed(orders)
    orders.append(pa.table({"id": [30], "w": [{"a": 1}]}))
    orders.compact()
    orders.append(pa.table({"id": [31], "w": [{"b": "x", "a": 2}]}))
    orders.compact()
    assert orders.shown() == orders.compacted()


def test_a_wider_type_is_in_the_history_of_its_column(orders):
    orders.append(pa.table({"id": pa.array([1], pa.int32()), "deep": [{"x": pa.scalar(1, pa.int16()).as_py()}]}))
    orders.append(pa.table({"id": pa.array([2], pa.int32()), "n": pa.array([[1]], pa.list_(pa.int8()))}))
    orders.compact()
    orders.publish()
    orders.append(pa.table({"id": pa.array([3], pa.int64()), "n": pa.array([[1]], pa.list_(pa.int16()))}))
    orders.compact()
    orders.append(pa.table({"id": pa.array([4], pa.int64()), "n": pa.array([[1]], pa.list_(pa.int32()))}))
    orders.compact()
    (protocol,) = orders.actions("protocol", 1)
    assert "typeWidening" in protocol["readerFeatures"]
    fields = {field["name"]: field for field in json.loads(orders.actions("metaData")[0]["schemaString"])["fields"]}
    assert fields["id"]["metadata"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    changes = fields["n"]["metadata"]["delta.typeChanges"]
    assert {"fromType": "byte", "toType": "short", "fieldPath": "element"} in changes
    assert {"fromType": "short", "toType": "integer", "fieldPath": "element"} in changes
    assert orders.catalog.publish(T).snapshot is None


def test_a_decimal_that_becomes_too_wide_is_named(by_day, monkeypatch):
    """Neither partition is too wide by itself, and two writers appended to them at one moment."""
    monkeypatch.setattr(OtherPartitions, "check_fit", lambda *_, **__: None)
    for day, type_ in (("a", pa.decimal128(38, 0)), ("b", pa.decimal128(38, 10))):
        by_day.append(pa.table({"id": [1], "price": pa.array([1], type_)}), day=day)
    by_day.compact()
    with pytest.raises(SchemaError, match="column 'price' is"):
        by_day.publish()
    assert by_day.catalog.publication(T) is None


def test_a_type_that_delta_cannot_have_stops_the_publication_and_not_the_compaction(orders, monkeypatch):
    changed(orders)
    for name, type_, why in (
        ("bad", pa.uint8(), "is an uint8"),
        ("unit price", pa.int8(), "rename it"),
        ("ID", pa.int8(), "are one column"),
    ):
        with pytest.raises(SchemaError, match=why):
            orders.append(pa.table({"id": [40], name: pa.array([1], type_)}))
    with monkeypatch.context() as patch:  # a release that did not ask
        patch.setattr(StreamFit, "check_published", lambda *_: None)
        orders.append(pa.table({"id": [40], "bad": pa.array([1], pa.uint8())}))
    result = orders.compact()
    assert "column 'bad' is an uint8" in str(result.publication.error)
    assert not result.errors


@pytest.mark.parametrize(
    ("partition", "rows", "remedy"),
    [
        (
            {"a day": "mon"},
            {"id": pa.array([1]), "a day": pa.array(["mon"])},
            "it is a key: .* or append the rows to a new",
        ),
        ({}, {"id": pa.array([1], pa.uint64())}, "it is a key: restate the partition with another type of it"),
        ({}, {"id": pa.array([1]), "a v": pa.array([1])}, "restate the partition without it"),
    ],
)
def test_nobody_is_told_to_leave_a_key_out(tmp_path, partition, rows, remedy):
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", [*partition], ["id"])
    table.append(pa.table(rows), partition or None)
    table.compact(settings=LOCAL)
    with pytest.raises(SchemaError, match=f"(rename it|unsigned integers): {remedy}"):
        table.publish(f"delta://{tmp_path}/out")
    if not partition:
        table.restate(pa.table({"id": pa.array([1])}))
        table.compact(settings=LOCAL)
        assert table.publish(f"delta://{tmp_path}/out").files_added == 1


@pytest.mark.parametrize(
    "type_, values, texts",
    [
        (pa.string(), ["a b%2F/é=", "null", None], ["a b%2F/é=", "null", None]),
        (pa.int32(), [5, -7, None], ["5", "-7", None]),
        (pa.bool_(), [True, False, None], ["true", "false", None]),
        (pa.date32(), [datetime.date(2024, 2, 29), None], ["2024-02-29", None]),
    ],
)
def test_values_of_partitions_are_texts_in_the_log(by_day, type_, values, texts):
    for number, value in enumerate(values):
        by_day.append(pa.table({"id": [number], "day": pa.array([value], type_)}), day=value)
    by_day.compact()
    by_day.publish()
    assert {added["partitionValues"]["day"] for added in by_day.actions("add")} == set(texts)
    read = sorted(by_day.by_delta().to_pylist(), key=lambda row: row["id"])
    assert [row["day"] for row in read] == values


def test_an_empty_text_is_no_value_of_a_partition(by_day):
    by_day.append([{"id": 1}], day="")
    by_day.compact()
    with pytest.raises(SchemaError, match="partition key 'day' has an empty text, which Delta Lake cannot tell"):
        by_day.publish()
    assert by_day.catalog.publication(T) is None
    by_day.catalog.restate(T, pa.table({"id": pa.array([], pa.int64())}), {"day": ""})
    by_day.append([{"id": 1}], day="a")
    by_day.compact()
    by_day.publish()
    assert by_day.shown() == [{"day": "a", "id": 1}]


def test_an_empty_text_is_refused_at_the_append(by_day):
    by_day.append([{"id": 1}], day="a")
    by_day.compact()
    by_day.publish()
    refused = r"has an empty text, .*shows this table, so give the partition another value"
    with pytest.raises(SchemaError, match=refused):
        by_day.append([{"id": 2}], day="")
    with pytest.raises(SchemaError, match=refused):
        by_day.catalog.restate(T, pa.table({"id": [2]}), {"day": ""})


@pytest.mark.parametrize(("value", "is_key"), [("", False), ("x", True)])
def test_one_partition_whose_value_cannot_be_shown_does_not_keep_the_others_from_it(by_day, monkeypatch, value, is_key):
    """A release that did not ask took it. The others were not shown any more, and "the next run will" was said."""

    def append(number, day):
        by_day.append(pa.table({"id": [number], **({"day": [int(day)]} if is_key and day.isdigit() else {})}), day=day)

    append(1, "1")
    by_day.compact()
    by_day.publish()
    with monkeypatch.context() as patch:
        patch.setattr(StreamFit, "check_published", lambda *_: None)
        patch.setattr(OtherPartitions, "check_fit", lambda *_, **__: None)
        append(2, value)
    append(3, "3")
    result = by_day.compact()
    assert f"partition day={value}: partition " in str(result.publication.error)
    assert "does not show it: " in str(result.publication) and "empty this one (catalog.restate)" in str(result)
    assert [row["id"] for row in by_day.shown()] == [1, 3]
    by_day.catalog.restate(T, pa.table({"id": pa.array([], pa.int64())}), {"day": value})
    assert by_day.compact().publication.error is None
    assert by_day.catalog.publish(T).error is None


def test_a_table_that_was_dropped_is_made_again_with_all_partitions(by_day):
    for day in "ab":
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    shutil.rmtree(by_day.out)
    by_day.append([{"id": 2}], day="a")
    by_day.compact(partitions=[{"day": "a"}])
    assert by_day.shown() == by_day.compacted() and len(by_day.shown()) == 3


# Statistics


def test_a_table_made_anew_shows_no_partition_of_the_dropped_one(by_day):
    by_day.publish_days_and_drop_one()
    by_day.publish()
    assert by_day.shown() == []  # no row of it is compacted yet
    by_day.compact()
    assert by_day.shown() == by_day.compacted() == [{"day": "b", "id": 2}]


def test_the_next_compaction_empties_partitions_of_a_dropped_table_after_a_run_that_died(by_day, monkeypatch):
    by_day.publish_days_and_drop_one()
    by_day.compact()
    by_day.die_once_declared(monkeypatch)
    by_day.append([{"id": 3}], day="b")
    by_day.compact()
    assert by_day.shown() == by_day.compacted() == [{"day": "b", "id": 2}, {"day": "b", "id": 3}]


@pytest.mark.parametrize("compacted", [False, True])
def test_the_next_run_empties_partitions_of_a_dropped_table_after_a_run_that_died(by_day, monkeypatch, compacted):
    by_day.publish_days_and_drop_one()
    if compacted:
        by_day.compact()
    by_day.die_once_declared(monkeypatch)
    by_day.publish()
    assert by_day.shown() == ([{"day": "b", "id": 2}] if compacted else [])


def published_with(orders, **columns):
    orders.append(pa.table({"id": range(len(next(iter(columns.values())))), **columns}))
    orders.compact()
    orders.publish()
    return orders.statistics()


def test_no_bound_leaves_out_nan(orders):
    found = published_with(orders, v=[0.5, float("nan"), None], w=pa.array([1.5, 2.5, float("nan")], pa.float32()))
    assert found["minValues"] == {"id": 0}
    assert found["nullCount"] == {"id": 0, "v": 1, "w": 0}
    assert orders.by_delta("select id from t where isnan(v)").to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("text", ["𠮷", "\U0010ffff" * 3, "😀", "\u2028'\"\\\n"])
def test_delta_rs_reads_values_and_bounds_of_any_characters(by_day, text):
    """It decodes the JSON escapes of a character of every second plane to another character."""
    by_day.append([{"id": 1, "v": text}, {"id": 2, "v": "a"}], day=text)
    by_day.compact()
    by_day.publish()
    for _ in range(12):  # until there is a checkpoint
        by_day.append([{"id": 2, "v": "b"}], day=text)
        by_day.compact()
    assert list((by_day.out / "_delta_log").glob("*.checkpoint.parquet"))
    assert by_day.shown() == plain([{"id": 1, "v": text, "day": text}, {"id": 2, "v": "b", "day": text}])
    sought = text.replace("'", "''")
    assert by_day.by_delta(f"select id from t where v >= '{sought}' and day = '{sought}'")["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    "text, upper",
    [
        ("z" * 32, "z" * 32),
        ("z" * 33, "z" * 31 + "{"),
        ("a" * 31 + "\U0010ffff" + "b", "a" * 30 + "b"),
        ("\U0010ffff" * 33, None),
        ("a" * 31 + "\ud7ff" + "b", "a" * 31 + "\ue000"),
        ("é" * 40, "é" * 31 + "ê"),
    ],
)
def test_the_greatest_text_is_rounded_up_where_it_is_shortened(orders, text, upper):
    found = published_with(orders, v=[text, None])
    assert found["maxValues"].get("v") == upper
    assert found["minValues"]["v"] == text[:32]
    assert orders.by_delta(f"select id from t where v >= '{text}'").num_rows == 1


def test_a_file_of_duckdb_with_json_that_stays_as_it_is_has_bounds(orders, tmp_path):
    file = tmp_path / "events.parquet"
    duckdb.sql(f"copy (select i id, ('{{\"a\":' || i || '}}')::json v from range(1000) t(i)) to '{file}'")
    orders.catalog.append_files(T, [file])
    whole = replace(LOCAL, limits=Limits(delta_kept_bytes_min=1), target_file_bytes=file.stat().st_size)
    deltacompact.compact(T, delta_catalog_client=orders.catalog, settings=whole)
    orders.publish()
    assert orders.statistics()["minValues"] == {"id": 0, "v": '{"a":0}'}
    assert orders.by_delta("""select id from t where v = '{"a":7}'""").to_pylist() == [{"id": 7}]


def test_times_are_rounded_to_milliseconds_outwards_and_far_ones_have_no_bound(orders):
    at = datetime.datetime(2024, 1, 1, 1, 2, 3, 123_999)
    days = [datetime.date(2024, 1, 1), None]
    found = published_with(
        orders,
        naive=[at, at],
        utc=pa.array([at, at], pa.timestamp("us", "UTC")),
        day=days,
        far=pa.array([10**18, 0], pa.timestamp("us")),
        far_day=pa.array([10**7, 0], pa.date32()),
    )
    assert found["minValues"] == {
        "id": 0,
        "naive": "2024-01-01T01:02:03.123",
        "utc": "2024-01-01T01:02:03.123Z",
        "day": "2024-01-01",
    }
    assert found["maxValues"] == {
        "id": 1,
        "naive": "2024-01-01T01:02:03.124",
        "utc": "2024-01-01T01:02:03.124Z",
        "day": "2024-01-01",
    }
    sql = "select id from t where naive >= timestamp '2024-01-01 01:02:03.123999'"
    assert orders.by_delta(sql).num_rows == 2


# What happens to the stream


def test_rollback_restatement_and_all_rows_deleted_are_followed(orders):
    changed(orders)
    orders.compact()
    rollback(orders.catalog, T, "1")
    orders.catalog.publish(T)
    assert len(orders.shown()) == 20
    orders.catalog.restate(T, pa.table({"id": [1, 2]}))
    orders.catalog.publish(T)
    assert len(orders.shown()) == 20  # the former rows stay until it is compacted
    target = orders.catalog.stop_publishing(T)
    orders.catalog.publish(T, target)
    assert orders.shown() == []  # their files may be gone
    orders.compact()
    assert orders.shown() == orders.compacted() == [{"id": 1}, {"id": 2}]
    orders.append([{"id": 1}, {"id": 2}], "delete")
    orders.compact()
    assert orders.shown() == []
    assert orders.catalog.publish(T).snapshot is None


def test_what_is_declared_before_the_first_compaction_is_created_by_it(orders):
    assert orders.publish().snapshot is None
    assert not list(orders.out.rglob("*.json"))
    orders.append([{"id": 1}])
    assert orders.compact().publication.snapshot == 0
    assert orders.shown() == orders.compacted()


def test_each_version_of_a_stream_lands_in_one_commit(by_day):
    for number in range(3):
        for day in "ab":
            by_day.append([{"id": number}], day=day)
        by_day.compact()
        by_day.publish()
        by_day.publish()
    landed = [(txn["appId"], txn["version"]) for commit in range(3) for txn in by_day.actions("txn", commit)]
    assert len(by_day.commits()) == 3
    assert len(landed) == len(set(landed)) == 6
    root = f"{by_day.catalog.location}{T}/day=a"
    assert [version for application, version in landed if application == root] == [1, 2, 3]


# Readers


def test_polars_reads_what_delta_rs_gives_it(orders):
    changed(orders)
    orders.compact()
    assert sorted(pl.DataFrame(orders.by_delta("select id from t"))["id"]) == sorted(
        row["id"] for row in orders.compacted()
    )


# Targets, and what others do


def test_a_folder_with_a_line_break_is_not_published(tmp_path):
    """PyIceberg leaves the line break out, and delta-rs refuses the table."""
    table = deltacompact.open_catalog(tmp_path / "la\nke").create_table(T, primary_keys=["id"])
    table.append(pa.table({"id": [1]}))
    table.compact(settings=LOCAL)
    with pytest.raises(InputError, match=r"la\\nke/' cannot be read by other engines"):
        table.publish(f"delta://{tmp_path}/out")


@pytest.mark.parametrize("spelling", ["{}/", "file://{}", "file:{}", "file://{}/", "{}/../out"])
def test_spellings_of_a_folder_are_one_folder(orders, spelling, monkeypatch, tmp_path):
    """delta://file:/exports, as Spark writes it, was a folder named file: in the working directory."""
    monkeypatch.chdir(tmp_path)
    changed(orders)
    orders.publish()
    assert orders.catalog.publish(T, f"delta://{spelling.format(orders.out)}").snapshot is None
    assert not (tmp_path / "file:").exists()


def test_other_targets_are_refused_in_one_line(orders):
    for uri in (
        "delta://",
        "delta:///",
        "delta://s3://",
        "delta://s3://bucket",
        "delta://gs://b/t",
        "delta:///a?b",
        "delta://file://h/a",
    ):
        with pytest.raises(InputError, match="does not name a folder: delta:///PATH, or delta://s3://BUCKET/PATH"):
            orders.catalog.publish(T, uri)
    with pytest.raises(InputError, match=r"iceberg://NAME/namespace.table, or delta://PATH"):
        orders.catalog.publish(T, "hudi://x")
    assert orders.catalog.publication(T) is None


def test_a_folder_that_has_files_of_the_catalog_is_refused(orders):
    """VACUUM of Delta Lake deletes whatever it does not know in its folder."""
    orders.append([{"id": 1}])
    orders.compact()
    for folder in (orders.folder, orders.folder / T, orders.folder / T / "data", orders.folder.parent):
        with pytest.raises(InputError, match="which a VACUUM of Delta Lake would delete"):
            orders.catalog.publish(T, f"delta://{folder}")
    assert orders.catalog.publish(T, f"delta://{orders.folder}/../out/./").snapshot == 0
    assert orders.catalog.publication(T) == orders.uri


@pytest.mark.parametrize("inner", ["", "/deep"])
def test_a_folder_that_has_files_of_others_is_refused(orders, inner):
    """Such as another catalog. A publisher that died leaves its probe and vectors, another may be writing the log."""
    orders.append([{"id": 1}])
    orders.compact()
    other = deltacompact.open_catalog(f"{orders.out}{inner}")
    other.create_table("b", primary_keys=["id"])
    other.append("b", pa.table({"id": [1]}))
    with pytest.raises(InputError, match=r"VACUUM of Delta Lake would delete, such as \S+: name a new or empty folder"):
        orders.publish()
    assert orders.catalog.publication(T) is None
    assert not (orders.out / LOG).exists()
    shutil.rmtree(orders.out)
    (orders.out / LOG).mkdir(parents=True)
    (orders.out / LOG / "_staged").write_text("")
    (orders.out / ".put-if-absent").write_text("")
    (orders.out / "deletion_vector_00000000-0000-0000-0000-000000000000.bin").write_bytes(b"")
    assert orders.publish().snapshot == 0


def test_tables_of_others_are_refused(orders):
    orders.append([{"id": 1}])
    orders.compact()
    deltalake.write_deltalake(str(orders.out), pa.table({"id": [1]}))
    with pytest.raises(InputError, match="is there already and is no publication: name a new or empty folder"):
        orders.publish()
    orders.catalog.create_table("other", [], ["id"])
    orders.catalog.publish(T, f"delta://{orders.out}2")
    with pytest.raises(InputError, match="a publication needs a table of its own"):
        orders.catalog.publish("other", f"delta://{orders.out}2")


def inserted(published):
    table = deltalake.DeltaTable(str(published.out))
    deltalake.write_deltalake(table, pa.table({"id": [900], "v": [1]}), mode="append")


def optimized(published):
    """As OPTIMIZE does it (delta-rs itself fails on files outside of the table's folder)."""
    (ours,) = published.actions("add")
    published.put({"remove": ours}, {"add": ours | {"path": "part-1.parquet", "dataChange": False}})


@pytest.mark.parametrize("act", [inserted, optimized])
def test_files_that_others_add_are_named_and_nothing_is_removed(orders, act):
    """feldera#7061: an OPTIMIZE corrupts a table. Here it is seen, and no row is lost."""
    orders.append([{"id": each, "v": 0} for each in range(9)])
    orders.compact()
    orders.publish()
    before = orders.compacted()
    act(orders)
    commits = len(orders.commits())
    orders.append([{"id": 77}])
    error = orders.compact().publication.error
    assert isinstance(error, InputError)
    assert f"has files of others (file://{orders.out}/part-" in str(error)
    assert len(orders.commits()) == commits
    assert [row for row in orders.compacted() if row["id"] != 77] == before


def test_a_vector_of_somebody_else_is_named(orders):
    changed(orders)
    orders.compact()
    (added, *_) = [add for add in orders.actions("add") if "deletionVector" in add]
    orders.put({"remove": added}, {"add": {**added, "tags": {}}})
    with pytest.raises(InputError, match="has files of others"):
        orders.catalog.publish(T)


@pytest.mark.parametrize(
    "protocol, properties, words",
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {}, "has reader version 2 and writer version 5"),
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]},
            {},
            "has the feature 'rowTracking', which publications do not write",
        ),
        ({}, {"delta.columnMapping.mode": "name"}, "has column mapping"),
        ({}, {"delta.appendOnly": "true"}, "is append-only"),
    ],
)
def test_features_that_others_switch_on_are_named(orders, protocol, properties, words):
    changed(orders)
    metadata = orders.actions("metaData")[0]
    configured = {"metaData": metadata | {"configuration": metadata["configuration"] | properties}}
    orders.put(*([{"protocol": protocol}] if protocol else []), configured)
    assert words in str(orders.compact().publication.error)


def test_a_vacuum_of_delta_deletes_none_of_our_files(orders):
    changed(orders)
    orders.compact(purge=True)
    table = deltalake.DeltaTable(str(orders.out))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert orders.catalog.read(T).num_rows == 20
    assert orders.shown() == orders.compacted()
    orders.append([{"id": 5}], "delete")
    assert orders.compact().publication.error is None
    assert orders.shown() == orders.compacted()


def test_two_tables_cannot_share_a_delta_table(orders):
    changed(orders)
    orders.catalog.create_table("other", [], ["id"])
    with pytest.raises(InputError, match="a publication needs a table of its own"):
        orders.catalog.publish("other", orders.uri)


# Vacuum


def test_vacuum_keeps_what_readers_may_need_and_forgets_the_rest(orders):
    changed(orders)
    for _ in range(12):
        orders.append([{"id": 1}])
        orders.compact(purge=True)
    versions = len(orders.commits())
    files = {path.name for path in orders.folder.rglob("*.parquet")}
    vacuum(orders.catalog, T, age_min_s=4 * 86_400)
    assert len(orders.commits()) == versions
    assert {path.name for path in orders.folder.rglob("*.parquet")} == files
    vacuum(orders.catalog, T, age_min_s=0, force=True, dry_run=True)
    assert len(orders.commits()) == versions
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert len(orders.commits()) == versions - 10
    assert {path.name for path in orders.folder.rglob("*.parquet")} < files
    assert orders.shown() == orders.compacted()
    orders.append([{"id": 5}], "delete")
    orders.compact()
    assert orders.shown() == orders.compacted()
    assert len(list(orders.out.glob("deletion_vector_*"))) == 1


def test_vacuum_keeps_what_a_publication_that_is_behind_still_shows(orders, monkeypatch):
    changed(orders)
    with monkeypatch.context() as patch:
        patch.setattr("deltacompact.publication.publication.target_of", None)
        orders.compact(purge=True)
    before = orders.shown()
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert orders.shown() == before != orders.compacted()
    orders.catalog.publish(T)
    assert orders.shown() == orders.compacted()


@pytest.mark.parametrize("restated", [False, True])
def test_vacuum_of_a_table_that_was_published_before_it_was_compacted(orders, restated):
    """The published table is not there yet, and `publish` does not make it, either."""
    orders.append([{"id": 1}])
    if restated:
        orders.catalog.restate(T, pa.table({"id": [1]}))
    orders.publish()
    (orders.folder / T / "data" / f"{'0' * 32}.parquet").write_bytes(b"what a dead append left")
    (done,) = vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert len(done.deleted) == 1 + restated
    assert not orders.out.exists()
    orders.compact()
    assert orders.shown() == orders.compacted() == [{"id": 1}]


def test_vacuum_deletes_nothing_where_the_delta_table_is_gone(orders):
    changed(orders)
    orders.compact(purge=True)
    orders.out.rename(orders.out.with_name("moved"))
    files = sorted(orders.folder.rglob("*.parquet"))
    with pytest.raises(InputError, match=r"is not there: `compact` and `publish` create it from compacted rows, "):
        vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert sorted(orders.folder.rglob("*.parquet")) == files
    assert orders.catalog.publish(T).snapshot == 0
    assert orders.shown() == orders.compacted()


@pytest.mark.parametrize("days", [False, True])
def test_only_deletes_make_no_delta_table_because_no_reader_opens_one_without_columns(tmp_path, days):
    orders, day = DeltaPublications(tmp_path, ["day"] if days else []), {"day": "1"} if days else {}
    orders.append([{"id": 1}], "delete", **day)
    orders.compact()
    for publication in (orders.publish(), orders.catalog.publish(T)):
        assert (publication.snapshot, publication.awaits_columns) == (None, True)
    orders.append([{"id": 2}], "delete", **day)
    assert orders.compact().publication.awaits_columns
    assert not orders.out.exists()
    orders.append([{"id": 1, "v": "a"}], **day)
    assert orders.compact().publication.snapshot == 0
    assert orders.shown() == orders.compacted() == [{"id": 1, "v": "a"} | day]


def test_a_table_that_was_rolled_back_to_before_its_rows_makes_no_delta_table(orders):
    orders.append([{"id": 1}])
    orders.compact()
    rollback(orders.catalog, T, "0")
    assert orders.publish().awaits_columns
    assert not orders.out.exists()
    orders.append([{"id": 2}])
    assert orders.compact().publication.snapshot == 0
    assert orders.shown() == orders.compacted()


def test_the_command_line_declares_repairs_and_stops(orders, capsys):
    changed(DeltaPublications(orders.folder.parent, name="unused"))
    orders.append([{"id": 1}])
    orders.compact()
    lake, target = str(orders.folder), f"{orders.uri}2"
    assert cli.run(["publish", lake, T, "--to", target]) == 0
    assert f"{target}: version 0, 1 file added, 0 removed" in capsys.readouterr().out
    assert cli.run(["publish", lake, T]) == 0
    assert f"{target}: nothing to change" in capsys.readouterr().out
    assert cli.run(["publish", lake, T, "--stop"]) == 0
    assert f"published no more; {target} stays as it is" in capsys.readouterr().out.replace("\n", " ")
    assert cli.run(["publish", lake, T, "--to", "delta://"]) == 2
    assert "does not name a folder" in capsys.readouterr().err


def test_dead_rows_of_many_files_are_read_side_by_side(by_day, monkeypatch):
    marked_partitions(by_day)
    with monkeypatch.context() as patch:
        patch.setattr(live_bitmaps, "read_masks", meeting(live_bitmaps.read_masks))
        by_day.publish()
    assert by_day.shown() == by_day.compacted() and len(by_day.shown()) == 198
