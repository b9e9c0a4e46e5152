"""No file is skipped that has a row for which a filter is true: held against reading all rows of all files."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import reduce
from operator import and_, or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.skipping import KnownColumn, may_match

ZONE = dt.UTC
VALUES = {
    "i": (pa.int32(), st.integers(-3, 3)),
    "l": (pa.int64(), st.sampled_from([-(2**63), -(2**53) - 1, -1, 0, 2**53, 2**53 + 1, 2**63 - 1])),
    "x": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.1, 1.5, math.inf, math.nan])),
    "f": (pa.float32(), st.sampled_from([-1.5, -0.0, 0.0, 0.1, 1.5, math.nan])),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "b", "zoë", "zz", "\U0010ffff"])),
    "w": (pa.binary(), st.sampled_from([b"", b"\x00", b"a", b"\xff", b"\xff\xff"])),
    "d": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.00"), Decimal("0.00"), Decimal("0.01"), Decimal("7.50")])),
    "t": (
        pa.timestamp("us", "UTC"),
        st.sampled_from([dt.datetime(1969, 12, 31, 23, tzinfo=ZONE), dt.datetime(2026, 1, 3, 4, 5, 6, 7, tzinfo=ZONE)]),
    ),
    "y": (pa.date32(), st.sampled_from([dt.date(1969, 1, 1), dt.date(2026, 1, 3), dt.date(2026, 1, 4)])),
    "b": (pa.bool_(), st.booleans()),
}
NUMBERS = ("i", "x", "f")


def known_of(column: pa.ChunkedArray, drawn) -> KnownColumn:
    """What a manifest may say of a column: nothing that is wrong, and not everything that is right."""
    if not drawn(st.integers(0, 5)):
        return KnownColumn()
    nan = pc.fill_null(pc.is_nan(column), False) if pa.types.is_floating(column.type) else pc.is_null(pc.scalar(1))
    has_nan = pa.types.is_floating(column.type) and pc.any(nan).as_py()
    values = pc.drop_null(column.filter(pc.invert(nan)) if pa.types.is_floating(column.type) else column)
    order = values.take(pc.sort_indices(values)) if len(values) else values
    unsure = drawn(st.integers(0, 7))
    return KnownColumn(
        None if not len(order) or unsure == 1 else order[0],
        None if not len(order) or unsure == 2 else order[-1],
        values=bool(len(values)) or unsure == 3,
        nulls=bool(column.null_count) or unsure == 4,
        nans=bool(has_nan) or unsure == 5,
    )


@st.composite
def conditions(draw, names, depth=3):
    """An expression of truth: comparisons, sets, nulls, and what can be made of these."""
    made = draw(st.integers(0, 7 if depth else 3))
    if made >= 4:
        one = draw(conditions(names, depth=depth - 1))
        if made == 4:
            return ~one
        other = draw(conditions(names, depth=depth - 1))
        if made == 5:
            return one & other
        if made == 6:
            return one | other
        return (
            pc.if_else(one, other, draw(conditions(names, depth=depth - 1)))
            if draw(st.booleans())
            else pc.coalesce(one, other)
        )
    name = draw(st.sampled_from(names))
    column, (type_, values) = pc.field(name), VALUES[name]
    if made == 0:
        return column.is_null(nan_is_null=draw(st.booleans())) if draw(st.booleans()) else column.is_valid()
    if made == 1:
        if name in NUMBERS and draw(st.booleans()):
            values, type_ = st.sampled_from([-1.5, 0.1, 2.0]), pa.float64()
        some = draw(st.lists(st.none() | values, max_size=3))
        return column.isin(pa.array(some, type_))
    if made == 2 and name in NUMBERS:
        how, number = draw(st.integers(0, 4)), draw(st.sampled_from([-1.0, 0.0, 0.1, 1.0]))
        if how == 4:
            return pc.is_nan(column.cast(pa.float64(), safe=False))
        computed = [column + 1.0, column * -1.0, pc.abs(column), column.cast(pa.float64(), safe=False)][how]
        return computed <= number if draw(st.booleans()) else computed == number
    value = draw(values)
    if made == 3 and name in NUMBERS:
        value, type_ = draw(st.sampled_from([-1.5, 0.1, 2.0, math.nan])), pa.float64()
    literal = pa.scalar(value, type_)
    ways = [
        column == literal,
        column != literal,
        column < literal,
        column <= literal,
        column > literal,
        literal <= column,
    ]
    return draw(st.sampled_from(ways))


@st.composite
def tables(draw, names):
    rows = draw(st.integers(0, 3))
    columns = [(VALUES[name][0], st.none() | VALUES[name][1]) for name in names]
    drawn = [pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), type_) for type_, values in columns]
    return pa.table(drawn, list(names))


@given(st.data())
def test_no_file_is_skipped_that_has_a_row_which_is_wanted(data):
    names = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3, unique=True))
    files, wanted = data.draw(st.lists(tables(names), min_size=1, max_size=4)), data.draw(conditions(names))
    has = [table.filter(wanted).num_rows > 0 for table in files]
    known = [{name: known_of(table[name], data.draw) for name in names} for table in files]
    may = may_match(wanted, files[0].schema, known)
    assert all(opened for opened, needed in zip(may, has, strict=True) if needed), (str(wanted), may, has)


X, NAN = pc.field("x"), pa.scalar(math.nan)
FLOATS = pa.schema([("x", pa.float64())])
FROM_1_TO_3 = {"low": pa.scalar(1.0), "high": pa.scalar(3.0)}


@pytest.mark.parametrize(
    ("wanted", "values", "null", "nan"),
    [
        (X > 5, False, False, False),
        (~(X <= 5), False, False, True),
        (X != 2, True, False, True),
        (X.is_null(), False, True, False),
        (~(X.isin([1.0, 2.0])), True, True, True),
        (pc.coalesce(X, 9.0) > 5, True, True, False),  # Arrow cannot tell of values, and of null it can
        ((X > 5).is_null(), False, True, False),
        (pc.is_nan(X) & (X > 5), False, False, False),
    ],
    ids=str,
)
def test_values_nulls_and_nan_decide_each_by_itself(wanted, values, null, nan):
    alone = [
        KnownColumn(**FROM_1_TO_3, nulls=False, nans=False),
        KnownColumn(values=False, nans=False),
        KnownColumn(values=False, nulls=False),
    ]
    assert may_match(wanted, FLOATS, [{"x": known} for known in alone]) == [values, null, nan]
    assert may_match(wanted, FLOATS, [{"x": KnownColumn(**FROM_1_TO_3)}, {}]) == [values or null or nan, True]


@pytest.mark.parametrize("wanted", [~(X < NAN), ~(X <= NAN), X != NAN, ~(X < NAN) & (X > 0)])
def test_nothing_is_less_than_nan_and_so_all_rows_are_wanted_that_are_not(wanted):
    assert pa.table({"x": [1.0, 3.0]}).filter(wanted).num_rows == 2
    assert may_match(wanted, FLOATS, [{"x": KnownColumn(**FROM_1_TO_3, nulls=False, nans=False)}]) == [True]


def test_bounds_that_contradict_each_other_and_filters_that_do_not_fit_skip_nothing():
    backwards = KnownColumn(pa.scalar(3.0), pa.scalar(1.0))
    assert may_match(X > 5, FLOATS, [{"x": backwards}]) == [True]
    assert may_match(X == "text", FLOATS, [{"x": KnownColumn(**FROM_1_TO_3)}]) == [True]
    assert may_match(pc.field("y") > 5, FLOATS, [{"x": KnownColumn(**FROM_1_TO_3)}]) == [True]


FLOAT_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("value", [0.1, -0.1, 0.7, 1e-45, FLOAT_MAX, -FLOAT_MAX, 3e38, 1e300, math.inf, -math.inf])
def test_a_set_of_doubles_holds_the_float32_next_to_each(value):
    """0.1f is a little more than 0.1. A file of it was skipped, and a file of 0.1f and 0.5f was not."""
    files, wanted = [pa.table({"f": pa.array(some, pa.float32())}) for some in ([value], [value, 0.5])], [value]
    condition = pc.field("f").isin(pa.array(wanted, pa.float64()))
    assert [table.filter(condition).num_rows for table in files] == [1, 1]
    known = [{"f": known_of(table["f"], lambda _: 9)} for table in files]
    assert may_match(condition, files[0].schema, known) == [True, True]
    assert may_match(pc.field("f").isin([12.5]), files[0].schema, known[:1]) == [False]


def test_a_filter_by_many_columns_has_few_cases():
    """Any of them may be null where another one matches: no more cases are made than can be asked."""
    names = [f"c{number}" for number in range(40)]
    columns = pa.schema([(name, pa.int64()) for name in names])
    small, large = (KnownColumn(pa.scalar(low), pa.scalar(low + 1), nulls=False) for low in (1, 8))
    files = [dict.fromkeys(names, small), dict.fromkeys(names, small) | {"c0": large}]
    assert may_match(reduce(or_, (pc.field(name) > 7 for name in names)), columns, files)[1]
    assert may_match(reduce(and_, (pc.field(name) > 7 for name in names)), columns, files) == [False, False]
