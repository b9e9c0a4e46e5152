"""A delta table that is published as Iceberg: what PyIceberg reads there is what was compacted."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_store import CountingStore
from publications import LOCAL, WIDE, Publications, T, configure, marked_partitions, meeting, plain
from pyiceberg.catalog.sql import SqlCatalog

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    OutcomeUnknownError,
    SchemaError,
    StoreError,
)
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.catalog.mirror import mirror
from deltacompact.delta_streams.appending.stream_fit import StreamFit
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.versions import rollback, versions
from deltacompact.iceberg.commit.patience import Patience
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import CommitUnansweredError, IcebergTable
from deltacompact.index import live_bitmaps
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.publication.iceberg import files, held, target
from deltacompact.publication.iceberg.held import held_files
from deltacompact.publication.iceberg.table import ShownIcebergTable

ICEBERG = f"ns.{T}"


@pytest.fixture
def orders(lake, tmp_path, monkeypatch):
    configure(lake, monkeypatch)
    return Publications(lake, tmp_path / "dé lta%20")


@pytest.fixture
def by_day(lake, tmp_path, monkeypatch):
    configure(lake, monkeypatch)
    return Publications(lake, tmp_path / "delta", ["day"])


def test_a_kept_file_with_binaries_of_a_fixed_size_beside_others_is_refused(orders):
    """PyIceberg cannot read it: "Cannot promote fixed[4] to binary"."""
    for first, type_ in ((0, pa.binary(4)), (10, pa.binary())):
        rows = pa.table({"id": range(first, first + 10), "v": pa.array([b"abcd"] * 10, type_)})
        orders.catalog.append(T, rows)
        orders.catalog.table(T).compact(rows_per_compacted_file=10, settings=LOCAL)
    with pytest.raises(SchemaError, match=r"column 'v' is fixed_size_binary\[4\], which does not fit binary"):
        orders.publish()


def test_a_publication_has_mirrors_and_is_none(orders, tmp_path):
    """Nobody appends to it, but its changes are read."""
    orders.append([{"id": 1}, {"id": 2}])
    orders.compact()
    orders.publish()
    shown = deltacompact.open_catalog(orders.lake.catalog).table(ICEBERG)
    copy = deltacompact.open_catalog(tmp_path / "copy").create_table("copy", primary_keys=["id"])
    assert mirror(shown, copy, "m", from_="1970-01-01") == 2
    orders.append([{"id": 1}], "delete")
    orders.compact()
    assert mirror(shown, copy, "m") == 1 and copy.read().to_pylist() == [{"id": 2}]
    with pytest.raises(InputError, match="is a publication: its files belong to the delta table in"):
        mirror(copy, shown, "back", from_="1970-01-01")


def test_partitions_with_binaries_of_a_fixed_size_and_others_are_told_what_helps(by_day):
    for day, type_ in ((1, pa.binary(4)), (2, pa.binary())):
        by_day.append(pa.table({"id": [day], "v": pa.array([b"abcd"], type_)}), day=day)
    by_day.compact()
    with pytest.raises(SchemaError, match=r"in other partitions: restate them with one type \(catalog.restate\)"):
        by_day.publish()
    by_day.catalog.restate(T, pa.table({"id": [1], "v": pa.array([b"abcd"], pa.binary())}), {"day": 1})
    by_day.compact()
    by_day.publish()
    assert by_day.shown() == by_day.compacted() and len(by_day.shown()) == 2


def test_each_compaction_is_one_snapshot_with_the_compacted_files_by_reference(orders):
    orders.append([{"id": number, "v": "a"} for number in range(20)])
    orders.compact()
    first = orders.publish()
    assert (first.files_added, first.files_removed, first.deltas_left_out) == (1, 0, 0)
    (path,) = orders.files()
    (file,) = orders.catalog.state(T, orders.catalog.partitions(T)[0]).compacted.files
    assert path == f"file://{orders.folder}/{file.path}"
    orders.append([{"id": 3, "v": "b"}, {"id": 99, "v": "c"}])
    assert orders.catalog.publish(T).deltas_left_out == 1
    assert len(orders.shown()) == 20
    result = orders.compact()
    assert result.publication.snapshot is not None
    assert orders.snapshots() == 2
    assert orders.shown() == orders.compacted()
    assert len(orders.shown()) == 21


def test_a_table_that_was_published_before_it_had_columns_is_read_when_it_has_rows(orders):
    """Readers find columns of compacted files by the mapping of names, which was empty then."""
    IcebergTable.create(orders.lake.catalog, ICEBERG, pa.schema([]), (), {"format-version": "2"})
    orders.append([{"id": 1}], "delete")
    orders.compact()
    orders.publish()
    assert orders.lake.catalog.load_table(ICEBERG).schema().fields == ()
    orders.append([{"id": 1, "v": "a"}])
    orders.compact()
    assert orders.shown() == orders.compacted() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize("mode", ["rewrite", "convert", "upsert"])
def test_a_publication_is_not_compacted_by_itself(orders, mode):
    """Its files belong to the delta table, and the next publication would refuse those of somebody else."""
    orders.append([{"id": 1, "v": "a"}])
    orders.compact()
    orders.publish()
    options = {"key-columns": "id"} if mode == "upsert" else None
    catalog = deltacompact.open_catalog(orders.lake.catalog)
    with pytest.raises(InputError, match=r"'ns\.\w+' is a publication: its files belong to the delta table in file:"):
        deltacompact.compact(ICEBERG, delta_catalog_client=catalog, mode=mode, options=options)
    assert orders.snapshots() == 1


def test_dead_rows_under_deletion_vectors_are_position_deletes(orders):
    orders.append([{"id": number, "v": "a"} for number in range(100)])
    orders.compact()
    orders.publish()
    with orders.lake.catalog.load_table(ICEBERG).transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "gzip"})
    (path,) = orders.files()
    for gone in (7, 8, 9):
        orders.append([{"id": gone}], "delete")
        orders.compact()
        assert orders.files() == [path]
        (entry,) = orders.lake.state(ICEBERG).deletes
        assert entry.file.rows == gone - 6
        footer = pq.read_metadata(entry.file.path.removeprefix("file://"))
        assert footer.row_group(0).column(0).compression == "GZIP"
        assert entry.file.lower_bounds[2147483546] == entry.file.upper_bounds[2147483546] == path.encode()
        assert orders.shown() == orders.compacted()
    orders.compact(purge=True)
    assert orders.files(Content.POSITION_DELETES) == []
    assert orders.files() != [path]
    assert orders.shown() == orders.compacted()


def test_a_run_that_finds_nothing_to_change_makes_no_snapshot(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    result = orders.compact()
    assert result.sessions[0].nothing_to_do
    assert result.publication.snapshot is None
    assert orders.publish().snapshot is None
    assert orders.snapshots() == 1


def test_partitions_are_identity_partitions_and_read_where_files_lack_the_column(by_day):
    for day in ("2024/01", "a=b %2F", "", "é#?", None):
        by_day.append([{"id": 1, "v": str(day)}], day=day)
    by_day.append([{"id": 2, "day": "x"}], day="x")
    by_day.compact()
    by_day.publish()
    assert by_day.shown() == by_day.compacted()
    table = by_day.lake.catalog.load_table(ICEBERG)
    assert [str(field.transform) for field in table.spec().fields] == ["identity"]
    assert table.scan(row_filter="day = 'a=b %2F'").to_arrow()["v"].to_pylist() == ["a=b %2F"]
    assert table.scan(row_filter="day is null").to_arrow()["v"].to_pylist() == ["None"]
    by_day.append([{"id": 1}], "delete", day="")
    by_day.compact(partitions=[{"day": ""}])
    assert by_day.shown() == by_day.compacted()


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None]),
        (pa.int32(), [5, -1, None]),
        (pa.int64(), [2**40, 0, None]),
        (pa.bool_(), [True, False, None]),
    ],
)
@pytest.mark.slow
def test_a_partition_key_that_files_have_keeps_their_type(by_day, type_, values):
    for value in values:
        by_day.append(pa.table({"id": [1], "day": pa.array([value], type_)}), day=value)
    by_day.compact()
    by_day.publish()
    expected = plain([{"id": 1, "day": value} for value in values])
    assert by_day.shown() == expected
    table = by_day.lake.catalog.load_table(ICEBERG)
    found = {task.file.partition[0] for task in table.scan().plan_files()}
    assert len(found) == 3
    assert None in found


def test_a_partition_key_of_another_type_is_refused_before_anything_is_declared(by_day):
    by_day.append(pa.table({"id": [1], "day": [1.5]}), day=1.5)
    by_day.compact()
    with pytest.raises(SchemaError, match="partition key 'day' is a double in the files"):
        by_day.publish()
    assert by_day.catalog.publication(T) is None
    assert not by_day.lake.catalog.table_exists(ICEBERG)


def test_commits_delete_the_oldest_metadata_files_of_a_table_that_a_publication_created(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    table = orders.lake.catalog.load_table(ICEBERG)
    assert table.properties["write.metadata.delete-after-commit.enabled"] == "true"
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    for number in (2, 3):
        orders.append([{"id": number, f"v{number}": number}])
        orders.compact()
        held_files(orders.lake.catalog, ICEBERG, 1e12, False)
    table = orders.lake.catalog.load_table(ICEBERG)
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    there = {path.name for path in (orders.lake.folder / "warehouse").rglob("*.metadata.json")}
    assert there == {location.rpartition("/")[2] for location in named} and len(there) == 2


def test_types_are_read_as_they_were_written(orders):
    pairs = pa.array([[{"a": 1}, None], [None, {"a": 2}]], pa.list_(pa.struct([("a", pa.int64())]), 2))
    orders.append(pa.table({"id": [1, 2], "pairs": pairs, **WIDE}))
    orders.compact()
    orders.publish()
    assert orders.shown() == orders.compacted()
    bounds = orders.lake.state(ICEBERG).data[0].file
    schema = orders.lake.catalog.load_table(ICEBERG).schema()
    for name in ("millis", "seconds", "naive"):
        number = schema.find_field(name).field_id
        assert int.from_bytes(bounds.lower_bounds[number], "little") == 1704085200 * 1_000_000, name


@pytest.mark.parametrize("promised", [pa.string(), pa.uint64()])
def test_the_type_of_a_column_comes_from_rows_not_from_files_without_rows(orders, promised):
    """A file that stays must not have the column in the former type: PyIceberg would not read it any more."""
    orders.append(pa.table({"id": range(10)}))
    orders.append(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], promised)}))
    orders.catalog.table(T).compact(rows_per_compacted_file=10, settings=LOCAL)
    orders.publish()
    assert orders.lake.catalog.load_table(ICEBERG).schema().column_names == ["id"]
    assert orders.catalog.read(T).schema.field("v").type == promised
    orders.append(pa.table({"id": range(10, 20), "v": range(10)}))
    result = orders.catalog.table(T).compact(rows_per_compacted_file=10, settings=LOCAL)
    assert result.publication.error is None and result.publication.files_removed == 0
    assert orders.shown() == orders.compacted()
    assert sum(row.get("v", 0) for row in orders.shown()) == 45


def test_what_a_restatement_with_another_type_needs_is_said_and_helps(orders):
    orders.append(pa.table({"id": [1], "v": [1]}))
    orders.compact()
    orders.publish()
    orders.catalog.restate(T, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    error = orders.compact().publication.error
    remedy = "stop the publication, drop that table without purge, and publish again"
    assert str(error).endswith(f"which does not fit int64: {remedy}")
    orders.catalog.stop_publishing(T)
    orders.lake.catalog.drop_table(ICEBERG)
    orders.publish()
    assert orders.shown() == orders.compacted() != []


@pytest.mark.parametrize(("unit", "said"), [("s", "false"), ("ms", "false"), ("us", None)])
def test_no_vectorized_reader_of_spark_takes_milliseconds_for_microseconds(orders, unit, said):
    """It does, where no column is nested: 2024 became 1970."""
    orders.append(pa.table({"id": [1], "v": pa.array([1], pa.timestamp(unit))}))
    orders.compact()
    orders.publish()
    found = orders.lake.catalog.load_table(ICEBERG).properties
    assert found.get("read.parquet.vectorization.enabled") == said
    assert orders.catalog.publish(T).snapshot is None
    assert orders.shown() == orders.compacted()


def times_in(orders):
    """The types of `at` in the compacted files."""
    return {pq.read_schema(file.removeprefix("file://")).field("at").type for file in orders.catalog.compacted_files(T)}


def test_times_of_a_published_table_get_microseconds(orders):
    """A filter of Spark on Iceberg compares a file's milliseconds with microseconds, and loses all rows."""
    zone, micros = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
    values = {"s": pa.struct([("at", pa.timestamp("s"))]), "l": pa.list_(zone), "at": zone}

    def row(id_):
        return pa.table({"id": [id_], "s": [{"at": id_}], "l": [[id_]], "at": [id_]}).cast(
            pa.schema([("id", pa.int64()), *values.items()])
        )

    orders.append(row(1))
    orders.compact()
    first = orders.publish()
    assert first.coarse_files == 1 and "1 file with times in seconds or milliseconds" in str(first)
    assert times_in(orders) == {zone}
    assert orders.compact().sessions[0].nothing_to_do  # what is idle costs nothing, until a purge
    assert orders.compact(purge=True).publication.coarse_files == 0
    assert times_in(orders) == {micros}
    assert orders.compact(purge=True).sessions[0].nothing_to_do
    orders.append(row(2))
    assert orders.compact().publication.error is None
    assert times_in(orders) == {micros}
    assert orders.shown() == orders.compacted() and len(orders.shown()) == 2
    (found,) = deltacompact.check(orders.catalog, T)
    assert found.problems == ()
    assert orders.catalog.read(T).schema.field("s").type == pa.struct([("at", pa.timestamp("us"))])


