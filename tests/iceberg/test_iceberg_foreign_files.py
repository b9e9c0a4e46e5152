"""Files and manifests of other writers: DuckDB, Polars, old Spark and Hive, other codecs, fields that nobody knows."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import uuid
import zlib
from pathlib import Path

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from deltacompact.base.errors import CorruptionError, InputError, SchemaError
from deltacompact.iceberg.table import avro
from deltacompact.iceberg.table.name_mapping import PROPERTY

T = "ns.t"


def mapped(lake, schema, **others):
    """A table whose files have no ids."""
    lake.create(T, schema, **others)
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({PROPERTY: change.table_metadata.schema().name_mapping.model_dump_json()})


def adopted(lake, write, number):
    path = lake.folder / f"foreign-{number}.parquet"
    write(path)
    lake.adopt(T, path)


def output_rows(lake):
    paths = [entry.file.path.removeprefix("file://") for entry in lake.state(T).data]
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


# Data files

NOON = datetime.datetime(2026, 1, 5, 12, 0, 0, 5)
COLUMNS = Schema(
    NestedField(1, "whole", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "price", DecimalType(20, 2)),
    NestedField(5, "at", TimestampType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "noon", TimeType()),
    NestedField(8, "name", StringType()),
    NestedField(9, "mark", UUIDType()),
    NestedField(10, "code", FixedType(3)),
    NestedField(11, "tags", ListType(12, StringType(), False)),
)
ROW = {
    "whole": 5,
    "small": -5,
    "ratio": 1.5,
    "price": decimal.Decimal("1.25"),
    "at": NOON,
    "day": NOON.date(),
    "noon": NOON.time(),
    "name": "ü",
    "mark": uuid.UUID(int=5).bytes,
    "code": b"abc",
    "tags": ["a", None],
}
NARROW = {
    "whole": pa.int32(),
    "small": pa.int8(),
    "ratio": pa.float32(),
    "price": pa.decimal128(9, 2),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date64(),
    "noon": pa.time64("ns"),
    "name": pa.dictionary(pa.int32(), pa.string()),
    "mark": pa.binary(16),
    "code": pa.binary(),
    "tags": pa.list_(pa.string()),
}
LARGE = NARROW | {
    "whole": pa.uint32(),
    "ratio": pa.float64(),
    "price": pa.decimal128(20, 2),
    "at": pa.timestamp("us"),
    "name": pa.large_string(),
    "code": pa.large_binary(),
    "tags": pa.large_list(pa.large_string()),
}


def by_arrow(types, **options):
    return lambda path: pq.write_table(pa.Table.from_pylist([ROW], pa.schema(list(types.items()))), path, **options)


def by_duckdb(path):
    duckdb = pytest.importorskip("duckdb")
    columns = (
        "5::uinteger whole, -5::tinyint small, 1.5::float ratio, 1.25::decimal(9, 2) price, "
        "timestamp '2026-01-05 12:00:00.000005' as at, date '2026-01-05' as day, time '12:00:00.000005' noon, "
        "'ü' as name, '00000000-0000-0000-0000-000000000005'::uuid mark, 'abc'::blob code, ['a', null] tags"
    )
    duckdb.sql(f"copy (select {columns}) to '{path}' (format parquet)")


def by_polars(path):
    polars = pytest.importorskip("polars")
    polars.from_arrow(pa.Table.from_pylist([ROW], pa.schema(list(LARGE.items())))).write_parquet(path)


def test_files_of_other_writers_are_read_in_the_types_of_the_table(lake):
    mapped(lake, COLUMNS)
    writers = [by_duckdb, by_polars]
    writers += [by_arrow(NARROW, compression=codec) for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")]
    writers += [
        by_arrow(LARGE, version="1.0", use_compliant_nested_type=False),
        by_arrow(NARROW, store_decimal_as_integer=True, data_page_version="2.0"),
        by_arrow(LARGE, use_deprecated_int96_timestamps=True),
    ]
    for number, write in enumerate(writers):
        adopted(lake, write, number)
    adopted(lake, lambda path: pq.ParquetWriter(path, pa.schema([("whole", pa.int64())])).close(), "no-row-groups")
    lake.rewrite(T, rewrite_all=True)
    expected = ROW | {"mark": uuid.UUID(int=5)}
    assert output_rows(lake) == [expected] * len(writers)


def test_texts_in_dictionaries_are_found_under_the_names_of_today(lake):
    """Pandas writes categories so. A delete by key reads the column by its id, the rewrite by its new name."""
    mapped(lake, Schema(NestedField(1, "id", LongType()), NestedField(2, "kind", StringType())))
    rows = pa.table({"id": [1, 2, 3], "kind": pa.array(["a", "b", None]).dictionary_encode()})
    adopted(lake, lambda path: pq.write_table(rows, path), 0)
    with lake.catalog.load_table(T).update_schema() as change:
        change.rename_column("kind", "sort")
    lake.delete_by_key(T, {"sort": ["b"]})
    assert lake.rewrite(T, rewrite_all=True).dead_by_key == 1
    assert sorted(map(str, output_rows(lake))) == ["{'id': 1, 'sort': 'a'}", "{'id': 3, 'sort': None}"]


def test_moments_of_old_writers_may_lie_in_any_year(lake):
    """INT96: nanoseconds would end in 2262, and 9999-12-31 is what many tables have for "never"."""
    mapped(lake, Schema(NestedField(1, "at", TimestamptzType())))
    moments = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None]
    table = pa.table({"at": pa.array(moments, pa.timestamp("us"))})
    adopted(lake, lambda path: pq.write_table(table, path, use_deprecated_int96_timestamps=True), 0)
    lake.rewrite(T, rewrite_all=True)
    assert [row["at"] and row["at"].replace(tzinfo=None) for row in output_rows(lake)] == moments


@pytest.mark.parametrize(
    ("column", "values"),
    [("at", pa.array([5001], pa.timestamp("ns"))), ("small", pa.array([2**40])), ("mark", pa.array(["no uuid"]))],
)
def test_a_value_that_does_not_fit_is_refused_by_file_and_column(lake, column, values):
    mapped(lake, COLUMNS)
    adopted(lake, lambda path: pq.write_table(pa.table({column: values}), path), 0)
    before = lake.state(T)
    with pytest.raises(SchemaError, match=rf"foreign-0\.parquet: column '{column}' does not fit") as caught:
        lake.rewrite(T, rewrite_all=True)
    assert "\n" not in str(caught.value)
    assert lake.state(T) == before


# Partitions


def test_two_partition_columns_may_have_one_type(lake):
    """Avro defines a type that has a name once: two decimals of one precision, two UUIDs."""
    price, mark = DecimalType(9, 2), UUIDType()
    fields = [NestedField(number, f"c{number}", price if number < 3 else mark) for number in (1, 2, 3, 4)]
    parts = [PartitionField(number, 1000 + number, IdentityTransform(), f"p{number}") for number in (1, 2, 3, 4)]
    mapped(lake, Schema(*fields, NestedField(5, "id", LongType())), partition_spec=PartitionSpec(*parts))
    values = (100, -250, uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes)
    for number in range(2):
        path = lake.folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        lake.adopt(T, path, values)
    lake.rewrite(T, rewrite_all=True)
    assert [entry.file.partition for entry in lake.state(T).data] == [values]
    known = {"c1": decimal.Decimal("1.00"), "c2": decimal.Decimal("-2.50")}
    known |= {"c3": uuid.UUID(int=1), "c4": uuid.UUID(int=2)}
    assert lake.rows(T) == [known | {"id": number} for number in range(2)]


# Manifests


def again(location, change=lambda schema, records: None, codec="null"):
    """Write an Avro file again: changed, or in a codec that fastavro does not have."""
    path = Path(location.removeprefix("file://"))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    records, schema = list(reader), json.loads(reader.metadata["avro.schema"])
    change(schema, records)
    metadata = {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, metadata=metadata)
    path.write_bytes(sink.getvalue() if codec == "null" else encoded(sink.getvalue(), codec))


def encoded(data, codec):
    """The blocks of an Avro file, which are not encoded, in another codec (Avro's specification, "Required Codecs")."""
    source, sink = io.BytesIO(data), io.BytesIO()
    header = fastavro.schemaless_reader(source, avro._HEADER, None)
    header["meta"]["avro.codec"] = codec.encode()
    fastavro.schemaless_writer(sink, avro._HEADER, header)
    while source.tell() < len(data):
        rows, size = (fastavro.schemaless_reader(source, "long", None) for _ in range(2))
        block, sync = source.read(size), source.read(16)
        if codec == "snappy":
            block = pa.compress(block, "snappy", asbytes=True) + zlib.crc32(block).to_bytes(4, "big")
        else:
            block = pa.compress(block, "zstd", asbytes=True)
        for number in (rows, len(block)):
            fastavro.schemaless_writer(sink, "long", number)
        sink.write(block + sync)
    return sink.getvalue()


def three_commits(lake):
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for first in (0, 2, 4):
        lake.append(T, [{"id": first, "name": "a"}, {"id": first + 1, "name": "b"}])
    lake.delete_by_key(T, {"id": [3]})
    return lake.state(T)


def with_unknown_fields(schema, records):
    """A field of the future beside each entry, and in each data file; and `distinct_counts`, which is deprecated."""
    schema["fields"].append({"name": "x", "type": ["null", "string"], "default": None, "field-id": 9000})
    for record in records:
        record["x"] = "unknown"
    for field in schema["fields"]:
        if field["name"] == "data_file":
            pair = [("key", "int", 120), ("value", "long", 121)]
            fields = [{"name": name, "type": type_, "field-id": number} for name, type_, number in pair]
            items = {"type": "record", "name": "k120_v121", "fields": fields}
            counts = ["null", {"type": "array", "logicalType": "map", "items": items}]
            field["type"]["fields"].insert(3, {"name": "distinct_counts", "type": counts, "field-id": 111})
            for record in records:
                record["data_file"]["distinct_counts"] = [{"key": 1, "value": 3}]


def without_optional_fields(schema, records):
    """No metrics, no offsets; in a manifest list, no counts and no partitions. Delete files need their equality ids."""
    for field in schema["fields"]:
        if field["name"] == "data_file":
            optional = [part["name"] for part in field["type"]["fields"] if isinstance(part["type"], list)]
            gone = [name for name in optional if all(not record["data_file"].get("equality_ids") for record in records)]
            field["type"]["fields"] = [part for part in field["type"]["fields"] if part["name"] not in gone]
    counted = [field for field in schema["fields"] if field["name"].endswith("_count") or field["name"] == "partitions"]
    schema["fields"] = [field for field in schema["fields"] if field not in counted]


def in_lower_case(schema, records):
    for record in records:
        if "data_file" in record:
            record["data_file"]["file_format"] = "parquet"


@pytest.mark.parametrize(
    ("change", "codec"),
    [
        (lambda schema, records: None, "snappy"),
        (with_unknown_fields, "zstandard"),
        (without_optional_fields, "null"),
        (in_lower_case, "null"),
    ],
)
@pytest.mark.slow
def test_manifests_of_other_writers_are_read(lake, change, codec):
    before = three_commits(lake)
    for manifest in before.manifests:
        again(manifest.path, change, codec)
    again(before.snapshot.manifest_list, change, codec)
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.files_in, result.dead_by_key) == (3, 1)
    assert [row["id"] for row in lake.rows(T)] == [0, 1, 2, 4, 5]


