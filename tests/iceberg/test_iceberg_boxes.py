"""Boxes of an Iceberg table's files: from manifests of several writers, whatever they say of their columns."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from deltacompact.base.errors import InputError
from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.column_bounds import comparable, ordered
from deltacompact.layout.depth import depth_of
from deltacompact.maintenance.iceberg_check import check_branch

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("place", pa.struct([("x", pa.int32())]))]
)


def rows(ids, name="ada", price=1.0):
    return [{"id": id_, "name": name, "price": price, "place": None} for id_ in ids]


@pytest.fixture
def branch(lake):
    lake.create("ns.t", SCHEMA)
    for ids, name, price in (
        (range(4), "ada", 1.0),
        (range(2, 6), None, float("nan")),
        (range(10, 12), "zoe", 2.0),
    ):
        lake.append("ns.t", rows(ids, name, price))
    return lake.state("ns.t")


def ranges(state, *columns, data=None):
    found = boxes_of_files(state.metadata, data or by_id(state), columns)
    return [
        list(zip(low, high, strict=True)) for low, high in zip(found.low.tolist(), found.high.tolist(), strict=True)
    ]


def by_id(state):
    return sorted(state.data, key=lambda entry: entry.file.lower_bounds[1])


def test_bounds_become_ranks(branch):
    ids, names = ranges(branch, "id", "name")
    assert ids == [(0, 4), (2, 6), (8, 10)]
    assert names == [(2, 2), (0, 0), (4, 4)]  # a file of nulls comes before all values
    assert depth_of(boxes_of_files(branch.metadata, branch.data, ["id"])).most == 2


def test_nan_comes_after_all_numbers(branch):
    prices = ranges(branch, "price")[0]
    assert prices[1][0] > prices[2][1] or prices[1][0] < prices[1][1]  # NaN is counted, or anything is possible


@pytest.mark.parametrize("bad", [{}, {1: b"\1\2\3"}, {1: b""}])
def test_a_file_without_bounds_may_hold_any_value(branch, bad):
    first, *others = by_id(branch)
    unknown = replace(first, file=replace(first.file, lower_bounds=bad, upper_bounds=bad))
    ids = ranges(branch, "id", data=[unknown, *others])[0]
    assert ids[0][0] < min(low for low, _ in ids[1:])
    assert ids[0][1] > max(high for _, high in ids[1:])


def test_a_missing_upper_bound_is_open_above(branch):
    """Java leaves it away where a cut string cannot be rounded up."""
    first, *others = by_id(branch)
    upper = {number: bound for number, bound in first.file.upper_bounds.items() if number != 2}
    names = ranges(branch, "name", data=[replace(first, file=replace(first.file, upper_bounds=upper)), *others])[0]
    assert names[0][0] == names[1][1] + 2
    assert names[0][1] > names[2][1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ids", "did you mean 'id'"),
        ("place.x", "lies inside of a struct"),
        ("place", "has no order"),
        ("nowhere", "it has id, name, price, place"),
    ],
)
def test_a_column_without_order_is_refused(branch, name, says):
    with pytest.raises(InputError, match=says):
        boxes_of_files(branch.metadata, branch.data, [name])


def test_bounds_compare_as_their_columns_do():
    assert comparable(struct.pack("<i", -5), "long") == -5
    assert comparable(struct.pack("<f", 1.5), "double") == 1.5
    assert comparable(b"\xff", "decimal(9, 2)") == -1
    assert comparable(b"\1", "boolean") == 1
    assert comparable(b"12345", "timestamp") is None
    assert ordered(struct.pack("<d", 1.5), "double") is None


def test_rows_are_held_against_the_bounds_of_every_type_deleted_ones_too(lake):
    values = {
        "id": [3, -1, None],
        "name": ["z" * 40, "é" * 20, None],
        "price": [-0.0, float("nan"), 2.5],
        "cost": [Decimal("-1.50"), Decimal("99.25"), None],
        "day": [date(1969, 12, 31), date(9999, 1, 1), None],
        "at": [datetime(1, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1), None],
        "raw": [b"\xff" * 40, b"", None],
        "is_new": [True, False, None],
    }
    types = [pa.int32(), pa.string(), pa.float32(), pa.decimal128(9, 2), pa.date32(), pa.timestamp("us"), pa.binary()]
    lake.create("ns.t", pa.schema(list(zip(values, [*types, pa.bool_()], strict=True))))
    lake.append("ns.t", [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)])
    lake.append("ns.t", [dict.fromkeys(values)])
    lake.delete_by_key("ns.t", {"id": [3]})
    store, state = lake.store("ns.t"), lake.state("ns.t")
    found = check_branch(store, state)
    assert (found.files, found.rows, found.problems) == (2, 4, ())

    def problems(**changes):
        entries = [
            replace(entry, file=replace(entry.file, **changes)) for entry in state.data if entry.file.lower_bounds
        ]
        return check_branch(store, replace(state, data=tuple(entries))).problems

    bounded = next(entry.file for entry in state.data if entry.file.lower_bounds)
    for column in bounded.upper_bounds:
        name = state.metadata.columns[column].field.name
        (problem,) = problems(lower_bounds=bounded.lower_bounds | {column: bounded.upper_bounds[column]})
        assert f"column {name!r} has " in problem and "its manifest says" in problem and "\n" not in problem
    (problem,) = problems(rows=5)
    assert "holds 3 rows" in problem
    (problem,) = problems(path=bounded.path + ".gone")
    assert problem.startswith("file: ") and "gone" in problem


@pytest.mark.parametrize("file_format", ["ORC", "AVRO"])
@pytest.mark.parametrize("content", ["data", "deletes"])
def test_files_of_formats_that_we_do_not_read_are_named_as_such(lake, content, file_format):
    """Avro files passed for sound, and ORC files for damaged."""
    lake.create("ns.t", pa.schema([("id", pa.int64())]))
    lake.append("ns.t", [{"id": 1}])
    lake.delete_by_key("ns.t", {"id": [1]})
    state = lake.state("ns.t")
    bounds = {} if file_format == "AVRO" else {"lower_bounds": {1: b"\0" * 8}, "upper_bounds": {1: b"\0" * 8}}
    (entry,) = getattr(state, content)
    foreign = replace(entry, file=replace(entry.file, file_format=file_format, **bounds))
    (problem,) = check_branch(lake.store("ns.t"), replace(state, **{content: (foreign,)})).problems
    assert problem == f"file: {entry.file.path} is {file_format}: only Parquet files can be read"