def test_deltas_are_enough_for_microseconds_in_all_files(orders):
    orders.append(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("s"))}))
    orders.compact()
    orders.publish()
    orders.append(pa.table({"id": [2], "at": pa.array([2], pa.timestamp("ms"))}))
    orders.compact()
    assert times_in(orders) == {pa.timestamp("us")}
    assert orders.shown() == orders.compacted() and len(orders.shown()) == 2


def test_times_that_microseconds_do_not_hold_are_refused(orders):
    """Partitions with and without them could not be read together."""
    far = pa.table({"id": [1], "at": pa.array([2**60], pa.timestamp("ms"))})
    near = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ms"))})
    orders.append(far)
    with pytest.raises(SchemaError, match="column 'at' has a time beyond the year 9999, which Iceberg does not hold"):
        orders.publish()
    orders.compact()
    with pytest.raises(SchemaError, match=r"\(all\): column 'at' has a time beyond .*: restate the partition"):
        orders.publish()
    orders.catalog.restate(T, near)
    orders.compact()
    orders.publish()
    deep = pa.table({"id": [1], "s": pa.StructArray.from_arrays([far["at"].chunk(0)], ["at"])})
    for table in (far, deep):
        with pytest.raises(SchemaError, match=r"beyond .*, which Iceberg does not hold, and iceberg://.* shows this"):
            orders.append(table)
    orders.append(near)
    orders.compact()
    assert len(orders.catalog.read(T)) == 1


