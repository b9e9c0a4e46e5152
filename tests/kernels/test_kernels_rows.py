"""Bytes and sums of whole rows against their plain twins: every type, nested ones, slices, ids and names.

golden/row_vectors.txt has bytes that must never change. `UPDATE_GOLDEN=1 pytest tests/kernels/test_kernels_rows.py`
rewrites them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reference_kernels as reference
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_columns import KINDS, drawn_column

from deltacompact import _kernels as kernels

GOLDEN = Path(__file__).parents[1] / "golden" / "row_vectors.txt"


def identified(name: str, type_: pa.DataType, number: int | None) -> pa.Field:
    return pa.field(name, type_, metadata=None if number is None else {"PARQUET:field_id": str(number)})


@st.composite
def drawn_array(draw: st.DrawFn, rows: int, depth: int = 2) -> pa.Array:
    """A column of any type, with nulls, as a slice out of a longer array."""
    kind = (
        draw(st.sampled_from(["flat", "flat", "struct", "list", "large list", "fixed list", "map"]))
        if depth
        else "flat"
    )
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    length = before + rows + after
    nulls = pa.array(draw(st.lists(st.booleans(), min_size=length, max_size=length)), pa.bool_())
    if kind == "flat":
        return draw(drawn_column(KINDS, rows))[0]
    if kind == "struct":
        return draw(drawn_struct(length, depth - 1, nulls)).slice(before, rows)
    if kind == "fixed list":
        items = draw(drawn_array(2 * length, depth - 1))
        return pa.FixedSizeListArray.from_arrays(items, 2, mask=nulls).slice(before, rows)
    ends = draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
    offsets = [sum(ends[:place]) for place in range(length + 1)]
    items = draw(drawn_array(offsets[-1], depth - 1))
    if kind == "map":
        keys = pa.array([f"k{place}" for place in range(offsets[-1])], pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=nulls).slice(before, rows)
    if kind == "list":
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=nulls).slice(before, rows)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items, mask=nulls).slice(before, rows)


@st.composite
def drawn_struct(draw: st.DrawFn, rows: int, depth: int = 2, nulls: pa.Array | None = None) -> pa.StructArray:
    columns = draw(st.lists(drawn_array(rows, depth), min_size=1, max_size=3))
    numbers = draw(st.permutations(range(1, 400)))[: len(columns)] if draw(st.booleans()) else [None] * len(columns)
    fields = [
        identified(f"{'é' * place}c", column.type, number)
        for place, (column, number) in enumerate(zip(columns, numbers, strict=True))
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=nulls)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 5).flatmap(drawn_struct))
def test_row_bytes_and_sums_are_those_of_the_twin(rows: pa.StructArray) -> None:
    assert kernels.row_bytes(rows, rows.type) == reference.row_bytes(rows)
    assert kernels.row_sum(rows, rows.type) == reference.row_sum(rows)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 5).flatmap(drawn_struct), st.data())
def test_parts_of_rows_add_up(rows: pa.StructArray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    parts = kernels.row_sum(rows.slice(0, cut), rows.type) + kernels.row_sum(rows.slice(cut), rows.type)
    assert parts % 2**128 == kernels.row_sum(rows, rows.type)


@pytest.mark.parametrize("line", range(len(GOLDEN.read_text().splitlines())))
def test_golden_row_vectors(line: int) -> None:
    lines = GOLDEN.read_text().splitlines()
    case = json.loads(lines[line])
    fields = [identified(name, eval(kind, vars(pa)), number) for number, name, kind in case["columns"]]
    columns = [pa.array([stored(row[n], f.type) for row in case["rows"]], f.type) for n, f in enumerate(fields)]
    rows = pa.table(columns, pa.schema(fields)).to_struct_array().combine_chunks() if columns else pa.array([{}])
    found = case | {
        "bytes": [row.hex() for row in kernels.row_bytes(rows, rows.type)],
        "sum": f"{kernels.row_sum(rows, rows.type):032x}",
    }
    if "UPDATE_GOLDEN" in os.environ:
        lines[line] = json.dumps(found)
        GOLDEN.write_text("\n".join(lines) + "\n")
    assert found == case


def stored(value: Any, type_: pa.DataType) -> Any:
    """A value of a golden vector as pyarrow takes it."""
    if pa.types.is_map(type_):
        return value and [tuple(pair) for pair in value]
    return value.encode() if pa.types.is_binary(type_) else value


def test_ids_are_those_of_the_schema_at_any_depth() -> None:
    plain = pa.struct([("a", pa.list_(pa.struct([("x", pa.int8()), ("y", pa.int8())])))])
    inside = pa.struct([identified("x", pa.int8(), 5), identified("y", pa.int8(), 4)])
    schema = pa.struct([identified("a", pa.list_(inside), 7)])
    rows = [{"a": [{"x": 1, "y": 2}, None]}, {"a": None}]
    assert kernels.row_bytes(pa.array(rows, plain), schema) == reference.row_bytes(pa.array(rows, schema))
    assert kernels.row_bytes(pa.array(rows, schema), plain) == reference.row_bytes(pa.array(rows, plain))


def test_what_is_no_row_is_refused() -> None:
    spans = pa.struct([("span", pa.month_day_nano_interval())])
    wrong = pa.struct([pa.field("a", pa.int8(), metadata={"PARQUET:field_id": "x"})])
    for rows, schema, why in (
        (pa.array([1]), pa.struct([]), "want a struct array and a struct as its schema, got Int64 and Struct"),
        (pa.array([{}]), wrong, r'want the schema\'s fields \["a"\], got \[\]'),
        (pa.array([{"a": [1]}]), pa.struct([("a", pa.int8())]), 'column "a": .*List.* does not fit the schema\'s Int8'),
        (pa.array([{"span": None}], spans), spans, 'column "span": Arrow type Interval.* has no canonical form'),
        (pa.array([], wrong), wrong, 'column "a": "x" is no field id'),
    ):
        with pytest.raises(ValueError, match=why):
            kernels.row_sum(rows, schema)
