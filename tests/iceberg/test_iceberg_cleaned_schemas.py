"""Partition columns that are gone: dropped, and cleaned out of the metadata with the schemas that had them.

    spec 0     day: identity(3)    no schema has column 3     files of spec 0 live on, in the partitions that they had

`expire_snapshots(clean_expired_metadata => true)` leaves such tables, once no snapshot has the old schema.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from iceberg_lake import sorted_rows
from naive_reader import NaiveReader
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)
from table_t import clean, compact

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.unknown_types import _wider

T = "ns.t"
VALUES = {
    DateType(): datetime.date(2026, 1, 5),
    DecimalType(20, 2): Decimal("-1.50"),
    DoubleType(): 0.25,
    StringType(): "a/b",
    TimestampType(): datetime.datetime(2026, 1, 5),
    FixedType(3): b"abc",
    LongType(): 2**40,
}


def cleaned(lake, version=2, required=False):
    """Four files in two partitions of a spec whose columns are gone, and one file without partition."""
    fields = [
        NestedField(number, f"c{number}", type_, required=required) for number, type_ in enumerate(VALUES, start=2)
    ]
    schema = Schema(NestedField(1, "id", LongType()), *fields)
    parts = [
        PartitionField(field.field_id, 1000 + field.field_id, IdentityTransform(), f"p{field.name}") for field in fields
    ]
    spec = PartitionSpec(*parts, PartitionField(1, 2000, BucketTransform(1), "bucket"))
    lake.create(T, schema, partition_spec=spec, properties={"format-version": str(version)})
    known = {f"c{number}": value for number, value in enumerate(VALUES.values(), start=2)}
    for first in (0, 2):
        lake.append(T, [{"id": first + number} | known for number in range(2)])
        if not required:
            lake.append(T, [{"id": 10 + first + number} for number in range(2)])
    table = lake.catalog.load_table(T)
    with table.update_spec() as update:
        for part in table.spec().fields:
            update.remove_field(part.name)
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        for field in fields:
            update.delete_column(field.name)
    append_null(lake, 20)
    clean(lake)


def append_null(lake, number):
    """One row in the partition of nulls: PyIceberg does not write to void fields whose columns are gone."""
    table = IcebergTable.load(lake.catalog, T)
    rows = pa.table({"id": pa.array([number])}).cast(table.metadata.schema)
    nulls = (None,) * len(table.metadata.specs[table.metadata.default_spec_id].fields)
    lake.commit(table, [lake._file(table, rows, Content.DATA, nulls, None, ())], operation="append")


def live(lake):
    return sorted_rows([{1: row[1]} for row in NaiveReader(lake, T).rows()])


def maintain(lake, **others):
    return deltacompact.open_catalog(lake.catalog).maintain(T, **others)


def partitions(lake):
    return {(entry.file.spec_id, entry.file.partition) for entry in lake.state(T).data}


@pytest.mark.slow
def test_a_table_whose_partition_columns_are_gone_is_maintained_in_every_mode(lake):
    cleaned(lake)
    before = partitions(lake)
    assert len(before) == 3
    known = [entry.file.path for entry in lake.state(T).data if entry.file.partition and entry.file.partition[0]]
    lake.delete_by_position(T, {known[0]: [1]})
    expected = live(lake)
    assert len(expected) == 8
    with pytest.raises(InputError, match="engines cannot read deletes by position there; rewrite them first, with"):
        compact(lake, "upsert", **{"key-columns": "id"})
    maintain(lake, rewrite_manifests=True)
    assert (live(lake), partitions(lake)) == (expected, before)
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    state = lake.state(T)
    assert (live(lake), partitions(lake), len(state.data), len(state.deletes)) == (expected, before, 3, 0)
    maintain(lake, rewrite_manifests=True, expire_snapshots=True, remove_orphans=True)
    compact(lake, "rewrite", **{"rewrite-all": "true", "output-spec-id": lake.state(T).metadata.default_spec_id})
    assert (live(lake), len(partitions(lake))) == (expected, 1)
    lake.delete_by_key(T, {"id": [2]})
    compact(lake, "convert")
    assert live(lake) == [row for row in expected if row[1] != 2]
    with pytest.raises(
        InputError, match="rows cannot be divided by 'pc2' of partition spec 0: its column is not there"
    ):
        compact(lake, "rewrite", **{"rewrite-all": "true", "output-spec-id": 0})


def test_deletes_by_key_in_partitions_whose_values_are_all_there_are_applied(lake):
    cleaned(lake, required=True)
    (known,) = {values for spec_id, values in partitions(lake) if spec_id == 0}
    lake.delete_by_key(T, {"id": [1]}, partition=known, spec_id=0)
    with pytest.raises(InputError, match="engines cannot read deletes by position there; rewrite them first, with"):
        compact(lake, "convert")
    compact(lake, "rewrite", **{"rewrite-all": "true", "delete-file-threshold": 1})
    assert ([row[1] for row in live(lake)], lake.state(T).deletes) == ([0, 2, 20, 3], ())


def test_a_required_partition_column_that_was_dropped_from_a_table_of_version_1_is_null_from_then_on(lake):
    cleaned(lake, version=1, required=True)
    expected = live(lake)
    assert len(expected) == 5
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert live(lake) == expected == [{1: row["id"]} for row in lake.rows(T)]
    append_null(lake, 30)
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert len(live(lake)) == 6


@pytest.mark.parametrize("version", [1, 2])
def test_a_required_partition_column_is_null_once_it_was_dropped_though_an_old_schema_has_it(lake, version):
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", DateType(), required=True))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    lake.create(T, schema, partition_spec=spec, properties={"format-version": str(version)})
    for number in range(2):
        lake.append(T, [{"id": number, "day": datetime.date(2026, 1, 5)}])
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("day")
    for number in range(2):
        append_null(lake, 10 + number)
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert [row[1] for row in live(lake)] == [0, 1, 10, 11]
    assert len(lake.state(T).data) == 2


def fixed(size, **logical):
    return {"type": "fixed", "name": f"f{size}", "size": size, **logical}


DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        ("int", "long", "long"),
        ("double", "float", "double"),
        (fixed(4, **DECIMAL), fixed(8, **DECIMAL), fixed(8, **DECIMAL)),
        ({"type": "int", "logicalType": "date"}, "int", {"type": "int", "logicalType": "date"}),
    ],
)
def test_values_of_before_and_after_a_promotion_have_one_type(one, other, wider):
    assert _wider(one, other) == wider


@pytest.mark.parametrize(("one", "other"), [("string", "int"), (fixed(4), fixed(8)), ("int", "float")])
def test_values_that_no_one_type_holds_are_named(one, other):
    with pytest.raises(ValueError, match=" and of "):
        _wider(one, other)
