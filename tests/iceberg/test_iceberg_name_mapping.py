"""Files without field ids, and files that lack the columns by which they are partitioned (spec, Column Projection)."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import SETTINGS
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import deltacompact
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.name_mapping import PROPERTY, identified, name_mapping
from deltacompact.tabular.field_ids import field_id

T = "ns.t"
NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "place", StructType(NestedField(6, "town", StringType()), NestedField(7, "zip", IntegerType()))),
    NestedField(3, "tags", ListType(8, StructType(NestedField(9, "key", StringType())), False)),
    NestedField(4, "sizes", MapType(10, StringType(), 11, StructType(NestedField(12, "cm", LongType())), False)),
    NestedField(5, "note", StringType()),
)
MAPPING = [
    {"field-id": 1, "names": ["id", "Ident"]},
    {
        "field-id": 2,
        "names": ["place", "address"],
        "fields": [{"field-id": 6, "names": ["town", "city"]}, {"field-id": 7, "names": ["zip"]}],
    },
    {"field-id": 3, "names": ["tags"], "fields": [{"names": ["element"], "fields": [{"field-id": 9, "names": ["k"]}]}]},
    {
        "field-id": 4,
        "names": ["sizes"],
        "fields": [
            {"field-id": 10, "names": ["key"]},
            {"field-id": 11, "names": ["value"], "fields": [{"field-id": 12, "names": ["cm"]}]},
        ],
    },
    {"names": ["dropped"]},
    {"field-id": 5, "names": []},
]


def mapped(lake, mapping=MAPPING):
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({PROPERTY: json.dumps(mapping)})


def written(lake, name, rows, types):
    path = lake.folder / name
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(types)), path)
    return path


def test_columns_are_found_by_the_names_of_the_mapping_at_any_depth(lake):
    """Old and new names, names by case, an unknown column, children of structs, lists and maps; ids of another type."""
    lake.create(T, NESTED)
    mapped(lake)
    new = {
        "Ident": 1,
        "address": {"zip": 7, "fax": "f", "city": "Ulm"},
        "tags": [{"k": "a"}, None],
        "sizes": [("s", {"cm": 3})],
        "note": "by this name nobody maps it",
        "dropped": "x",
    }
    types = [
        ("Ident", pa.int32()),
        ("address", pa.struct([("zip", pa.int32()), ("fax", pa.string()), ("city", pa.string())])),
        ("tags", pa.list_(pa.struct([("k", pa.string())]))),
        ("sizes", pa.map_(pa.string(), pa.struct([("cm", pa.int64())]))),
        ("note", pa.string()),
        ("dropped", pa.string()),
    ]
    lake.adopt(T, written(lake, "new.parquet", [new, new | {"Ident": 2, "address": None}], types))
    old = written(
        lake, "old.parquet", [{"id": 3, "Place": {"town": "x"}}], [("id", pa.int64()), ("Place", types[1][1])]
    )
    lake.adopt(T, old)
    lake.delete_by_key(T, {"id": [2]})
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.files_in, result.dead_by_key) == (2, 1)
    (output,) = lake.state(T).data
    found = pq.read_table(output.file.path.removeprefix("file://"), partitioning=None)
    stored = found.schema
    assert [field_id(column) for column in stored] == [1, 2, 3, 4, 5]
    assert [field_id(child) for child in stored.field("place").type] == [6, 7]
    assert found.to_pylist() == [
        {
            "id": 1,
            "place": {"town": "Ulm", "zip": 7},
            "tags": [{"key": "a"}, None],
            "sizes": [("s", {"cm": 3})],
            "note": None,
        },
        {"id": 3, "place": None, "tags": None, "sizes": None, "note": None},
    ]


@pytest.mark.parametrize("has_ids", [True, False])
def test_row_groups_of_a_file_without_ids_are_decoded(lake, has_ids):
    """Statistics of old writers are not to be trusted, and their file would not say any more who wrote them."""
    lake.create(T, pa.schema([("id", pa.int64())]))
    mapped(lake, [{"field-id": 1, "names": ["id"]}])
    ids = {"PARQUET:field_id": "1"} if has_ids else None
    path = lake.folder / "a.parquet"
    table = pa.table([pa.array(range(200_000), pa.int64())], pa.schema([pa.field("id", pa.int64(), metadata=ids)]))
    pq.write_table(table, path, compression="zstd", row_group_size=200_000, use_dictionary=False, data_page_size=1000)
    lake.adopt(T, path)
    lake.rewrite(T, rewrite_all=True)
    (output,) = lake.state(T).data
    sizes = [
        pq.read_metadata(name).row_group(0).column(0).total_uncompressed_size
        for name in (path, output.file.path.removeprefix("file://"))
    ]
    assert (sizes[0] == sizes[1]) is has_ids


def test_a_file_with_some_ids_keeps_them(lake):
    """`x` has the id of `id`, so the column named `id` is not that one."""
    lake.create(T, Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    mapped(lake, [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name"]}])
    types = [pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"}), ("id", pa.int64()), ("name", pa.string())]
    lake.adopt(T, written(lake, "a.parquet", [{"x": 5, "id": 99, "name": "n"}], types))
    lake.rewrite(T, rewrite_all=True)
    assert lake.rows(T) == [{"id": 5, "name": "n"}]


@pytest.mark.parametrize("mode", ["rewrite", "convert"])
def test_deletes_without_ids_delete_by_the_names_of_the_mapping(lake, mode):
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    mapped(lake, [{"field-id": 1, "names": ["id", "key"]}, {"field-id": 2, "names": ["name"]}])
    types = [("id", pa.int64()), ("name", pa.string())]
    data = lake.adopt(T, written(lake, "a.parquet", [{"id": number, "name": "n"} for number in range(5)], types))
    equality = {"content": Content.EQUALITY_DELETES, "equality_ids": (1,)}
    lake.adopt(T, written(lake, "e.parquet", [{"key": 2}], [("key", pa.int32())]), **equality)
    positions = [("file_path", pa.string()), ("pos", pa.int64())]
    rows = [{"file_path": data.path, "pos": 4}]
    lake.adopt(T, written(lake, "p.parquet", rows, positions), content=Content.POSITION_DELETES)
    if mode == "convert":
        catalog = deltacompact.open_catalog(lake.catalog)
        deltacompact.compact(T, delta_catalog_client=catalog, mode="convert", settings=SETTINGS)
        assert [entry.file.content for entry in lake.state(T).deletes] == [Content.POSITION_DELETES] * 2
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.dead_by_key, result.dead_by_position) == ((0, 2) if mode == "convert" else (1, 1))
    assert [row["id"] for row in lake.rows(T)] == [0, 1, 3]


def test_an_equality_delete_without_its_column_is_refused(lake):
    """Read as null, it would delete the rows whose column is null."""
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    lake.append(T, [{"id": None, "name": "n"}])
    lake.delete_by_key(T, {"name": ["x"]}, equality_ids=(1,))
    with pytest.raises(InputError, match=r"deletes\.parquet lacks the column with field id 1, by which it deletes"):
        lake.rewrite(T, rewrite_all=True)


def test_a_mapping_that_cannot_be_read_is_refused_before_any_work(lake):
    lake.create(T, pa.schema([("id", pa.int64())]))
    lake.append(T, [{"id": 1}])
    for bad in ("{", '[{"field-id": 1}]', '[{"names": ["a"]}, {"names": ["a"]}]', "[7]"):
        with lake.catalog.load_table(T).transaction() as change:
            change.set_properties({PROPERTY: bad})
        with pytest.raises(InputError, match=f"table 'ns.t': its property {PROPERTY} is no name mapping") as caught:
            lake.prepared(T, rewrite_all=True).plan()
        assert "\n" not in str(caught.value)


def test_two_columns_with_one_id_are_refused():
    names = name_mapping({PROPERTY: json.dumps(MAPPING)}, T)
    columns = pa.schema([("id", pa.int64()), ("Ident", pa.int64())])
    with pytest.raises(SchemaError, match=r"a\.parquet: columns 'id' and 'Ident' have one field id, 1, by the table's"):
        identified(columns, names, (), "a.parquet")


CONSTANTS = [
    (BooleanType(), True, True),
    (IntegerType(), 5, 5),
    (LongType(), 5, 5),
    (DoubleType(), math.nan, math.nan),
    (DecimalType(9, 2), -123, decimal.Decimal("-1.23")),
    (DateType(), 20458, datetime.date(2026, 1, 5)),
    (TimeType(), 5, datetime.time(0, 0, 0, 5)),
    (TimestampType(), 5, datetime.datetime(1970, 1, 1, 0, 0, 0, 5)),
    (TimestamptzType(), 5, datetime.datetime(1970, 1, 1, 0, 0, 0, 5, ZoneInfo("UTC"))),
    (StringType(), "__HIVE", "__HIVE"),
    (UUIDType(), uuid.UUID(int=5).bytes, uuid.UUID(int=5)),
    (FixedType(3), b"abc", b"abc"),
    (BinaryType(), b"abc", b"abc"),
]


def test_a_partition_says_the_values_that_its_file_lacks(lake):
    """Hive keeps partition columns in folder names only. A bucket's number says nothing; a null is a value."""
    fields = [NestedField(number + 2, f"c{number}", type_) for number, (type_, _, _) in enumerate(CONSTANTS)]
    schema = Schema(NestedField(1, "id", LongType()), *fields)
    parts = [
        PartitionField(field.field_id, 1000 + field.field_id, IdentityTransform(), f"p{field.name}") for field in fields
    ]
    bucket = PartitionField(1, 2000, BucketTransform(4), "bucket")
    lake.create(T, schema, partition_spec=PartitionSpec(*parts, bucket))
    mapped(lake, [{"field-id": 1, "names": ["id"]}, {"field-id": 3, "names": ["c1"]}])
    # the file's c1 has no id, and a name does not stand against the partition
    path = written(
        lake, "a.parquet", [{"id": 1, "c1": 99}, {"id": 2, "c1": 99}], [("id", pa.int64()), ("c1", pa.int32())]
    )
    lake.adopt(T, path, (*(value for _, value, _ in CONSTANTS), 3))
    nulls = written(lake, "b.parquet", [{"id": 3}], [("id", pa.int64())])
    lake.adopt(T, nulls, (*(None for _ in CONSTANTS), 3))
    known = {f"c{number}": value for number, (_, _, value) in enumerate(CONSTANTS)}
    lake.delete_by_key(T, {"id": [2], "c1": [5]}, partition=(*(value for _, value, _ in CONSTANTS), 3))
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.groups, result.dead_by_key) == (2, 1)
    stored = [pq.read_table(entry.file.path.removeprefix("file://"), partitioning=None) for entry in lake.state(T).data]
    found = sorted((row for table in stored for row in table.to_pylist()), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [1, 3]
    assert {name: repr(found[0][name]) for name in known} == {name: repr(value) for name, value in known.items()}
    assert set(found[1].values()) == {3, None}


def test_a_value_in_another_type_than_the_column_is_refused(lake):
    """The partition has a number, and since then the column is a text, by metadata that no engine should write."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    lake.create(T, Schema(NestedField(1, "id", LongType()), NestedField(2, "day", IntegerType())), partition_spec=spec)
    mapped(lake, [{"field-id": 1, "names": ["id"]}])
    lake.adopt(T, written(lake, "a.parquet", [{"id": 1}], [("id", pa.int64())]), (3,))
    table = lake.catalog.load_table(T)
    schema = json.loads(table.schema().model_dump_json())
    schema["fields"][1]["type"] = "string"
    lake.edit_metadata(T, {"schemas": [schema]})
    with pytest.raises(
        InputError, match="lacks the column with field id 2, whose value only its partition has, in ano"
    ):
        lake.rewrite(T, rewrite_all=True)
