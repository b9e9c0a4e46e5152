"""Partitions whose values look alike."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from iceberg_lake import Lake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, NestedField

from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.convert.options import convert_options
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import CONVERT

T = "ns.t"


def by_float(lake: Lake) -> None:
    """Two rows of id 1: one in the partition 0.0, and one in the partition -0.0, where id 1 is deleted."""
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "f", DoubleType()))
    lake.create(T, schema, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "f")))
    table = IcebergTable.load(lake.catalog, T)
    for zero in (0.0, -0.0):
        rows = pa.table({"id": [1, 2], "f": [zero, zero]}).cast(table.metadata.schema)
        lake.commit(table, [lake._file(table, rows, Content.DATA, (zero,), None, ())], operation="append")
        table = table.reloaded()
    lake.delete_by_key(T, {"id": [1]}, (-0.0,))


@pytest.mark.parametrize("mode", ["rewrite", "convert"])
def test_zero_and_minus_zero_are_two_partitions(lake, mode):
    by_float(lake)
    if mode == "rewrite":
        lake.rewrite(T, rewrite_all=True)
    else:
        ModeRun(IcebergTable.load(lake.catalog, T), "main", convert_options({}), mode=CONVERT).run()
    assert [(row["id"], str(row["f"])) for row in lake.rows(T)] == [(1, "0.0"), (2, "-0.0"), (2, "0.0")]
    state = lake.state(T)
    assert sorted(str(entry.file.partition[0]) for entry in state.data) == ["-0.0", "0.0"]
    listed = [manifest.partitions[0] for manifest in state.manifests if manifest.added_files == 2]
    if mode == "rewrite":
        assert [(summary["lower_bound"], summary["upper_bound"]) for summary in listed] == [
            (struct.pack("<d", -0.0), bytes(8))
        ]
