"""Values of every type that has an order, for columns of random tables; and the same values in Python's order."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import strategies as st

LONG = "https://www.example.com/"
WORDS = st.one_of(st.text(max_size=12), st.builds(LONG.__add__, st.text("ab\0é\U0001f600", max_size=10)))
FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, -math.inf, math.inf]))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NEAR = st.integers(-3, 3)
TYPES = {
    pa.bool_(): st.booleans(),
    pa.int32(): NEAR,
    pa.int64(): st.one_of(NEAR, INT64),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.float32(): FLOATS,
    pa.float64(): FLOATS,
    pa.date32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.timestamp("s"): st.one_of(NEAR, INT64),
    pa.timestamp("us", "UTC"): st.one_of(NEAR, INT64),
    pa.timestamp("ns", "Europe/Berlin"): st.one_of(NEAR, INT64),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1),
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.binary(): st.one_of(st.binary(max_size=12), st.builds(b"12345678".__add__, st.binary(max_size=9))),
    pa.binary(16): st.one_of(st.binary(min_size=16, max_size=16), st.sampled_from([b"\0" * 16, b"\0" * 15 + b"\1"])),
}


def array_of(type_, values):
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int32() if type_ == pa.date32() else pa.int64()).cast(type_)
    return pa.array(values, type_)


def comparable(column):
    """The values as Python can compare them: a float becomes (0, value), NaN (1, 0.0)."""
    type_ = column.type
    if pa.types.is_temporal(type_):
        column = column.cast(pa.int32() if type_ == pa.date32() else pa.int64())
    found = []
    for value in column.to_pylist():
        if isinstance(value, float):
            value = (1, 0.0) if math.isnan(value) else (0, value)
        found.append(value.encode() if isinstance(value, str) else value)
    return found
