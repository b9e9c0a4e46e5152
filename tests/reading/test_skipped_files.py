"""Reads that skip files return what reads of everything return, and open what their records say.

Files that are skipped are taken away before: who opened one would fail.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from version_3 import add_column

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.iceberg.table.locations import readable
from deltacompact.layout.reads import Read, read_from_document
from deltacompact.reading.recorded import VARIABLE
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1, row_group_rows=4)
ROWS = pa.table({"id": range(80), "x": [float(x) for x in range(80)], "name": [f"n{x:03}" for x in range(80)]})


@pytest.fixture(params=["streams", "iceberg"])
def clustered(request, tmp_path):
    """80 rows in 10 files, and the paths of the files by their first id."""
    if request.param == "streams":
        catalog = deltacompact.open_catalog(tmp_path / "lake")
        table = catalog.create_table("t", primary_keys=["id"], cluster_by="id,x,name")
        table.append(ROWS)
        table.compact(settings=LOCAL, rows_per_compacted_file=10)
        paths = [tmp_path / "lake" / file.path for file in catalog.state("t", Partition()).compacted.files]
    else:
        lake = Lake(tmp_path / "iceberg", "skipping")
        lake.create("ns.t", ROWS.schema)
        for first in range(0, 80, 8):
            lake.append("ns.t", ROWS.slice(first, 8))
        table = deltacompact.open_catalog(lake.catalog).table("ns.t")
        paths = [Path(readable(entry.file.path).removeprefix("file://")) for entry in lake.state("ns.t").data]
    found = {pq.read_table(path)["id"][0].as_py(): path for path in paths}
    assert sorted(found) == list(range(0, 80, 8))
    return table, found


def only(paths: Mapping[int, Path], *firsts: int) -> None:
    """All other files are gone."""
    for first, path in paths.items():
        if first not in firsts:
            os.rename(path, f"{path}.away")


@pytest.fixture
def record(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "reads.jsonl"))

    def last() -> Read:
        return read_from_document(json.loads((tmp_path / "reads.jsonl").read_bytes().splitlines()[-1]))

    return last


BETWEEN = pl.col("name").is_between(pl.lit("n017"), pl.lit("n020"))
READS = {
    "a list": lambda table: table.read(columns=["id"], filter=[("id", ">=", 17), ("x", "<", 21)]),
    "an expression": lambda table: table.read(columns=["id"], filter=(pc.field("id") > 16) & (pc.field("x") < 21.0)),
    "a dataset": lambda table: table.dataset().to_table(columns=["id"], filter=pc.field("name").isin(["n017", "n020"])),
    "DuckDB": lambda table: table.to_duckdb().filter("name BETWEEN 'n017' AND 'n020'").project("id").arrow().read_all(),
    "Polars": lambda table: table.to_polars().filter(BETWEEN).select("id").collect(),
}


@pytest.mark.parametrize("way", READS)
def test_a_read_opens_the_files_that_may_match_and_says_so(clustered, record, way):
    table, paths = clustered
    only(paths, 16)
    ids = READS[way](table)["id"].to_list() if way == "Polars" else READS[way](table)["id"].to_pylist()
    assert set(ids) <= {17, 18, 19, 20} and {17, 20} <= set(ids)
    assert (record().files_opened, record().files_skipped) == (1, 9)


def test_row_groups_that_cannot_match_are_not_decoded(clustered, record):
    table, paths = clustered
    only(paths, 16)
    assert table.read(filter=[("id", "==", 22)]).num_rows == 1
    groups = pq.read_metadata(paths[16]).num_row_groups
    assert record().rows == 8 / groups and groups == (2 if table.table_id == "t" else 1)


@pytest.mark.parametrize("type_", [pa.uint8(), pa.uint64()], ids=str)
def test_row_groups_of_unsigned_numbers_that_cannot_match_are_not_decoded(tmp_path, record, type_):
    numbers = [1, 2, 2**type_.bit_width - 2, 2**type_.bit_width - 1]
    rows = pa.table({"id": [1, 2, 3, 4], "n": pa.array(numbers, type_)})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=2)
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    table.append_files([str(tmp_path / "rows.parquet")])
    found = [table.read(filter=pc.field("n") == pa.scalar(number, type_))["id"].to_pylist() for number in numbers]
    assert found == [[1], [2], [3], [4]]
    assert record().rows == 2


def test_a_feed_opens_changed_files_that_may_match(clustered):
    table, paths = clustered
    only(paths, 40)
    assert sorted(table.changes(where="id > 44 and id < 47").read_all()["id"].to_pylist()) == [45, 46]


def test_a_delta_replaces_a_row_of_a_file_that_is_skipped_and_of_one_that_is_not(tmp_path, record):
    """The newest version of a key counts, whether it matches or not, and wherever the older one lies."""
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"], cluster_by="x")
    table.append(pa.table({"id": [1, 2, 3, 4], "x": [1, 2, 30, 40]}))
    table.compact(settings=LOCAL, rows_per_compacted_file=2)
    table.append(pa.table({"id": [1, 4], "x": [41, 3]}))
    assert sorted(table.read(filter=[("x", ">", 29)])["id"].to_pylist()) == [1, 3]
    assert (record().files_opened, record().files_skipped) == (2, 1)
    assert sorted(table.read(filter=[("x", "<", 29)])["id"].to_pylist()) == [2, 4]


def test_partitions_that_cannot_match_are_not_opened(tmp_path, record):
    """Their keys need not lie in their files; and of a column that came later, older files have only null."""
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", partition_keys=["day"], primary_keys=["id"])
    table.append(pa.table({"id": [1, 2], "day": ["1", "1"]}), {"day": "1"})
    table.append(pa.table({"id": [1, 2]}), {"day": "2"})
    table.compact(settings=LOCAL)
    table.append(pa.table({"id": [3], "new": ["x"]}), {"day": "2"})
    assert table.read(filter=[("day", "==", "1")]).num_rows == 2
    assert (record().files_opened, record().files_skipped) == (1, 2)
    assert table.read(filter=[("new", "==", "x")])["id"].to_pylist() == [3]
    assert (record().files_opened, record().files_skipped) == (1, 2)
    assert sorted(table.read(filter=pc.field("new").is_null())["id"].to_pylist()) == [1, 1, 2, 2]


EACH_TYPE = {
    "ns": pa.array([1, 1_500_000_001, None], pa.timestamp("ns")),
    "zoned": pa.array([-1, 1_500_001, None], pa.timestamp("us", "Europe/Berlin")),
    "seconds": pa.array([-1, 15, None], pa.timestamp("s")),
    "far": pa.array([-62_135_596_800_000_001 * 2, 0, None], pa.timestamp("us")),
    "time": pa.array([1, 86_399_999_999_999, None], pa.time64("ns")),
    "short_time": pa.array([1, 86_399, None], pa.time32("s")),
    "midnight": pa.array([0, 86_400_000_000, None], pa.time64("us")),
    "short_midnight": pa.array([1, 86_400, None], pa.time32("s")),
    "day": pa.array([-1, 20_000, None], pa.date32()),
    "wide_day": pa.array([-86_400_000, 86_400_000, None], pa.date64()),
    "unsigned": pa.array([1, 2**32 - 1, None], pa.uint32()),
    "greatest": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "half": pa.array([-1.5, 2.5, None], pa.float16()),
    "narrow": pa.array([-0.0, 0.1, math.nan], pa.float32()),
    "price": pa.array([-1, 150, None], pa.decimal128(9, 2)),
    "wide_price": pa.array([-1, 150, None], pa.decimal256(60, 2)),
    "flag": pa.array([True, False, None]),
    "code": pa.array([b"\xff\xff", b"", None]),
    "fixed": pa.array([b"\xff\xff", b"\x00\x00", None], pa.binary(2)),
    "word": pa.array(["\U0010ffff" * 70, "z" * 70, None]),
    "coded": pa.array(["b", "a", None]).dictionary_encode(),
}


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, *EACH_TYPE])
def test_no_type_of_a_column_loses_rows(tmp_path, by):
    """By footers of files as appended, by those of compacted files, and by ranges in the log."""
    rows = pa.table({"id": [1, 2, 3], **EACH_TYPE})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=1)
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", primary_keys=["id"], cluster_by=by)
    table.append_files([str(tmp_path / "rows.parquet")])
    if by is not None:
        table.compact(settings=LOCAL, rows_per_compacted_file=1)
    everything = table.read()
    for name in [by] if by else EACH_TYPE:
        column, values = pc.field(name), everything[name]
        literals = [value for value in values.combine_chunks() if value.is_valid]
        conditions = [
            made
            for literal in literals
            for made in (column == literal, column != literal, column <= literal, column > literal)
        ]
        for wanted in [*conditions, column.is_null(), ~column.is_null(), column.isin(literals[:1])]:
            try:
                expected = everything.filter(wanted)
            except pa.ArrowException:  # dictionaries have no order
                continue
            assert shown(table.read(columns=["id"], filter=wanted)) == shown(expected.select(["id"])), str(wanted)


# Whatever tables and filters there are

NUMBERS = st.none() | st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, math.nan])
TEXTS = st.none() | st.sampled_from(["", "a", "b", "zo" + "ë" * 40, "\U0010ffff" * 20])
ROW = st.fixed_dictionaries({"id": st.integers(0, 9), "n": st.none() | st.integers(-2, 2), "x": NUMBERS, "s": TEXTS})


@st.composite
def filters(draw, depth=2):
    kind = draw(st.integers(0, 6 if depth else 3))
    if kind > 3:
        one = draw(filters(depth=depth - 1))
        other = draw(filters(depth=depth - 1)) if kind > 4 else None
        return ~one if other is None else one & other if kind == 5 else one | other
    name, value = draw(
        st.one_of(
            st.tuples(st.just("id"), st.integers(0, 9)),
            st.tuples(st.just("n"), st.integers(-2, 2)),
            st.tuples(st.just("x"), NUMBERS.filter(lambda one: one is not None)),
            st.tuples(st.just("s"), TEXTS.filter(lambda one: one is not None)),
        )
    )
    column = pc.field(name)
    if kind == 0:
        return column.is_null(nan_is_null=draw(st.booleans()))
    if kind == 1:
        return column.isin([value])
    return draw(st.sampled_from([column == value, column != value, column < value, column >= value]))


SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("x", pa.float64()), ("s", pa.string())])


def shown(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=1, max_size=3), st.data())
def test_a_read_of_a_stream_is_that_of_all_its_rows(batches, data):
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table(
        "t", primary_keys=["id"], cluster_by=data.draw(st.sampled_from(["", "n,s", "x", "s"])) or None
    )
    for number, batch in enumerate(batches):
        table.append(
            pa.Table.from_pylist(batch, schema=SCHEMA),
            operation=data.draw(st.sampled_from(["upsert", "upsert", "delete"])) if number else "upsert",
        )
        if data.draw(st.booleans()):
            table.compact(settings=LOCAL, rows_per_compacted_file=4)
    everything = table.read()
    for wanted in data.draw(st.lists(filters(), min_size=4, max_size=4)):
        assert shown(table.read(filter=wanted)) == shown(everything.filter(wanted)), str(wanted)


@pytest.mark.slow
def test_a_read_of_an_iceberg_table_is_that_of_all_its_rows(tmp_path):
    """Partitioned by a column or not, which is widened between appends; some rows are deleted by key."""
    lake = Lake(tmp_path)
    fields = (NestedField(1, "id", LongType()), NestedField(2, "n", IntegerType()), NestedField(3, "x", DoubleType()))
    schema = Schema(*fields, NestedField(4, "s", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    runs = 0

    @settings(max_examples=examples(8))
    @given(st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=3), st.booleans(), st.data())
    def run(batches, is_partitioned, data):
        nonlocal runs
        runs += 1
        name = f"ns.t{runs}"
        lake.create(name, schema, partition_spec=spec if is_partitioned else PartitionSpec())
        for number, batch in enumerate(batches):
            rows = pa.Table.from_pylist(batch, schema=SCHEMA).cast(lake.catalog.load_table(name).schema().as_arrow())
            lake.append(name, rows)
            if number == 0 and data.draw(st.booleans()):
                with lake.catalog.load_table(name).update_schema() as update:
                    update.update_column("n", LongType())
        if data.draw(st.booleans()) and not is_partitioned:
            lake.delete_by_key(name, {"id": [batches[0][0]["id"]]})
        table = deltacompact.open_catalog(lake.catalog).table(name)
        everything = table.read()
        for wanted in data.draw(st.lists(filters(), min_size=4, max_size=4)):
            assert shown(table.read(filter=wanted)) == shown(everything.filter(wanted)), str(wanted)

    run()


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_polars_gets_what_it_would_keep_of_all_rows(batch, data):
    """NaN is greater than all numbers there, and equal to itself."""
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", primary_keys=["id"], cluster_by="x,n")
    table.append(pa.Table.from_pylist(batch, schema=SCHEMA))
    table.compact(settings=LOCAL, rows_per_compacted_file=4)
    everything = pl.from_arrow(table.read())
    for _ in range(4):
        column, value = data.draw(
            st.tuples(st.just(pl.col("x")), st.sampled_from([-1.5, 0.0, math.inf, math.nan]))
            | st.tuples(st.just(pl.col("n")), st.integers(-2, 2))
        )
        ways = [column > value, column != value, column.ne_missing(value), ~(column <= value), column.is_null()]
        wanted = data.draw(st.sampled_from([*ways, column.is_in([value]), ~column.is_in([value])]))
        kept = table.to_polars().filter(wanted).collect()
        assert shown(kept.to_arrow()) == shown(everything.filter(wanted).to_arrow()), str(wanted)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_polars_finds_moments_of_any_zone(zone):
    """Polars hands down the wall clocks of a list of them."""
    moments = pa.array([0, 10**9], pa.timestamp("ms", zone))
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [1, 2], "at": moments}))
    table.compact(settings=LOCAL, rows_per_compacted_file=1)
    for moment in moments.to_pylist():
        for wanted in (pl.col("at") == moment, pl.col("at").is_in([moment]), pl.col("at").is_in([moment, None])):
            assert table.to_polars().filter(wanted).collect()["at"].to_list() == [moment], str(wanted)


def test_files_that_lack_a_column_have_the_value_of_their_partition_in_it(tmp_path, record):
    """As Hive lays them out. Nothing else tells that value, and other partitions are skipped by it."""
    lake = Lake(tmp_path / "iceberg", "skipping")
    fields = NestedField(1, "id", LongType()), NestedField(2, "n", IntegerType())
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    names = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["n"]}]'}
    lake.create("ns.t", Schema(*fields), partition_spec=spec, properties=names)
    for value in (3, 4):
        pq.write_table(pa.table({"id": [value]}), tmp_path / f"{value}.parquet")
        lake.adopt("ns.t", tmp_path / f"{value}.parquet", (value,))
    table = deltacompact.open_catalog(lake.catalog).table("ns.t")
    assert table.read(filter=[("n", "==", 3)]).to_pylist() == [{"id": 3, "n": 3}]
    assert (record().files_opened, record().files_skipped) == (1, 1)
    assert table.read(filter=pc.field("n").is_null()).num_rows == 0
    assert (record().files_opened, record().files_skipped) == (0, 2)


def test_files_that_are_older_than_a_column_have_its_default(tmp_path):
    """No file has the default, but for one, where a row has null instead."""
    lake = Lake(tmp_path / "iceberg", "skipping")
    lake.create("ns.t", pa.schema([("id", pa.int64())]), version=3)
    lake.append("ns.t", [{"id": 1}])
    add_column(lake, "int", 5)
    lake.append("ns.t", [{"id": 2, "added": None}])
    lake.append("ns.t", [{"id": 3, "added": 7}])
    table = deltacompact.open_catalog(lake.catalog).table("ns.t")

    def ids(wanted):
        return sorted(table.read(filter=wanted)["id"].to_pylist())

    added = pc.field("added")
    assert [ids(added == 5), ids(added.is_null()), ids(added > 5), ids(added != 7)] == [[1], [2], [3], [1]]