def test_times_in_a_dictionary_get_microseconds_too(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.append(pa.table({"id": [2], "at": pa.array([2], pa.timestamp("ms")).dictionary_encode()}))
    orders.compact()
    assert pa.timestamp("us") in {
        pq.read_schema(f.removeprefix("file://")).field("at").type for f in orders.catalog.compacted_files(T)[-1:]
    }
    assert orders.shown() == orders.compacted()


KEYS = [
    (pa.int8(), pa.int64(), 2**40),
    (pa.float32(), pa.float64(), 1e300),
    (pa.decimal128(5, 2), pa.decimal128(38, 2), decimal.Decimal("9" * 30)),
]


@pytest.mark.parametrize(("narrow", "wide", "key"), KEYS)
def test_keys_of_maps_may_become_wider(orders, narrow, wide, key):
    """Iceberg cannot give them another type: the publication was stuck for good."""

    def rows(id_, type_, key):
        deep = pa.struct([("m", pa.map_(type_, pa.map_(type_, pa.int8())))])
        return pa.table({"id": [id_], "v": pa.array([{"m": [(key, [(key, 7)])]}], deep)})

    orders.append(rows(1, narrow, 1))
    orders.catalog.table(T).compact(rows_per_compacted_file=1, settings=LOCAL)
    orders.publish()
    orders.append(rows(2, wide, key))
    result = orders.catalog.table(T).compact(rows_per_compacted_file=1, settings=LOCAL)
    assert result.publication.error is None and result.publication.files_removed == 0
    assert orders.shown() == orders.compacted()
    assert orders.catalog.publish(T).snapshot is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1], pa.uint64()), "column 'bad' is an uint64, and Iceberg has no unsigned integers"),
        (pa.array([1], pa.timestamp("ns")), "column 'bad' is a timestamp.ns., and Iceberg has microseconds"),
        (pa.array([0], pa.timestamp("us", "Europe/Berlin")), "in UTC or without a zone"),
        (pa.array([1], pa.duration("s")), "column 'bad' is a duration.s., which Iceberg does not have"),
        (pa.array([None], pa.null()), "no row has had a value in it yet"),
        (pa.array([{"a": 1}], pa.struct([("a", pa.uint8())])), "column 'bad', 'a' is an uint8"),
        (pa.array([1.0], pa.float16()), "column 'bad' is a halffloat"),
        (pa.array([datetime.time(1)], pa.time32("s")), "column 'bad' is a time32.s."),
    ],
)
def test_types_that_iceberg_lacks_are_refused_by_column_before_anything_is_declared(orders, values, words):
    orders.append(pa.table({"id": [1], "bad": values}))
    orders.compact()
    with pytest.raises(SchemaError, match=words):
        orders.publish()
    assert orders.catalog.publication(T) is None


def test_columns_are_added_and_widened(orders):
    orders.append(pa.table({"id": pa.array([1, 2], pa.int32()), "n": pa.array([{"a": 1}, None])}))
    orders.compact()
    orders.publish()
    orders.append(pa.table({"id": pa.array([2**40]), "w": ["new"], "n": pa.array([{"a": 1, "b": "x"}])}))
    orders.compact()
    assert orders.shown() == orders.compacted()
    orders.append([{"id": 1}], "delete")
    orders.compact()
    assert orders.shown() == orders.compacted()
    schema = orders.lake.catalog.load_table(ICEBERG).schema()
    assert str(schema.find_field("id").field_type) == "long"


def append_as_before(monkeypatch, orders, rows, **partition):
    """As a release appended them that did not ask whether the published table could show them."""
    with monkeypatch.context() as patch:
        patch.setattr(StreamFit, "check_published", lambda *_: None)
        orders.append(rows, **partition)


