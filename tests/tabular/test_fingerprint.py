"""Fingerprints: equal for equal rows however they are stored, different after any fault, and the same from DuckDB."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import duckdb
import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.tabular.fingerprint import fingerprint_of
from deltacompact.tabular.fingerprint_sql import fingerprint_statement

DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda v: decimal.Decimal(v).scaleb(-2)),
    pa.decimal128(38, 3): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda v: decimal.Decimal(v).scaleb(-3, decimal.Context(prec=50))
    ),
    pa.date32(): DAYS,
    pa.time64("us"): st.times(),
    pa.timestamp("us"): TIMES,
    pa.timestamp("us", "UTC"): TIMES,
    pa.string(): st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9),
    pa.binary(): st.binary(max_size=9),
    pa.bool_(): st.booleans(),
}


def with_ids(schema: pa.Schema, ids: list[int]) -> pa.Schema:
    fields = [field.with_metadata({"PARQUET:field_id": str(number)}) for field, number in zip(schema, ids, strict=True)]
    return pa.schema(fields)


def of(table: pa.Table) -> Fingerprint:
    return fingerprint_of([table], table.schema, "t.parquet")


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    kind = draw(st.sampled_from(["flat", "flat", "list", "map", "struct"])) if depth else "flat"
    if kind == "list":
        return pa.list_(draw(types(depth - 1)))
    if kind == "map":
        return pa.map_(pa.string(), draw(types(depth - 1)))
    if kind == "struct":
        children = draw(st.lists(types(depth - 1), min_size=1, max_size=2))
        struct = pa.schema([(f'it\'s "{place}"', child) for place, child in enumerate(children)])
        return pa.struct(with_ids(struct, [8, 5][: len(children)]) if draw(st.booleans()) else struct)
    return draw(st.sampled_from(list(VALUES)))


def values(type_: pa.DataType) -> st.SearchStrategy:
    if pa.types.is_map(type_):
        keys = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
        some = keys.flatmap(lambda names: st.tuples(*(st.tuples(st.just(k), values(type_.item_type)) for k in names)))
        return st.none() | some.map(list)
    if pa.types.is_list(type_):
        return st.none() | st.lists(values(type_.value_type), max_size=3)
    if pa.types.is_struct(type_):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    return st.none() | VALUES[type_]


@st.composite
def tables(draw: st.DrawFn, min_rows: int = 0) -> pa.Table:
    rows = draw(st.integers(min_rows, 5))
    chosen = draw(st.lists(types(), min_size=1, max_size=3))
    columns = [pa.array(draw(st.lists(values(type_), min_size=rows, max_size=rows)), type_) for type_ in chosen]
    table = pa.table(columns, [f'c "{place}' for place in range(len(chosen))])
    if not draw(st.booleans()):
        return table
    return table.cast(with_ids(table.schema, draw(st.permutations(range(1, 9)))[: len(chosen)]))


@settings(max_examples=examples(200), deadline=None)
@given(tables())
def test_duckdb_computes_the_same(table: pa.Table) -> None:
    statement = fingerprint_statement(table.schema, "table", "duckdb").replace("FROM table", 'FROM "table"')
    ((found,),) = duckdb.sql(statement).fetchall()
    assert Fingerprint.of_text(found) == of(table)


@settings(max_examples=examples(200), deadline=None)
@given(tables(min_rows=1), st.data())
@pytest.mark.slow
def test_every_fault_is_found(table: pa.Table, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, table.num_rows - 1))
    before, one = of(table), of(table.slice(row, 1))
    rest = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
    assert of(rest) == before - one != before
    assert of(pa.concat_tables([table, table.slice(row, 1)])) == before + one != before
    column = data.draw(st.integers(0, table.num_columns - 1))
    field, flipped = table.schema.field(column), data.draw(values(table.schema.field(column).type))
    was = table.column(column).to_pylist()
    now = [flipped if place == row else value for place, value in enumerate(was)]
    changed = table.set_column(column, field, pa.chunked_array([pa.array(now, field.type)]))
    assume(repr(changed.column(column).to_pylist()).replace("-0.0", "0.0") != repr(was).replace("-0.0", "0.0"))
    assert of(changed) != before


def test_values_exchanged_between_keys_are_found() -> None:
    assert of(pa.table({"id": [1, 2], "v": ["a", "b"]})) != of(pa.table({"id": [1, 2], "v": ["b", "a"]}))
    assert of(pa.table({"id": [1, 2], "v": ["a", "b"]})) == of(pa.table({"id": [2, 1], "v": ["b", "a"]}))


NARROW = {"id": pa.int8(), "f": pa.float32(), "d": pa.decimal128(5, 2), "at": pa.timestamp("s"), "s": pa.string()}
WIDE = {
    "id": pa.uint32(),
    "f": pa.float64(),
    "d": pa.decimal256(40, 2),
    "at": pa.timestamp("ns"),
    "s": pa.dictionary(pa.int16(), pa.large_string()),
}


def test_how_values_are_stored_does_not_count() -> None:
    moment = dt.datetime(2026, 11, 23, 14, 20)
    rows = [{"id": 5, "f": 1.5, "d": decimal.Decimal("-1.50"), "at": moment, "s": "x"}, dict.fromkeys(NARROW)]
    narrow, wide = (
        pa.table({name: pa.array([row[name] for row in rows], type_) for name, type_ in chosen.items()})
        for chosen in (NARROW, WIDE)
    )
    assert of(narrow) == of(wide) == of(wide.slice(0, 1)) + of(wide.slice(1))
    assert of(narrow.append_column("new", pa.nulls(2, pa.int64()))) == of(narrow)
    renamed = with_ids(pa.schema([(name.upper(), type_) for name, type_ in NARROW.items()]), [9, 8, 3, 2, 7])
    assert of(narrow.cast(with_ids(narrow.schema, [9, 8, 3, 2, 7]))) == of(
        pa.Table.from_arrays(narrow.columns, schema=renamed).select(["D", "S", "ID", "F", "AT"])
    )


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_duckdb_knows_the_first_and_the_last_year_in_every_unit(unit: str) -> None:
    """It took seconds and milliseconds for nanoseconds, which begin in 1677."""
    live_rows = pa.table({"at": pa.array([dt.datetime(1, 1, 1), None, dt.datetime(9999, 12, 31)], pa.timestamp(unit))})
    ((found,),) = duckdb.sql(fingerprint_statement(live_rows.schema, "live_rows", "duckdb")).fetchall()
    assert found == str(of(live_rows))


@pytest.mark.slow
def test_duckdb_adds_up_thousands_of_columns() -> None:
    live_rows = pa.table({f"c{number}": [number, None] for number in range(1100)})
    ((found,),) = duckdb.sql(fingerprint_statement(live_rows.schema, "live_rows", "duckdb")).fetchall()
    assert found == str(of(live_rows))


def test_the_text_of_a_fingerprint_is_read_again() -> None:
    found = Fingerprint(3, 2**127 + 7)
    assert str(found) == "3:80000000000000000000000000000007"
    assert Fingerprint.of_text(str(found)) == found
    assert Fingerprint.of_text("v2 3:80") is None


def test_what_has_no_values_or_no_words_in_sql_is_named() -> None:
    spans = pa.table({"span": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(SchemaError, match=r't\.parquet: column "span": Arrow type Interval.* has no canonical form'):
        of(spans)
    with pytest.raises(InputError, match=r"column 'at' is time64\[us\].* spark has no type"):
        fingerprint_statement(pa.schema([("at", pa.time64("us"))]), "t", "spark")
    for type_ in (pa.float16(), pa.decimal128(5, -2)):
        with pytest.raises(InputError, match=r"column 'n' is .* duckdb has no type"):
            fingerprint_statement(pa.schema([("n", type_)]), "t", "duckdb")


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_names_that_differ_in_case_alone_are_refused(engine: str) -> None:
    """DuckDB took both for the first one, and sound rows were reported as not valid."""
    names = [(name, pa.int64()) for name in ("id", "x", "ID", "X")]
    for schema in (pa.schema(names), pa.schema([("s", pa.list_(pa.struct(names)))])):
        with pytest.raises(InputError, match=f"columns 'id' and 'ID' are one column for {engine}: validate --by self"):
            fingerprint_statement(schema, "t", engine)