def test_a_line_without_counts_is_counted_before_it_is_carried_on(lake):
    """Written as zeros, they would say that the manifest has no files, and readers would skip it."""
    lake.create(T, pa.schema([("id", pa.int64())]), version=1)
    for first in (0, 2, 4):
        lake.append(T, [{"id": first}, {"id": first + 1}])
    again(lake.state(T).snapshot.manifest_list, without_optional_fields)
    with lake.catalog.load_table(T).transaction() as change:
        change.upgrade_table_version(2)
    lake.rewrite(T, rewrite_all=True, max_file_group_input_files=1, max_files_to_rewrite=1)
    listed = lake.state(T).snapshot.manifest_list.removeprefix("file://")
    lines = list(fastavro.reader(io.BytesIO(Path(listed).read_bytes())))
    live = [line for line in lines if not line["deleted_files_count"]]
    assert [line["added_files_count"] + line["existing_files_count"] for line in live] == [1] * 3
    assert [line["added_rows_count"] + line["existing_rows_count"] for line in live] == [2] * 3
    assert len(lake.rows(T)) == 6


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_damaged_blocks_are_told(lake, codec):
    before = three_commits(lake)
    path = Path(before.manifests[0].path.removeprefix("file://"))
    again(str(path), codec=codec)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:-20] + bytes(4) + whole[-16:], whole[:-1] + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=f"{path} is not a readable Avro file") as caught:
            lake.rewrite(T, rewrite_all=True)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file_format", ["orc", "AVRO"])