def test_a_type_that_iceberg_cannot_have_stops_the_publication_and_not_the_compaction(orders, caplog, monkeypatch):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    before = orders.shown()
    append_as_before(monkeypatch, orders, pa.table({"id": [2], "u": pa.array([1], pa.uint64())}))
    with caplog.at_level(logging.WARNING):
        result = orders.compact()
    assert not result.errors
    assert isinstance(result.publication.error, SchemaError)
    assert str(result.publication) in caplog.text and "does not show it: " in caplog.text
    assert orders.shown() == before
    assert orders.catalog.read(T).num_rows == 2
    assert str(result.publication.error).endswith("restate the partition without it (catalog.restate)")
    orders.catalog.restate(T, orders.catalog.read(T).drop_columns("u"))
    assert orders.compact().publication.error is None
    assert orders.shown() == orders.compacted() != before


def test_a_catalog_that_does_not_answer_never_fails_the_compaction_and_the_next_run_repairs(orders, monkeypatch):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.append([{"id": 2}])

    def silent(*_):
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", silent)
        result = orders.compact()
        assert not result.errors
        assert isinstance(result.publication.error, StoreError)
        with pytest.raises(StoreError, match="no route"):
            orders.catalog.publish(T)
    assert len(orders.shown()) == 1
    result = orders.compact()
    assert result.sessions[0].nothing_to_do
    assert result.publication.files_added == 1
    assert orders.shown() == orders.compacted()


def test_one_partition_that_cannot_be_read_does_not_keep_the_others_from_being_shown(by_day):
    for day in "ab":
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    for day in "ab":
        by_day.append([{"id": 2}], day=day)
    by_day.compact()
    by_day.catalog = by_day.opened()
    log = sorted((by_day.folder / T / "day=a" / "stream").glob("2-*/*.json"))[0]
    log.write_bytes(b"{")
    by_day.append([{"id": 3}], day="b")
    result = by_day.compact()
    assert result.publication.error is not None
    assert len([row for row in by_day.shown() if row["day"] == "b"]) == 3
    assert len([row for row in by_day.shown() if row["day"] == "a"]) == 2


@pytest.mark.parametrize("created", [False, True])
def test_a_table_that_was_dropped_is_made_again_with_all_partitions(by_day, created, monkeypatch):
    """It had those of the run alone. `created`: a run died between creating the table and its first snapshot."""
    for day in "ab":
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    by_day.lake.catalog.drop_table(ICEBERG)
    by_day.append([{"id": 2}], day="a")
    if created:
        with monkeypatch.context() as patch:
            patch.setattr(ShownIcebergTable, "show", lambda *_: 1 / 0)
            assert isinstance(by_day.compact(partitions=[{"day": "b"}]).publication.error, ZeroDivisionError)
    by_day.compact(partitions=[{"day": "a"}])
    assert by_day.shown() == by_day.compacted() and len(by_day.shown()) == 3


def test_one_partition_that_cannot_be_shown_does_not_keep_the_others_from_it(by_day, monkeypatch):
    for day in "ab":
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    append_as_before(monkeypatch, by_day, pa.table({"id": [2], "u": pa.array([1], pa.uint64())}), day="a")
    by_day.append([{"id": 2}], day="b")
    result = by_day.compact()
    assert "partition day=a: column 'u' is an uint64" in str(result.publication.error)
    assert by_day.shown() == plain([{"id": 1, "day": "a"}, {"id": 1, "day": "b"}, {"id": 2, "day": "b"}])
    by_day.append(pa.table({"id": [3], "u": pa.array([1], pa.uint64())}), day="a")  # no worse than it is


