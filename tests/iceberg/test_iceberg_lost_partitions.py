"""Deletes of a partition whose value was lost for the data files, or for the deletes, when Java merged their manifests.

    data a    day null    rows 0, 1        written for day 1; merged after `day` was dropped
    data b    day null    rows 2, 3        written for day 2
    delete    day 1       (a, 0)           row 0 stays deleted

Java has done this to tables as soon as `day` is dropped. Later, an expiry may clean the schemas that had it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from iceberg_lake import sorted_rows
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField
from table_t import clean, compact, ids

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

T = "ns.t"
LOST = [((None,), (1,)), ((1,), (None,)), ((None,), (None,))]
"""The partitions that manifests have for the data files, and for the deletes."""


def dropped(lake, partition, is_cleaned=False):
    """Three files of spec 0 with two rows each, in this partition. Their column is dropped."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", IntegerType()))
    by_day = PartitionField(2, 1000, IdentityTransform(), "day")
    spec = PartitionSpec(by_day, PartitionField(1, 1001, BucketTransform(2), "bucket"))
    lake.create(T, schema, partition_spec=spec, properties={"format-version": "2"})
    table = IcebergTable.load(lake.catalog, T)
    files = []
    for first in (0, 2, 4):
        rows = pa.table({"id": pa.array([first, first + 1]), "day": pa.array([1, 1])}).cast(table.metadata.schema)
        files.append(lake._file(table, rows, Content.DATA, (*partition, 0), None, ()))
        lake.commit(IcebergTable.load(lake.catalog, T), files[-1:], operation="append")
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
        update.remove_field("bucket")
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("day")
    if is_cleaned:
        clean(lake)
    return [file.path for file in files]


def delete(lake, partition, positions):
    """A position-delete file whose manifest has another partition than that of its data files."""
    table = IcebergTable.load(lake.catalog, T)
    file = lake._position_file(table, lake.state(T), positions)
    lake.commit(table, [replace(file, partition=(*partition, 0))])
    return file.path


def delete_paths(lake):
    return {entry.file.path for entry in lake.state(T).deletes}


@pytest.mark.parametrize("is_cleaned", [False, True])
@pytest.mark.parametrize(("of_data", "of_deletes"), LOST)
@pytest.mark.slow
def test_rows_stay_deleted_by_position_though_the_partition_was_lost(lake, of_data, of_deletes, is_cleaned):
    a, b, c = dropped(lake, of_data, is_cleaned)
    of_one = delete(lake, of_deletes, {a: [0]})
    of_two = delete(lake, of_deletes, {b: [1], c: [0]})
    catalog = deltacompact.open_catalog(lake.catalog)
    catalog.maintain(T, rewrite_manifests=True)
    compact(
        lake, "rewrite", **{"remove-dangling-deletes": "true", "min-input-files": 100, "delete-ratio-threshold": 0.9}
    )
    assert delete_paths(lake) == {of_one, of_two}
    compact(lake, "rewrite", **{"rewrite-all": "true", "output-spec-id": lake.state(T).metadata.default_spec_id})
    assert (ids(lake), delete_paths(lake)) == ([1, 2, 5], set())


@pytest.mark.parametrize(("of_data", "of_deletes"), LOST)
def test_a_rewrite_within_its_spec_applies_deletes_of_a_lost_partition_and_removes_them(lake, of_data, of_deletes):
    a, b, _ = dropped(lake, of_data)
    delete(lake, of_deletes, {a: [0], b: [1]})
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert (ids(lake), delete_paths(lake)) == ([1, 2, 4, 5], set())


def test_a_delete_of_a_lost_partition_that_came_after_the_plan_follows_its_row(lake):
    a, _, _ = dropped(lake, (1,))
    late = iter([lambda: delete(lake, (None,), {a: [0]})])
    prepared = lake.prepared(T, rewrite_all="true", before_commit=lambda: next(late, lambda: None)())
    result = prepared.run()
    assert (result.redone, result.dead_meanwhile, len(delete_paths(lake))) == (0, 1, 1)
    assert ids(lake) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("of_data", "of_deletes"), LOST)
def test_deletes_by_key_of_a_lost_partition_are_refused_in_all_modes(lake, of_data, of_deletes):
    dropped(lake, of_data)
    lake.delete_by_key(T, {"id": [0]}, partition=(*of_deletes, 0), spec_id=0)
    head = lake.catalog.load_table(T).metadata_location
    for work in (
        lambda: compact(lake, "rewrite", **{"rewrite-all": "true"}),
        lambda: compact(lake, "rewrite", **{"remove-dangling-deletes": "true"}),
        lambda: compact(lake, "convert"),
        lambda: compact(lake, "upsert", **{"key-columns": "id"}),
    ):
        with pytest.raises(InputError, match=r"deletes by key in partition spec 0 .* its field 'day' is lost"):
            work()
    assert lake.catalog.load_table(T).metadata_location == head


def test_tables_without_deletes_in_such_partitions_are_rewritten(lake):
    dropped(lake, (None,))
    lake.delete_by_key(T, {"id": [3]})
    compact(lake, "rewrite", **{"rewrite-all": "true"})
    assert sorted_rows(lake.rows(T)) == [{"id": number} for number in (0, 1, 2, 4, 5)]
