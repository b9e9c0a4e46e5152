"""Expressions about rows mean what they mean in SQL: DuckDB judges, null is neither in a list nor outside of it.

n is 1, 2, null, 3       not (n in (1, 2))      the row with 3 alone
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.pyiceberg_door.row_filters import row_filter

ROWS = pa.table(
    {
        "row": pa.array([0, 1, 2, 3]),
        "n": pa.array([1, 2, None, 3]),
        "big": pa.array([1, 2**63, None, 3], pa.uint64()),
        "price": pa.array([Decimal("1.00"), Decimal("1.01"), None, Decimal("3.50")], pa.decimal128(9, 2)),
        "name": pa.array(["a", "b", None, ""]),
        "day": pa.array([date(1969, 1, 1), date(2026, 11, 22), None, date(1, 1, 1)]),
        "moment": pa.array([datetime(1970, 1, 1), datetime(1, 1, 1), None, datetime(2026, 1, 1)], pa.timestamp("us")),
        "share": pa.array([0.35, -0.0, None, 0.0]),
        "half": pa.array([0.5, -0.0, None, 2.5], pa.float16()),
        "kind": pa.array(["a", "b", None, ""]).dictionary_encode(),
        "clock": pa.array([time(0), time(0, 0, 1), None, time(23)], pa.time64("us")),
    }
)


@pytest.mark.parametrize(
    "where",
    [
        *(
            "n in (1, 2)",
            "n not in (1, 2)",
            "not (n in (1, 2))",
            "not (n in (1) or name = 'q')",
            "not (n not in (1, 2))",
        ),
        *("not (n = 1)", "n != 1", "not (n is null)", "n is not null", "not (n > 1 and name = 'b')"),
        *("big = 9223372036854775808", "big > 3", "price > 1", "price = 1", "price >= 1.01", "price in (1.0, 3.5)"),
        *("name like 'a%'", "not (name like 'a%')", "name = ''", "day < '1970-01-01'", "day not in ('2026-11-22')"),
        *("share = 0.35", "share <= 0.35", "share in (0.35, 7.0)", "share not in (0.35, 7.0)", "share = 0.0"),
        *("share in (0.0, 7.0)", "share in (-0.0, 7.0)", "share not in (0, 7)"),
        *("half = 0.5", "half in (0.0, 2.5)", "half > 1"),
        *("kind = 'a'", "kind in ('a', '')", "kind not in ('a', '')", "kind like 'b%'", "kind > 'a'", "kind is null"),
        *("moment >= '1970-01-01 00:00'", "moment in ('2026-01-01')"),
        *("moment >= '1970-01-01T00:00:00'", "clock > '00:00:00'", "not (clock = '23:00:00')"),
    ],
)
def test_a_row_is_kept_where_sql_keeps_it(where):
    with duckdb.connect() as connection:
        judged = [field.with_type(pa.float32()) if field.name == "half" else field for field in ROWS.schema]
        connection.register("rows", ROWS.cast(pa.schema(judged)))  # DuckDB has no half floats
        expected = [number for (number,) in connection.sql(f"SELECT row FROM rows WHERE {where} ORDER BY 1").fetchall()]
    assert ROWS.filter(row_filter(where, ROWS.schema))["row"].to_pylist() == expected


@pytest.mark.parametrize(
    "where", ["n = 9223372036854775808", "n > 2.5", "price = 1.005", "price = 10000000", "clock = 'noon'", "big > -1"]
)
def test_a_value_that_the_column_cannot_hold_is_told_in_one_line(where):
    with pytest.raises(InputError, match=r"is not an expression about this table: .+"):
        row_filter(where, ROWS.schema)


@pytest.mark.parametrize(
    "name", ["a.b", ".", 'say "hi"', "back\\slash", "tab\tbed", "new\nline", "größe", "a'b", "_quoted_0"]
)
def test_a_column_of_any_name_is_named_in_quotes(name):
    """A dot or a quote in it could not be parsed, and a backslash or a tab made another name of it."""
    rows = pa.table({name: [1, 2, 3], "v": ["x", '"x"', "it's"]})
    quoted = '"{}"'.format(name.replace('"', '""'))
    assert rows.filter(row_filter(f"{quoted} > 1 and v != '\"x\"'", rows.schema))[name].to_pylist() == [3]
    with pytest.raises(InputError, match="there is no column 'no such'"):
        row_filter('"no such" = 1', rows.schema)


def test_a_tab_in_a_value_is_a_tab():
    rows = pa.table({"v": ["a\tb", "a    b", "a  b"]})
    assert rows.filter(row_filter("v = 'a\tb'", rows.schema))["v"].to_pylist() == ["a\tb"]


def test_a_quoted_name_is_never_taken_for_a_column_that_is_called_like_its_stand_in():
    rows = pa.table({"a.b": [1, 3], "_quoted_0": [5, 1]})
    assert rows.filter(row_filter('"a.b" > 1 and _quoted_0 = 1', rows.schema)).num_rows == 1
    assert rows.filter(row_filter('_quoted_0 = 5 or "a.b" = 3', rows.schema)).num_rows == 2


def test_digits_beyond_the_microsecond_count():
    rows = pa.table({"t": pa.array([1_000_000_001, 1_000_000_002], pa.timestamp("ns"))})
    assert rows.filter(row_filter("t > '1970-01-01 00:00:01.000000001'", rows.schema)).num_rows == 1


@pytest.mark.parametrize(
    ("unit", "fraction", "message"),
    [("s", ".5", "have whole seconds, and .* has 1: a time"), ("ms", ".0005", "have 3 digits .* has 4: a time")],
)
def test_digits_beyond_those_of_the_column_are_refused_with_the_form(unit, fraction, message):
    rows = pa.table({"t": pa.array([0, 1, 2], pa.timestamp(unit))})
    with pytest.raises(InputError, match=message):
        row_filter(f"t > '1970-01-01 00:00:00{fraction}'", rows.schema)
    assert rows.filter(row_filter("t > '1970-01-01 00:00:00.000000000'", rows.schema)).num_rows == 2