def test_a_column_that_the_published_table_cannot_show_is_refused_at_append(orders):
    orders.append(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    orders.compact()
    orders.publish()
    nanoseconds = pa.table({"id": [2], "at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(SchemaError, match=rf"column 'at' is a timestamp\[ns\], and Iceberg has .*{ICEBERG} shows this"):
        orders.append(nanoseconds)
    with pytest.raises(SchemaError, match="column 's', 'u' is an uint64"):
        orders.append(pa.table({"id": [2], "s": pa.array([{"u": 1}], pa.struct([("u", pa.uint64())]))}))
    with pytest.raises(SchemaError, match="column 'at'"):
        orders.catalog.restate(T, nanoseconds)
    orders.append(pa.table({"id": [2], "n": pa.array([1], pa.uint16()), "later": pa.nulls(1)}))  # n stays an int32
    orders.append(pa.table({"id": [3], "later": ["x"]}))
    assert orders.compact().publication.error is None
    assert orders.shown() == orders.compacted() != []
    orders.catalog.stop_publishing(T)
    orders.append(nanoseconds)


def test_a_first_publication_looks_at_deltas_that_wait(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.append(pa.table({"id": [2], "u": pa.array([1], pa.uint64())}))
    with pytest.raises(SchemaError, match="column 'u' is an uint64"):
        orders.publish()
    assert orders.catalog.publication(T) is None


def test_a_partition_key_never_becomes_wider(by_day):
    by_day.append(pa.table({"id": [1], "day": pa.array([5], pa.int32())}), day=5)
    by_day.compact()
    by_day.publish()
    by_day.append(pa.table({"id": [1], "day": pa.array([6], pa.int64())}), day=6)
    result = by_day.compact()
    assert "partition key 'day' is an int32 in the Iceberg table, and would become an int64" in str(
        result.publication.error
    )


def test_rollback_and_restatement_are_followed(orders):
    orders.append([{"id": 1, "v": 1}])
    orders.compact()
    orders.publish()
    orders.append([{"id": 1, "v": 2}, {"id": 2, "v": 2}])
    orders.compact()
    rollback(orders.catalog, T, "1")
    assert len(orders.shown()) == 2
    orders.catalog.publish(T)
    assert orders.shown() == [{"id": 1, "v": 1}]  # version 1 had a delta that was not compacted
    orders.compact()
    assert orders.shown() == orders.compacted()
    rollback(orders.catalog, T, "1")
    orders.catalog.publish(T)
    orders.catalog.restate(T, pa.table({"id": [7]}))
    assert orders.catalog.publish(T).deltas_left_out == 1
    assert orders.shown() == [{"id": 1, "v": 1}]  # until it is compacted
    orders.compact()
    assert orders.shown() == orders.compacted() == [{"id": 7}]
    rollback(orders.catalog, T, "0")
    orders.compact()
    assert orders.shown() == orders.compacted()


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


def test_a_run_over_all_partitions_lists_them_once(by_day):
    for day in ("a", "b"):
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    counted = CountingStore(by_day.catalog.store)
    by_day.catalog = DeltaStreamCatalog(counted)
    assert by_day.publish().snapshot is None
    paths = TablePaths.of(T).partitions
    assert [path for kind, path in counted.requests if kind == "list" and path.startswith(paths)] == [paths]


def test_a_partition_that_another_run_shows_after_the_list_stays(by_day, monkeypatch):
    by_day.append([{"id": 1}], day="a")
    by_day.compact()
    by_day.publish()
    by_day.append([{"id": 2}], day="a")
    show = ShownIcebergTable.show

    def second(table, wanted):
        monkeypatch.setattr(ShownIcebergTable, "show", show)
        other = by_day.opened()
        other.append(T, pa.table({"id": [3]}), {"day": "b"})
        deltacompact.compact(T, delta_catalog_client=other, settings=LOCAL)
        return show(table, wanted)

    monkeypatch.setattr(ShownIcebergTable, "show", second)
    by_day.publish()
    assert by_day.shown() == by_day.compacted()
    assert [row["day"] for row in by_day.shown()] == ["a", "a", "b"]


def test_all_rows_deleted(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.append([{"id": 1}], "delete")
    orders.compact()
    assert orders.shown() == []
    assert orders.files() == []


def test_a_destination_is_published_too(orders):
    orders.append([{"id": 1}])
    target = f"iceberg://{orders.lake.name}/ns.flat"
    deltacompact.compact(T, delta_catalog_client=orders.catalog, settings=LOCAL, destination_compacted_table_id="flat")
    orders.catalog.publish("flat", target)
    orders.append([{"id": 2}])
    result = deltacompact.compact(
        T, delta_catalog_client=orders.catalog, settings=LOCAL, destination_compacted_table_id="flat"
    )
    assert result.publication.target == target
    assert orders.lake.rows("ns.flat") == [{"id": 1}, {"id": 2}]


def test_a_partition_that_was_never_compacted_into_a_published_destination_is_left_out(by_day):
    """All job runs of such a table failed after their sessions."""
    catalog, flat = by_day.catalog, f"iceberg://{by_day.lake.name}/ns.flat"
    compact = partial(
        deltacompact.compact, T, delta_catalog_client=catalog, settings=LOCAL, destination_compacted_table_id="flat"
    )
    catalog.append(T, pa.table({"id": [1]}), {"day": "1"})
    compact()
    catalog.publish("flat", flat)
    retracted = catalog.append(T, pa.table({"id": [2]}), {"day": "2"})
    catalog.table(T).retract(retracted.position, {"day": "2"})
    catalog.append(T, pa.table({"id": [3]}), {"day": "1"})
    publication = compact().publication
    assert publication.error is None
    assert [row["id"] for row in by_day.lake.rows("ns.flat")] == [1, 3]


def test_what_is_declared_before_the_first_compaction_is_created_by_it(orders):
    orders.append([{"id": 1}])
    assert orders.publish().snapshot is None
    assert not orders.lake.catalog.table_exists(ICEBERG)
    assert orders.compact().publication.files_added == 1
    assert orders.shown() == [{"id": 1}]


@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_the_iceberg_table_is_created_with_the_first_rows_and_the_line_says_so(orders, operation):
    orders.append(pa.table({"id": pa.array([], pa.int64())}), operation)
    waiting = f"{orders.uri}: the first compacted rows will create it"
    assert str(orders.publish()) == f"{waiting}; 1 delta not compacted yet"
    orders.compact()
    assert str(orders.catalog.publish(T)) == waiting
    assert not orders.lake.catalog.table_exists(ICEBERG)
    orders.append([{"id": 1}])
    assert ": snapshot " in str(orders.compact().publication)
    assert orders.shown() == [{"id": 1}]


def test_a_table_whose_rows_have_only_partition_keys_is_shown(by_day):
    """Such rows need no other column in Iceberg."""
    flat = by_day.catalog.create_table("flat", primary_keys=["day"], partition_keys=["day"])
    flat.append(pa.table({"day": ["a", "b"]}))
    deltacompact.compact("flat", delta_catalog_client=by_day.catalog, settings=LOCAL)
    assert flat.publish(f"iceberg://{by_day.lake.name}/ns.flat").files_added == 2
    assert plain(by_day.lake.rows("ns.flat")) == [{"day": "a"}, {"day": "b"}]


def test_a_table_that_is_gone_once_it_was_created_is_named(orders, monkeypatch):
    create = IcebergTable.create

    def create_and_lose(catalog, table_id, *rest):
        create(catalog, table_id, *rest)
        orders.lake.catalog.drop_table(table_id)

    orders.append([{"id": 1}])
    orders.compact()
    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "create", create_and_lose)
        with pytest.raises(NotFoundError, match=r"has no table 'ns\.orders'"):
            orders.publish()
    orders.publish()
    assert orders.shown() == [{"id": 1}]


def test_a_long_running_process_sees_what_another_one_declared(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.opened().publish(T, orders.uri)
    orders.append([{"id": 2}])
    assert orders.compact().publication is not None
    orders.opened().stop_publishing(T)
    orders.append([{"id": 3}])
    assert orders.compact().publication is None
    assert len(orders.shown()) == 2


def test_older_code_reads_the_declaration_over(orders):
    orders.append([{"id": 1}])
    orders.compact()
    path = orders.folder / T / "table.json"
    before = json.loads(path.read_bytes())
    orders.publish()
    assert json.loads(path.read_bytes()) == before | {"publication": orders.uri, "readers": "vectors"}
    assert orders.catalog.create_table(T, (), ["id"]).keys  # the same declaration as before
    orders.catalog.stop_publishing(T)
    assert json.loads(path.read_bytes()) == before


# Iceberg tables that do not fit


def test_other_targets_are_refused_in_one_line(orders):
    orders.append([{"id": 1}])
    orders.compact()
    for uri in (
        "ns.orders",
        "iceberg://",
        "iceberg://x",
        "iceberg://x/",
        "iceberg://x/orders",
        "iceberg://x/.t",
        7,
        "iceberg://x/ns.t/",
    ):
        with pytest.raises(InputError):
            orders.catalog.publish(T, uri)
    with pytest.raises(InputError, match="is not configured"):
        orders.catalog.publish(T, "iceberg://nowhere/ns.t")
    with pytest.raises(NotFoundError, match="no namespace 'missing'"):
        orders.catalog.publish(T, f"iceberg://{orders.lake.name}/missing.t")
    with pytest.raises(InputError, match="is not published"):
        orders.catalog.publish(T)
    with pytest.raises(NotFoundError, match="'unknown' does not exist"):
        orders.catalog.publish("unknown")


def test_foreign_tables_are_refused(orders):
    orders.append([{"id": 1}])
    orders.compact()
    lake = orders.lake

    def check(words, then=lambda: None, schema=None, **others):
        lake.create(ICEBERG, schema or pa.schema([("id", pa.int64())]), **others)
        then()
        with pytest.raises(InputError, match=words):
            orders.publish()
        assert orders.catalog.publication(T) is None
        lake.catalog.drop_table(ICEBERG)

    check("has rows of its own", lambda: lake.append(ICEBERG, [{"id": 5}]))
    check("format version 1", properties={"format-version": "1"})
    check("is required", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    check("column 'id' is int64, which does not fit string", schema=pa.schema([("id", pa.string())]))
    check("shows file:///elsewhere", properties={"deltacompact.publication": "file:///elsewhere"})

    def partition():
        with lake.catalog.load_table(ICEBERG).update_spec() as spec:
            spec.add_identity("id")

    check(r"is partitioned by identity\(id\), the delta table by \[\]", partition)


def test_an_empty_table_of_the_right_shape_is_taken(orders):
    orders.append([{"id": 1, "v": "x"}])
    orders.compact()
    orders.lake.create(ICEBERG, pa.schema([("other", pa.string()), ("id", pa.int32())]))
    orders.publish()
    assert orders.shown() == [{"id": 1, "v": "x"}]


def test_files_that_others_add_later_are_named_and_nothing_is_removed(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.lake.append(ICEBERG, [{"id": 5}])
    orders.append([{"id": 2}])
    result = orders.compact()
    assert "has files of others" in str(result.publication.error)
    assert len(orders.shown()) == 2
    with pytest.raises(InputError, match="has files of others"):
        orders.catalog.publish(T)


def test_two_tables_cannot_share_an_iceberg_table(orders):
    for name in (T, "second"):
        orders.catalog.create_table(name, (), ["id"])
        orders.catalog.append(name, pa.table({"id": [1]}))
        deltacompact.compact(name, delta_catalog_client=orders.catalog, settings=LOCAL)
    orders.publish()
    with pytest.raises(InputError, match="a publication needs a table of its own: name another one"):
        orders.catalog.publish("second", orders.uri)
    with pytest.raises(InputError, match="stop that first"):
        orders.catalog.publish(T, f"iceberg://{orders.lake.name}/ns.elsewhere")


@pytest.mark.parametrize("content_type", ["orc", "csv", "feather"])
def test_other_formats_are_refused(orders, content_type):
    orders.append([{"id": 1}])
    orders.compact(compacted_file_content_type=content_type)
    with pytest.raises(InputError, match="Iceberg readers want Parquet"):
        orders.publish()


def test_other_formats_are_refused_once_it_is_published(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    with pytest.raises(InputError, match="is published: compacted files must be Parquet, not ORC"):
        orders.compact(compacted_file_content_type="orc")


@pytest.mark.slow
def test_delta_files_with_field_ids_of_another_table_never_stay(orders, tmp_path):
    """Readers would follow the ids and not the names."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "2"}),
            pa.field("v", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        ]
    )
    size = 2_000_000
    rows = pa.table([range(size), [0] * size], schema=schema)
    for name in ("before", "after"):
        pq.write_table(rows, tmp_path / f"{name}.parquet", compression="none")
    orders.catalog.append_files(T, [tmp_path / "before.parquet"])
    settings = deltacompact.Settings(executor="local", limits=deltacompact.base.limits.Limits(delta_kept_bytes_min=1))
    kept = deltacompact.compact(T, delta_catalog_client=orders.catalog, settings=settings)
    assert kept.sessions[0].files_kept == 1
    with pytest.raises(SchemaError, match="column 'id' has a field id of another table"):
        orders.publish()
    assert orders.catalog.publication(T) is None
    orders.catalog.restate(T, pa.table({"id": [1], "v": [5]}))
    orders.compact()
    orders.publish()
    orders.catalog.append_files(T, [tmp_path / "after.parquet"])
    result = deltacompact.compact(T, delta_catalog_client=orders.catalog, settings=settings)
    assert result.publication.error is None
    assert result.sessions[0].files_kept == 0
    assert orders.lake.catalog.load_table(ICEBERG).scan(row_filter="id = 1999999").to_arrow().to_pylist() == [
        {"id": 1999999, "v": 0}
    ]


# Vacuum


def test_vacuum_keeps_what_retained_snapshots_show_and_expires_the_others(orders):
    orders.append([{"id": number} for number in range(10)])
    orders.compact()
    orders.publish()
    first = orders.files()
    table = orders.lake.catalog.load_table(ICEBERG)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "audit").commit()
    for round_ in range(3):
        orders.append([{"id": 100 + round_}])
        orders.append([{"id": round_}], "delete")
        orders.compact(purge=True)
    live = orders.files()
    assert orders.snapshots() == 4
    (dry,) = vacuum(orders.catalog, T, age_min_s=0, force=True, dry_run=True)
    assert orders.snapshots() == 4
    (done,) = vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert [stat.path for stat in dry.deleted] == [stat.path for stat in done.deleted]
    assert done.deleted
    assert orders.snapshots() == 2
    assert orders.shown() == orders.compacted()
    assert len(orders.lake.catalog.load_table(ICEBERG).scan(snapshot_id=tagged(orders, "audit")).to_arrow()) == 10
    on_disk = {f"file://{path}" for path in (orders.folder / T / "data").rglob("*.parquet")}
    assert on_disk >= {*first, *live}
    held = [f"file://{orders.folder}/{stat.path}" for stat in done.held]
    assert set(held) == set(first) and not done.waiting, "none is too young"
    table = orders.lake.catalog.load_table(ICEBERG)
    table.manage_snapshots().remove_tag("audit").commit()
    (done,) = vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert {f"file://{orders.folder}/{stat.path}" for stat in done.deleted if "/data/" in stat.path} == set(first)
    metadata = list((orders.lake.folder / "warehouse").rglob("*-m*.avro"))
    assert len(metadata) == len({manifest.path for manifest in orders.lake.state(ICEBERG).manifests})


def test_vacuum_keeps_the_snapshot_that_was_shown_until_just_now(orders):
    """Its age counted from its commit, so that the files of readers that had just begun were deleted."""
    orders.append([{"id": number} for number in range(10)])
    orders.compact()
    orders.publish()
    for number in range(2):
        orders.append([{"id": number}], "delete")
        orders.compact(purge=True)
    first, replaced, shown = orders.lake.catalog.load_table(ICEBERG).metadata.snapshots
    assert first.timestamp_ms < replaced.timestamp_ms < shown.timestamp_ms
    for dry_run in (True, False):
        held_files(orders.lake.catalog, ICEBERG, shown.timestamp_ms / 1000, dry_run)
    assert orders.snapshots() == 2
    assert len(orders.lake.catalog.load_table(ICEBERG).scan(snapshot_id=replaced.snapshot_id).to_arrow()) == 9


def test_vacuum_finds_out_that_a_catalog_dropped_a_new_tag_and_deletes_nothing(orders):
    """A REST server cannot be asked whether a tag is new: it removes the tag with its snapshot."""
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact(purge=True)
        orders.publish()
    table = orders.lake.catalog.load_table(ICEBERG)
    first = table.metadata.snapshots[0].snapshot_id

    class LikeRest(SqlCatalog):
        def commit_table(self, table, requirements, updates):
            orders.lake.catalog.load_table(ICEBERG).manage_snapshots().create_tag(first, "audit").commit()
            known = tuple(requirement for requirement in requirements if requirement.type.startswith("assert-"))
            return super().commit_table(table, known, updates)

    catalog = LikeRest(orders.lake.name, uri=f"sqlite:///{orders.lake.database}", warehouse=orders.lake.warehouse)
    before = set(Path(orders.lake.folder).rglob("*.avro"))
    with pytest.raises(ConflictError, match=r"'audit' of snapshot \d+ was made while the snapshot expired"):
        held_files(catalog, ICEBERG, time.time() + 60, dry_run=False)
    assert set(Path(orders.lake.folder).rglob("*.avro")) == before


def test_vacuum_keeps_what_another_pointer_to_the_iceberg_table_has_and_names_its_file(orders, caplog):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    other = SqlCatalog("other", uri=f"sqlite:///{orders.lake.folder}/other.db", warehouse=orders.lake.warehouse)
    other.create_namespace("ns")
    theirs = other.register_table(ICEBERG, orders.lake.catalog.load_table(ICEBERG).metadata_location)
    theirs.manage_snapshots().create_tag(theirs.current_snapshot().snapshot_id, "audit").commit()
    orders.append([{"id": 1, "v": 1}])
    orders.compact(purge=True)
    for dry_run in (True, False):
        vacuum(orders.catalog, T, age_min_s=0, force=True, dry_run=dry_run)
    assert not caplog.text, "no snapshot is the other pointer's alone"
    vacuum(orders.catalog, T, age_min_s=0, force=True, full=True)
    location = other.load_table(ICEBERG).metadata_location
    assert f"ns.{T}: the files of snapshots in {location} stay" in caplog.text
    assert orders.snapshots() == 1
    assert other.load_table(ICEBERG).scan().to_arrow().to_pylist() == [{"id": 1}]
    with pytest.raises(InputError, match="registered twice"):
        held_files(other, ICEBERG, 0, dry_run=False)


def test_vacuum_reads_snapshots_side_by_side_and_each_once(orders, monkeypatch):
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact()
        orders.publish()
    table = IcebergTable.load(orders.lake.catalog, ICEBERG)
    snapshots = [*table.metadata.snapshots.values()]
    assert len(snapshots) == 2
    monkeypatch.setattr(held.manifests, "read_manifest_list", meeting(held.manifests.read_manifest_list))
    of_both = held._SnapshotFiles(table).of([*snapshots, *snapshots])
    assert {snapshot.manifest_list for snapshot in snapshots} < of_both.own and len(of_both.data) == 2


def tagged(orders, name):
    return orders.lake.catalog.load_table(ICEBERG).metadata.refs[name].snapshot_id


def test_vacuum_keeps_what_a_publication_that_is_behind_still_shows(orders, monkeypatch):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.append([{"id": 1, "v": 1}])
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lambda *_: (_ for _ in ()).throw(OSError("down")))
        assert orders.compact(purge=True).publication.error is not None
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert orders.shown() == [{"id": 1}]
    orders.compact()
    assert orders.shown() == [{"id": 1, "v": 1}]


def test_vacuum_keeps_what_is_published_though_the_lake_is_opened_by_another_name(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    table = orders.lake.catalog.load_table(ICEBERG)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "audit").commit()
    orders.append([{"id": 1, "v": 1}])
    orders.compact(purge=True)
    link = orders.folder.parent / "other name"
    link.symlink_to(orders.folder)
    vacuum(deltacompact.open_catalog(link), T, age_min_s=0, force=True)
    tag = tagged(orders, "audit")
    assert orders.lake.catalog.load_table(ICEBERG).scan(snapshot_id=tag).to_arrow().to_pylist() == [{"id": 1}]


def test_vacuum_deletes_nothing_where_the_iceberg_table_cannot_be_read(orders, monkeypatch):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    orders.append([{"id": 2}])
    orders.compact(purge=True)
    before = sorted((orders.folder / T).rglob("*.parquet"))

    def silent(*_):
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", silent)
        with pytest.raises(StoreError, match="no route"):
            vacuum(orders.catalog, T, age_min_s=0, force=True)
    orders.lake.catalog.drop_table(ICEBERG)
    with pytest.raises(InputError, match="`compact` and `publish` create it from compacted rows"):
        vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert sorted((orders.folder / T).rglob("*.parquet")) == before
    orders.catalog.stop_publishing(T)
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert len(sorted((orders.folder / T).rglob("*.parquet"))) < len(before)
    assert versions(orders.catalog, T, orders.catalog.partitions(T)[0])[-1].retained


def test_the_command_vacuum_looks_at_the_iceberg_table_once_for_all_partitions(by_day, monkeypatch, capsys):
    for day in "abc":
        by_day.append([{"id": 1}], day=day)
    by_day.compact()
    by_day.publish()
    for day in "abc":
        by_day.append([{"id": 1, "v": 1}], day=day)
    by_day.compact(purge=True)
    looks = []

    def counted(*arguments):
        looks.append(arguments)
        return held_files(*arguments)

    monkeypatch.setattr(target, "held_files", counted)
    assert cli.run(["vacuum", str(by_day.folder), T, "--older-than-hours", "0", "--force"]) == 0
    assert len(looks) == 1
    assert by_day.snapshots() == 1
    assert len(list(by_day.folder.rglob("*/data/*/*.parquet"))) == 3
    assert by_day.shown() == by_day.compacted()


def test_other_engines_may_not_delete_the_streams_files(orders):
    orders.append([{"id": 1}])
    orders.compact()
    orders.publish()
    assert orders.lake.catalog.load_table(ICEBERG).properties["gc.enabled"] == "false"


@pytest.mark.parametrize("answer", ["a compaction came first", "sent twice, and 409", "lost"])
def test_a_vacuum_whose_expiry_is_refused_or_not_answered_goes_on(orders, monkeypatch, answer):
    """It failed, and the metadata files of the snapshots that it had expired stayed for ever."""
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact()
        orders.publish()
    expire, asked = IcebergTable.expire, []

    def refused(*arguments):
        asked.append(arguments)
        if len(asked) > 1:
            return expire(*arguments)
        if answer == "a compaction came first":
            orders.append([{"id": 2}])
            orders.compact()
            return expire(*arguments)
        expire(*arguments)
        raise (CommitUnansweredError if answer == "lost" else ConflictError)(answer)

    monkeypatch.setattr(IcebergTable, "expire", refused)
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert len(asked) == (2 if answer == "a compaction came first" else 1)
    table = orders.lake.catalog.load_table(ICEBERG)
    assert len(table.metadata.snapshots) == (2 if answer == "a compaction came first" else 1)  # shown until just now
    named = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    named |= {each.manifest_path for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)}
    assert {path.as_uri() for path in Path(orders.lake.folder, "warehouse").rglob("*.avro")} == named
    assert orders.shown() == orders.compacted()


def test_a_vacuum_whose_expiry_is_never_answered_deletes_nothing(orders, monkeypatch):
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact()
        orders.publish()
    before = set(Path(orders.lake.folder).rglob("*.*"))

    def silent(*arguments):
        raise CommitUnansweredError("504")

    monkeypatch.setattr(IcebergTable, "expire", silent)
    monkeypatch.setattr(Patience, "wait_s", lambda *_: 0.0)
    with pytest.raises(OutcomeUnknownError, match=r"did not say whether snapshots were expired.*deleted \(504\)"):
        vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert set(Path(orders.lake.folder).rglob("*.*")) == before


def test_what_a_failed_vacuum_leaves_in_the_iceberg_tables_folder_is_an_orphan(orders, monkeypatch):
    """It stayed for ever: the vacuum knows only files of snapshots, and maintain deleted nothing without gc.enabled."""
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact()
        orders.publish()
    folder = Path(orders.lake.folder, "warehouse")
    before = set(folder.rglob("*.avro"))

    def refuses(store, paths):
        raise StoreError("S3 answered 503")

    with monkeypatch.context() as patch:
        patch.setattr(held.locations, "discard_all", refuses)
        with pytest.raises(StoreError):
            vacuum(orders.catalog, T, age_min_s=0, force=True)
    vacuum(orders.catalog, T, age_min_s=0, force=True)
    assert set(folder.rglob("*.avro")) == before and orders.snapshots() == 1
    table = deltacompact.open_catalog(orders.lake.catalog).table(ICEBERG)
    now = {"older-than": "0m", "allow-younger-than-24h": True}
    with pytest.raises(InputError, match=r"has gc\.enabled=false"):
        table.maintain(expire_snapshots=True, remove_orphans=True, options=now)
    assert table.maintain(remove_orphans=True, options=now).remove_orphans.files > 0
    state = orders.lake.state(ICEBERG)
    kept = {state.snapshot.manifest_list, *(manifest.path for manifest in state.manifests)}
    assert {path.as_uri() for path in folder.rglob("*.avro")} == kept
    assert orders.shown() == orders.compacted()


def test_the_streams_own_files_are_no_orphans(orders):
    for number in range(2):
        orders.append([{"id": number}])
        orders.compact()
        orders.publish()
    catalog, stream = deltacompact.open_catalog(orders.lake.catalog), orders.folder / T
    orders.lake.create("ns.other", pa.schema([("id", pa.int64())]))
    before = sorted(stream.rglob("*"))
    for table_id in (ICEBERG, "ns.other"):
        for folder in (stream, next(stream.rglob("*.parquet")).parent):
            options = {"location": str(folder), "older-than": "0m", "allow-younger-than-24h": True}
            with pytest.raises(InputError, match=r"(delta|sign of another) table"):
                catalog.table(table_id).maintain(remove_orphans=True, options=options)
    assert sorted(stream.rglob("*")) == before


# The command line


def test_the_command_line_declares_repairs_and_stops(orders, capsys):
    where = str(orders.folder)

    def said(*arguments, status=0):
        assert cli.run(["publish", where, T, *arguments]) == status
        return capsys.readouterr()

    orders.append([{"id": 1}])
    orders.compact()
    assert ": snapshot " in said("--to", orders.uri).out
    assert "nothing to change" in said().out
    assert json.loads(said("--json").out)["target"] == orders.uri
    orders.append([{"id": 2}])
    assert cli.run(["compact", where, T, "--executor", "local", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["publication"]["files_added"] >= 1
    assert "not compacted yet" not in said().out
    assert cli.run(["show", where, T]) == 0
    assert f"published to {orders.uri}" in capsys.readouterr().out
    assert "stop that first (publish --stop)" in said("--to", "iceberg://x/y.z", status=2).err
    assert "--stop is for the table as a whole" in said("--stop", "--to", orders.uri, status=2).err
    assert "published no more" in said("--stop").out
    assert "nothing to do" in said("--stop").out
    assert "latest.txt" in said().out  # lists of files again


def test_dead_rows_of_many_files_are_read_and_written_side_by_side(by_day, monkeypatch):
    """One after another, each would wait for the store."""
    marked_partitions(by_day)
    with monkeypatch.context() as patch:
        patch.setattr(live_bitmaps, "read_masks", meeting(live_bitmaps.read_masks))
        patch.setattr(files, "write_positions", meeting(files.write_positions))
        by_day.publish()
    assert len(by_day.files(Content.POSITION_DELETES)) == 2
    assert by_day.shown() == by_day.compacted() and len(by_day.shown()) == 198
