"""Mirrors that are Iceberg tables: data files and equality deletes in one snapshot, each batch once.

source      upsert 1 mon, 2 mon · upsert 1 tue · delete 2
mirror      day=mon: deletes 1, 2      day=tue: a file with 1
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import uuid

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake
from publications import configure
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType, UUIDType

import deltacompact
from deltacompact import ConflictError, InputError, SchemaError, Settings, cli
from deltacompact.catalog.mirror import mirror
from deltacompact.catalog.mirror_sources import source_of
from deltacompact.delta_streams.appending.appender import Appender
from deltacompact.delta_streams.log import tokens
from deltacompact.iceberg import row_deltas
from deltacompact.iceberg.table.content_files import Content

M = "ns.m"
LOCAL = Settings(executor="local", local_threads=1)
FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", StringType()),
    NestedField(3, "x", DoubleType()),
)
COLUMNS = Schema(*FIELDS, identifier_field_ids=[1])
SPECS = {
    "whole": PartitionSpec(),
    "by key": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket")),
    "by bucket of day": PartitionSpec(PartitionField(2, 1000, BucketTransform(1), "day_bucket")),
    "by day": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")),
}
BEGIN = {"from_": "1999-01-01"}
ROWS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("x", pa.float64())])


@pytest.fixture
def source(tmp_path):
    return deltacompact.open_catalog(tmp_path / "streams").create_table("s", primary_keys=["id"])


def put(source, *rows):
    source.append(pa.Table.from_pylist([{"id": key, "day": day, "x": x} for key, day, x in rows], schema=ROWS))


def gone(source, *keys):
    source.append(pa.table({"id": list(keys)}), operation="delete")


def target(lake, spec="whole", version=2, schema=COLUMNS):
    lake.create(M, schema, version, partition_spec=SPECS[spec])
    return deltacompact.open_catalog(lake.catalog).table(M)


def rows(table):
    return sorted((row["id"], row["day"], str(row["x"])) for row in table.read().to_pylist())


class Dies(Exception):
    pass


@contextlib.contextmanager
def dying(source):
    """The run ends between the commit of the mirror and that of the bookmark."""
    of, commit = type(source_of(source)), type(source_of(source)).commit

    def dies(*_):
        raise Dies

    of.commit = dies
    try:
        with pytest.raises(Dies):
            yield
    finally:
        of.commit = commit


keys, days = st.integers(0, 5), st.sampled_from(["mon", "tue", "a/b=c", None])
changes = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(keys, days, st.sampled_from([0.5, math.nan, None])), min_size=1)),
    st.tuples(st.just("gone"), st.lists(keys, min_size=1, max_size=3)),
)
steps = st.one_of(changes, changes, st.tuples(st.sampled_from(["mirror", "dies", "repartition", "convert"]), st.none()))


@pytest.mark.slow
@settings(max_examples=examples(40))
@example("by key", 2, [("put", [(0, "mon", 0.5)]), ("mirror", None), ("gone", [0])])
@given(st.sampled_from(list(SPECS)), st.sampled_from([2, 3]), st.lists(steps, max_size=12))
def test_whatever_happens_the_mirror_has_the_rows_of_its_source(tmp_path_factory, spec, version, history):
    folder = tmp_path_factory.mktemp("mirrored")
    source = deltacompact.open_catalog(folder / "streams").create_table("s", primary_keys=["id"])
    put(source, (0, "mon", 1.0))
    lake = Lake(folder, f"l{folder.name}")
    into, names = target(lake, spec, version), itertools.count(3)
    for what, with_what in [*history, ("mirror", None)]:
        if what == "put":
            put(source, *{key: (key, day, x) for key, day, x in with_what}.values())
        elif what == "gone":
            gone(source, *set(with_what))
        elif what == "repartition" and version == 2:
            with lake.catalog.load_table(M).update_spec() as update:
                number = next(names)
                update.add_field("id", BucketTransform(number), f"bucket_{number}")
        elif what == "convert":
            into.compact("convert", {"max-files-to-convert": 100}, settings=LOCAL)
        elif what == "dies" and source.changes(bookmark="b", **BEGIN).read_all().num_rows:
            with dying(source):
                mirror(source, into, "b", **BEGIN)
        if what == "mirror":
            mirror(source, into, "b", **BEGIN)
            mirror(source, into, "b", **BEGIN)
            assert rows(into) == rows(source)
    into.compact("rewrite", {"rewrite-all": True, "delete-file-threshold": 1}, settings=LOCAL)
    assert rows(into) == rows(source)


def test_a_batch_is_one_snapshot_and_a_first_one_has_no_deletes(source, lake):
    put(source, (1, "mon", 1.0), (2, "mon", 2.0))
    into = target(lake)
    assert mirror(source, into, "b", **BEGIN) == 2
    put(source, (2, "mon", 3.0))
    gone(source, 1)
    assert mirror(source, into, "b") == 2
    assert [made.operation for made in into.history()] == ["append", "overwrite"]
    state = lake.state(M)
    (deletes,) = [entry.file for entry in state.deletes]
    assert deletes.equality_ids == (1,) and deletes.rows == 2 and deletes.content is Content.EQUALITY_DELETES
    assert deletes.lower_bounds.keys() == deletes.upper_bounds.keys() == {1}
    assert rows(into) == [(2, "mon", "3.0")]
    gone(source, 2)
    assert mirror(source, into, "b") == 1 and rows(into) == []
    assert into.history()[-1].operation == "delete"


def test_a_batch_whose_snapshot_was_expired_changes_nothing_when_it_is_repeated(source, lake):
    put(source, (1, "mon", 1.0), (2, "mon", 2.0))
    into = target(lake)
    mirror(source, into, "b", **BEGIN)
    put(source, (2, "tue", 3.0), (3, "tue", 3.0))
    gone(source, 1)
    with dying(source):
        mirror(source, into, "b")
    lake.append(M, [])  # another head
    into.maintain(expire_snapshots=True, options={"older-than": "0s", "retain-last": 1})
    assert len(into.history()) == 1
    mirror(source, into, "b")
    assert rows(into) == rows(source) == [(2, "tue", "3.0"), (3, "tue", "3.0")]


@pytest.mark.parametrize("kind", ["stream", "branch"])
def test_a_run_that_sleeps_until_its_batch_is_forgotten_brings_no_old_row_back(
    source, lake, tmp_path, monkeypatch, kind
):
    """Others have mirrored the batch and the next one meanwhile, and the mirror knows the token no longer."""
    if kind == "branch":
        into, place, name = target(lake), row_deltas._RowDeltaWriter, "write"
    else:
        into = deltacompact.open_catalog(tmp_path / "mirror").create_table(M, primary_keys=["id"])
        place, name = Appender, "append"
    put(source, (1, "mon", 1.0))
    mirror(source, into, "b", **BEGIN)
    put(source, (1, "mon", 2.0))
    awake, once = getattr(place, name), iter([True])

    def sleeps(*arguments, **options):
        if next(once, None):
            mirror(source, into, "b")
            put(source, (1, "mon", 3.0))
            mirror(source, into, "b")
            if kind == "branch":
                assert into.maintain(expire_snapshots=True, options={"older-than": "0s"}).expire_snapshots.snapshots
            for _ in range(2 if kind == "stream" else 0):
                into.compact(settings=LOCAL)
                into.append(pa.table({"id": [9]}), operation="delete")
        return awake(*arguments, **options)

    monkeypatch.setattr(tokens, "TOKEN_RETENTION_S", 0)
    monkeypatch.setattr(place, name, sleeps)
    with pytest.raises(ConflictError, match="another consumer has moved bookmark 'b'"):
        mirror(source, into, "b")
    assert rows(into) == [(1, "mon", "3.0")]


def test_a_row_that_another_writer_added_meanwhile_is_replaced_in_the_next_run(source, lake, monkeypatch):
    from deltacompact.iceberg import row_deltas

    put(source, (1, "mon", 1.0))
    into, written = target(lake), row_deltas._RowDeltaWriter.write

    def meanwhile(self, *batch):
        written(self, *batch)
        lake.append(M, pa.Table.from_pylist([{"id": 1, "day": "old", "x": None}], schema=COLUMNS.as_arrow()))

    with monkeypatch.context() as patched:
        patched.setattr(row_deltas._RowDeltaWriter, "write", meanwhile)
        with pytest.raises(ConflictError, match="another writer added rows of partition spec 0"):
            mirror(source, into, "b", **BEGIN)
    files = {entry.file.path for entry in lake.state(M).data}
    assert len(list((lake.folder / "warehouse").rglob("data/*.parquet"))) == len(files), "its files are gone"
    mirror(source, into, "b")
    assert rows(into) == [(1, "mon", "1.0")]


def test_a_spec_that_no_file_has_any_more_may_lose_its_column(source, lake):
    """The mirror was refused for ever: a table keeps all its specs."""
    into = target(lake, "by day")
    old = pa.Table.from_pylist([{"id": 1, "day": "mon", "x": 1.0}], schema=ROWS)
    lake.append(M, old.cast(pa.schema([ROWS.field("id").with_nullable(False), ROWS.field("day"), ROWS.field("x")])))
    with lake.catalog.load_table(M).update_spec() as update:
        update.remove_field("day")
    lake.rewrite(M, rewrite_all=True, output_spec_id=lake.state(M).metadata.default_spec_id)
    with lake.catalog.load_table(M).update_schema() as update:
        update.delete_column("day")
    put(source, (1, "mon", 5.0), (2, "mon", 2.0))
    mirror(source, into, "b", columns=["id", "x"], **BEGIN)
    gone(source, 2)
    mirror(source, into, "b", columns=["id", "x"])
    assert into.read().to_pylist() == [{"id": 1, "x": 5.0}]


def test_fields_of_structs_keep_their_ids_and_wider_types_take_narrow_values(tmp_path, lake):
    place = StructType(NestedField(4, "town", StringType()), NestedField(5, "zip", LongType()))
    into = target(lake, schema=Schema(FIELDS[0], NestedField(3, "place", place), identifier_field_ids=[1]))
    source = deltacompact.open_catalog(tmp_path / "streams").create_table("s", primary_keys=["id"])
    narrow = pa.struct([("town", pa.string()), ("zip", pa.int32())])
    source.append(pa.table({"id": pa.array([1], pa.int32()), "place": pa.array([{"town": "a", "zip": 7}], narrow)}))
    mirror(source, into, "b", **BEGIN)
    assert into.read().to_pylist() == [{"id": 1, "place": {"town": "a", "zip": 7}}] == lake.rows(M)
    (file,) = [entry.file for entry in lake.state(M).data]
    assert file.value_counts.keys() == {1, 3, 4}  # as the catalog numbers them


@pytest.mark.parametrize(
    ("schema", "row", "error", "said"),
    [
        (Schema(*FIELDS), {"id": 1}, InputError, "names no identifier fields"),
        (Schema(*FIELDS, identifier_field_ids=[1]), {"id": 1, "y": 2}, InputError, "has no column 'y': add it there"),
        (Schema(*FIELDS, identifier_field_ids=[1]), {"id": 1, "x": "text"}, SchemaError, "column 'x' does not fit"),
        (
            Schema(*FIELDS, NestedField(4, "must", LongType(), required=True), identifier_field_ids=[1]),
            {"id": 1},
            InputError,
            "needs a value in column 'must', which the rows lack",
        ),
        (
            Schema(*FIELDS, NestedField(4, "must", LongType(), required=True), identifier_field_ids=[1]),
            {"id": 1, "must": None},
            (InputError, SchemaError),
            "must",
        ),
    ],
)
def test_what_cannot_be_mirrored_is_named_and_nothing_is_written(source, lake, schema, row, error, said):
    source.append(pa.Table.from_pylist([row]))
    into = target(lake, schema=schema)
    with pytest.raises(error, match=said):
        mirror(source, into, "b", **BEGIN)
    assert into.history() == [] and not list((lake.folder / "warehouse").rglob("data/*.parquet"))


def test_columns_that_the_source_lacks_get_their_write_default(source, lake):
    """An initial default stands in older rows, a write default in those that come without the column."""
    with_defaults = target(lake, version=3)
    put(source, (1, "mon", 1.0))
    mirror(source, with_defaults, "b", **BEGIN)
    schema = json.loads(lake.catalog.load_table(M).schema().model_dump_json())
    defaults = {"initial-default": 5, "write-default": 7}
    new = [
        {"id": 4, "name": "size", "required": False, "type": "long", **defaults},
        {"id": 5, "name": "must", "required": True, "type": "int", **defaults},
        {"id": 6, "name": "plain", "required": False, "type": "int"},
    ]
    added = schema | {"schema-id": 1, "fields": [*schema["fields"], *new]}
    lake.edit_metadata(M, {"schemas": [schema, added], "current-schema-id": 1, "last-column-id": 6})
    put(source, (2, "tue", 2.0))
    assert mirror(source, with_defaults, "b", **BEGIN)
    found = {row["id"]: (row["size"], row["must"], row["plain"]) for row in with_defaults.read().to_pylist()}
    assert found == {1: (5, 5, None), 2: (7, 7, None)}


def test_a_table_of_version_1_is_refused(source, lake):
    put(source, (1, "mon", 1.0))
    lake.create(M, COLUMNS, 1)
    with pytest.raises(InputError, match="has format version 1, in which no row can be deleted: upgrade it to 2"):
        mirror(source, deltacompact.open_catalog(lake.catalog).table(M), "b", **BEGIN)


def test_an_iceberg_table_is_mirrored_to_another_on_the_command_line(tmp_path, monkeypatch, capsys):
    lake = Lake(tmp_path, "both")
    configure(lake, monkeypatch)
    lake.create("ns.t", COLUMNS, partition_spec=SPECS["by day"])
    into = target(lake, "by day")
    lake.append("ns.t", [{"id": 1, "day": "mon", "x": 1.0}, {"id": 2, "day": "mon", "x": 2.0}])
    words = ["changes", "iceberg://both", "ns.t", "--bookmark", "b", "--into", "iceberg://both", M]
    assert cli.run([*words, "--from", "1999-01-01"]) == 0
    assert capsys.readouterr().out == "2 changes of ns.t in ns.m\n"
    lake.delete_by_key("ns.t", {"id": [1]}, ("mon",))
    lake.append("ns.t", [{"id": 1, "day": "tue", "x": 3.0}])
    assert cli.run(words) == 0 and rows(into) == [(1, "tue", "3.0"), (2, "mon", "2.0")]


@pytest.mark.parametrize("where", [None, "day <> 'tue'"])
def test_a_row_that_moved_in_an_iceberg_table_by_two_batches_stays_in_its_mirror(lake, where):
    """Its insert was in the first, its delete in the second."""
    lake.create("ns.t", COLUMNS, partition_spec=SPECS["by day"])
    source, into = deltacompact.open_catalog(lake.catalog).table("ns.t"), target(lake)
    for day in ("mon", "tue"):
        lake.append("ns.t", [{"id": 1, "day": day, "x": 1.0}])
        mirror(source, into, "b", where=where, **BEGIN)
    lake.delete_by_key("ns.t", {"id": [1]}, ("mon",))
    mirror(source, into, "b", where=where)
    assert rows(source) == [(1, "tue", "1.0")] and rows(into) == ([] if where else rows(source))


def test_a_row_that_moves_inside_of_a_partition_of_its_mirror_stays_there(tmp_path, lake):
    """An equality delete names the identifier alone: a delete of mon took the row of tue, of the same bucket."""
    source = deltacompact.open_catalog(tmp_path / "streams").create_table("s", ["day"], ["id"])
    into = target(lake, "by bucket of day")
    for day in ("mon", "tue"):
        source.append(pa.table({"id": [1], "day": [day], "x": [1.0]}), {"day": day})
        assert mirror(source, into, "b", **BEGIN) == 1
    source.append(pa.table({"id": [1]}), {"day": "mon"}, "delete")
    assert mirror(source, into, "b") == 2
    assert rows(into) == rows(source) == [(1, "tue", "1.0")]
    for day in ("mon", "wed"):
        source.append(pa.table({"id": [2], "day": [day], "x": [1.0]}), {"day": day})
    with pytest.raises(InputError, match=r"^key id=2, day='mon' of 'ns.m' is that of several rows of 's'"):
        mirror(source, into, "b")


@pytest.mark.parametrize("version", [2, 3])
def test_spark_reads_a_mirror(source, spark_lake, version):
    put(source, (1, "mon", 1.0), (2, "mon", 2.0), (3, None, None))
    into = target(spark_lake.lake, "by day", version)
    mirror(source, into, "b", **BEGIN)
    put(source, (2, "tue", 4.0), (4, "tue", math.nan))
    gone(source, 3)
    mirror(source, into, "b")
    found = sorted((row[0], row[1], str(row[2])) for row in spark_lake.sql("select id, day, x from {ns.m}").collect())
    assert found == rows(source)


def test_deletes_by_uuid_have_no_bounds_for_java_to_skip_them_by(tmp_path, lake):
    """Iceberg's Java takes the halves of UUIDs for signed numbers. In Spark, deleted rows came back."""
    ids = [uuid.UUID(int=5).bytes, uuid.UUID(int=(1 << 128) - 1).bytes]
    fields = NestedField(1, "id", UUIDType(), required=True), NestedField(2, "day", StringType(), required=True)
    into = target(lake, schema=Schema(*fields, FIELDS[2], identifier_field_ids=[1, 2]))
    source = deltacompact.open_catalog(tmp_path / "streams").create_table("s", primary_keys=["id", "day"])
    for x in (1.0, 2.0):
        source.append(pa.table({"id": pa.array(ids, pa.binary(16)), "day": ["mon", "tue"], "x": [x] * 2}))
        mirror(source, into, "b", **(BEGIN if x == 1 else {}))
    (deletes,) = [entry.file for entry in lake.state(M).deletes]
    assert (deletes.lower_bounds, deletes.upper_bounds) == ({2: b"mon"}, {2: b"tue"})
    assert into.read().num_rows == 2