def test_a_file_of_another_format_is_named_before_any_work(lake, file_format):
    before = three_commits(lake)

    def change(schema, records):
        records[0]["data_file"]["file_format"] = file_format

    again(before.manifests[0].path, change)
    path = before.data[0].file.path
    with pytest.raises(InputError, match=f"is {file_format.upper()}: only Parquet files can be read") as caught:
        lake.prepared(T, rewrite_all=True).plan()
    assert any(entry.file.path in str(caught.value) for entry in before.data), path


# Locations


@pytest.mark.parametrize("beginning", ["", "file:", "file://"])
def test_paths_are_texts_with_any_character_inside_or_outside_of_the_table(lake, beginning):
    lake.create(T, pa.schema([("id", pa.int64())]))
    folder = lake.folder / "else where%20 ü"
    folder.mkdir()
    path = folder / "day=1%2F2+#?&.parquet"
    pq.write_table(pa.table({"id": [1, 2]}, lake.catalog.load_table(T).schema().as_arrow()), path)
    lake.adopt(T, path, path=f"{beginning}{path}")
    lake.delete_by_position(T, {f"{beginning}{path}": [0]})
    lake.rewrite(T, rewrite_all=True)
    assert lake.rows(T) == [{"id": 2}]


def test_metadata_may_be_compressed_and_data_may_lie_elsewhere(lake):
    elsewhere = f"file://{lake.folder}/else where"
    lake.create(T, pa.schema([("id", pa.int64())]), properties={"write.data.path": f"{elsewhere}/data"})
    for number in range(2):
        lake.append(T, [{"id": number}])
    plain = Path(lake.catalog.load_table(T).metadata_location.removeprefix("file://"))
    small = plain.with_name(plain.name.replace(".metadata.json", ".gz.metadata.json"))
    small.write_bytes(gzip.compress(plain.read_bytes()))
    lake.catalog.drop_table(T)
    lake.catalog.register_table(T, f"file://{small}")
    lake.rewrite(T, rewrite_all=True)
    assert lake.rows(T) == [{"id": 0}, {"id": 1}]
    assert all(entry.file.path.startswith(f"{elsewhere}/data/") for entry in lake.state(T).data)


