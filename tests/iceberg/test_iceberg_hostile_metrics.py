"""Bounds of what we write: readers skip files by them, and so do we, so a wrong one loses rows or brings them back."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import SETTINGS
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DateType, IntegerType, NestedField, StringType, TimestampType

from deltacompact.iceberg.table.column_metrics import MeasuredColumn, metrics_of
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

T = "ns.t"
LONG = 5000
"""More characters than Arrow puts into the statistics of a row group."""


def test_a_row_group_without_statistics_takes_the_bounds_from_the_whole_file(lake):
    columns = [
        NestedField(1, "id", IntegerType()),
        NestedField(2, "s", StringType()),
        NestedField(3, "b", BinaryType()),
    ]
    lake.create(T, Schema(*columns))
    lake.append(T, [{"id": number, "s": "m", "b": b"m"} for number in range(10)])
    letters = ["a", "z"] * 5
    lake.append(T, [{"id": 10, "s": letter * LONG, "b": letter.encode() * LONG} for letter in letters])
    lake.rewrite(T, rewrite_all=True, settings=replace(SETTINGS, row_group_rows=10))
    (data,) = lake.state(T).data
    assert len(data.file.split_offsets) == 2
    assert not {2, 3} & ({*data.file.lower_bounds} | {*data.file.upper_bounds})
    assert data.file.null_value_counts == {1: 0, 2: 0, 3: 0}
    table = lake.catalog.load_table(T)
    assert [table.scan(row_filter=where).count() for where in ("s < 'b'", "s > 'y'", "id = 10")] == [5, 5, 10]


def test_an_equality_delete_of_a_long_key_hits_an_output_of_ours(lake):
    lake.create(T, Schema(NestedField(1, "id", IntegerType()), NestedField(2, "s", StringType())))
    lake.append(T, [{"id": 1, "s": "m"}])
    lake.append(T, [{"id": 2, "s": "z" * LONG}])
    lake.rewrite(T, rewrite_all=True, settings=replace(SETTINGS, row_group_rows=1))
    lake.delete_by_key(T, {"s": ["z" * LONG]})
    lake.rewrite(T, rewrite_all=True)
    assert [row["id"] for row in lake.rows(T)] == [1]


@pytest.mark.parametrize(
    ("type_", "stored", "least", "greatest"),
    [
        (DateType(), pa.array([5_000_000, -800_000], pa.int32()).cast(pa.date32()), -800_000, 5_000_000),
        (TimestampType(), pa.array([2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us")), -(2**62), 2**62),
    ],
)
def test_years_that_python_does_not_have_are_rewritten_with_bounds(lake, type_, stored, least, greatest):
    lake.create(T, Schema(NestedField(1, "id", IntegerType()), NestedField(2, "at", type_)))
    table = IcebergTable.load(lake.catalog, T)
    rows = pa.table([pa.array([1, 2], pa.int32()), stored], schema=table.metadata.schema)
    lake.commit(table, [lake._file(table, rows, Content.DATA, (), None, ())], operation="append")
    lake.rewrite(T, rewrite_all=True)
    (data,) = lake.state(T).data
    width = "<i" if isinstance(type_, DateType) else "<q"
    assert data.file.lower_bounds[2] == struct.pack(width, least)
    assert data.file.upper_bounds[2] == struct.pack(width, greatest)


def _bounds(values: pa.Array, measured: MeasuredColumn) -> tuple[bytes | None, bytes | None]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": values}), sink)
    found = metrics_of(pq.read_metadata(sink), {"c": measured}, {1: 0})
    return found.lower_bounds.get(1), found.upper_bounds.get(1)


CUT = MeasuredColumn(1, "string", length=3)
BINARY = MeasuredColumn(1, "binary", length=3)


@pytest.mark.parametrize(
    ("values", "measured", "lower", "upper"),
    [
        (pa.array(["abcd"]), CUT, b"abc", b"abd"),
        (pa.array(["abc"]), CUT, b"abc", b"abc"),
        (pa.array(["\ud7ff" * 4]), CUT, ("\ud7ff" * 3).encode(), "\ud7ff\ud7ff\ue000".encode()),
        (pa.array(["ab\U0010ffffd"]), CUT, "ab\U0010ffff".encode(), b"ac"),
        (pa.array(["\U0010ffff" * 4]), CUT, ("\U0010ffff" * 3).encode(), None),
        (pa.array(["ééééé"]), CUT, "ééé".encode(), "ééê".encode()),
        (pa.array([b"ab\xff\xff"]), BINARY, b"ab\xff", b"ac"),
        (pa.array([b"\xff" * 4]), BINARY, b"\xff" * 3, None),
        (pa.array([0.0]), MeasuredColumn(1, "double"), struct.pack("<d", -0.0), struct.pack("<d", 0.0)),
        (pa.array([float("nan")]), MeasuredColumn(1, "double"), None, None),
        (
            pa.array([-1, 1], pa.timestamp("ns")),
            MeasuredColumn(1, "timestamp"),
            struct.pack("<q", -1),
            struct.pack("<q", 1),
        ),
        (pa.array([1], pa.timestamp("ms")), MeasuredColumn(1, "timestamp_ns"), *[struct.pack("<q", 1_000_000)] * 2),
        (
            pa.array([2**31 + 5, 1], pa.uint32()),
            MeasuredColumn(1, "long"),
            *map(struct.Struct("<q").pack, (1, 2**31 + 5)),
        ),
        (pa.array([1], pa.date32()), MeasuredColumn(1, "timestamp"), None, None),
    ],
)
def test_bounds_hold_however_the_values_are_stored(values, measured, lower, upper):
    assert _bounds(values, measured) == (lower, upper)