# Version 1


def test_a_table_of_version_1_can_be_rewritten(lake):
    lake.create(T, pa.schema([("id", pa.int64()), ("day", pa.int32())]), version=1)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    for number in range(6):
        lake.append(T, [{"id": number, "day": number % 2}])
    before = lake.rows(T)
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.files_in, result.files_out) == (6, 2)
    assert lake.rows(T) == before
    state = lake.state(T)
    assert (state.metadata.format_version, state.sequence_number) == (1, 0)
    (manifest, *_) = state.manifests
    reader = fastavro.reader(io.BytesIO(Path(manifest.path.removeprefix("file://")).read_bytes()))
    assert (reader.metadata["format-version"], "content" in reader.metadata) == ("1", False)
    assert set(next(reader)) == {"status", "snapshot_id", "data_file"}
    lake.append(T, [{"id": 9, "day": 1}])
    with lake.catalog.load_table(T).transaction() as change:
        change.upgrade_table_version(2)
    lake.delete_by_key(T, {"id": [2]}, partition=(0,))
    lake.rewrite(T, rewrite_all=True)
    assert [row["id"] for row in lake.rows(T)] == [0, 1, 3, 4, 5, 9]
    again_rewritten = lake.rewrite(T)
    assert again_rewritten.nothing_to_do == "2 files: too few in the partition to be merged"


def test_a_file_that_cannot_be_decoded_is_refused_by_name_and_nothing_is_rewritten(lake):
    """DuckDB packs the differences of random numbers in a way that pyarrow 26 cannot decode. They were copied."""
    mapped(lake, Schema(NestedField(1, "id", LongType()), NestedField(2, "v", IntegerType())))
    numbers = np.random.default_rng(3).integers(-(2**31), 2**31, 40_000, np.int32)
    written = pa.table({"id": np.arange(40_000), "v": numbers})
    how = "format parquet, codec 'zstd', parquet_version 'V2'"
    adopted(lake, lambda path: duckdb.from_arrow(written).query("w", f"copy (from w) to '{path}' ({how})"), 0)
    adopted(lake, lambda path: pq.write_table(pa.table({"id": [-2], "v": pa.array([1], pa.int32())}), path), 1)
    adopted(lake, lambda path: pq.write_table(pa.table({"id": [-1], "v": pa.array([2], pa.int32())}), path), 2)
    before = lake.state(T)
    with pytest.raises(InputError, match=r"foreign-0\.parquet cannot be read: column 'v', row group 0.*option `where`"):
        lake.rewrite(T, rewrite_all=True)
    assert lake.state(T).data == before.data
