"""What Iceberg's evaluators conclude from our counts and bounds is true of the rows.

    strict       "every row matches"    the file is deleted as a whole: rows that do not match would be lost
    inclusive    "no row matches"       the file is skipped: rows that match would be missed

PyIceberg's evaluators have the rules of Java's; Spark judges in test_iceberg_values_spark.py.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import uuid
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_lake import SETTINGS
from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from deltacompact.base.data_file import DataFile as OurFile
from deltacompact.base.errors import InputError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.iceberg.table.column_metrics import MeasuredColumn, metrics_of
from deltacompact.iceberg.table.nan_counts import nan_counts
from deltacompact.storage.memory import MemoryStore

T = "ns.t"
NAN = math.nan
AT = datetime.datetime(2026, 1, 1)
VALUES = {
    FloatType(): [NAN, 0.0, -0.0, 1.5, -2.5],
    DoubleType(): [NAN, 0.0, -0.0, 1.5, math.inf, -math.inf],
    IntegerType(): [-(2**31), 0, 5, 2**31 - 1],
    LongType(): [-(2**63), 0, 5, 2**63 - 1],
    DecimalType(38, 2): [decimal.Decimal(text) for text in ("0.00", "-1.50", "9" * 36 + ".99", "-" + "9" * 36 + ".99")],
    StringType(): ["", "a" * 20, "a" * 19 + "b", "\U0010ffff" * 20, "z"],
    BinaryType(): [b"", b"\xff" * 20, b"a" * 20],
    BooleanType(): [True, False],
    DateType(): [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)],
    TimestampType(): [AT, AT + datetime.timedelta(microseconds=1)],
    UUIDType(): [uuid.UUID(int=number).bytes for number in (0, 1 << 127, (1 << 128) - 1)],
}
COMPARISONS = {
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    EqualTo: operator.eq,
    NotEqualTo: operator.ne,
}


def is_nan(value):
    return isinstance(value, float) and value != value


def predicates(type_, value):
    """Expressions about the column `c`, each with what it means for one value."""
    yield IsNull("c"), lambda one: one is None
    yield NotNull("c"), lambda one: one is not None
    if isinstance(type_, (FloatType, DoubleType)):
        yield IsNaN("c"), is_nan
        yield NotNaN("c"), lambda one: not is_nan(one)
    if is_nan(value):
        return
    literal = uuid.UUID(bytes=value) if isinstance(type_, UUIDType) else value
    for made, compare in COMPARISONS.items():
        null_matches = made is NotEqualTo
        yield made("c", literal), lambda one, c=compare, n=null_matches: n if one is None else c(one, value)
    yield In("c", {literal}), lambda one: one == value
    yield NotIn("c", {literal}), lambda one: one != value


@pytest.mark.parametrize("type_", VALUES, ids=str)
@settings(max_examples=examples(25))
@given(data=st.data(), length=st.sampled_from([16, 1, None]), is_counted=st.booleans())
def test_no_row_is_lost_or_missed_by_what_evaluators_conclude(type_, data, length, is_counted):
    """Of row groups with few values, for each of them as a literal."""
    some = st.lists(st.sampled_from(VALUES[type_]) | st.sampled_from([None, *VALUES[type_]]), max_size=3)
    groups = data.draw(st.lists(some, min_size=1, max_size=3))
    schema = Schema(NestedField(1, "c", type_, required=False))
    store, arrow = MemoryStore(), schema.as_arrow().field(0).type
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("c", arrow)])) as out:
        for group in groups:
            out.write_table(pa.table({"c": pa.array(group, arrow)}))
    stored = sink.getvalue().to_pybytes()
    store.put("a.parquet", stored)
    rows = [value for group in groups for value in group]
    file = OurFile(UNNUMBERED, "a.parquet", ContentType.PARQUET, len(rows), len(stored), pa.schema([("c", arrow)]))
    counted = nan_counts(store, file, {"c": 1}, READ_LIMITS) if is_counted else {}
    assert not is_counted or counted == {1: sum(map(is_nan, rows))}
    cut = length if isinstance(type_, (StringType, BinaryType)) else None
    found = metrics_of(
        pq.read_metadata(pa.BufferReader(stored)), {"c": MeasuredColumn(1, str(type_), length=cut)}, counted
    )
    # Another column has all counts: evaluators take one that is missing beside others for zero.
    described = DataFile.from_args(
        record_count=len(rows),
        value_counts=found.value_counts | {9: 1},
        null_value_counts=found.null_value_counts | {9: 0},
        nan_value_counts=found.nan_value_counts | {9: 0},
        lower_bounds=found.lower_bounds,
        upper_bounds=found.upper_bounds,
    )
    for expression, matches in (predicate for literal in VALUES[type_] for predicate in predicates(type_, literal)):
        matching = [matches(value) for value in rows]
        if _StrictMetricsEvaluator(schema, expression).eval(described):
            assert all(matching), f"strict {expression} deletes all of {rows}"
        if not _InclusiveMetricsEvaluator(schema, expression).eval(described):
            assert not any(matching), f"inclusive {expression} skips {rows}"


NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "d", DoubleType()),
    NestedField(3, "s", StructType(NestedField(8, "x", FloatType()))),
    NestedField(4, "l", ListType(9, DoubleType(), element_required=False)),
    NestedField(5, "m", MapType(10, StringType(), 11, DoubleType(), value_required=False)),
    NestedField(6, "e", DoubleType()),
    NestedField(7, "quiet", DoubleType()),
)


def rows_of(first):
    """Four rows; of each float column, some NaN, but none in `e`."""
    values = [
        {"d": NAN, "s": {"x": NAN}, "l": [NAN, 1.0], "m": [("a", NAN), ("b", NAN)], "e": 1.0, "quiet": NAN},
        {"d": 1.0, "s": None, "l": None, "m": [("a", 1.0)], "e": -0.0, "quiet": 1.0},
        {"d": None, "s": {"x": None}, "l": [], "m": None, "e": None, "quiet": 1.0},
        {"d": 2.0, "s": {"x": 1.0}, "l": [NAN], "m": [], "e": 2.0, "quiet": 1.0},
    ]
    return [{"id": first + number} | value for number, value in enumerate(values)]


EXPECTED = {2: 1, 6: 0, 8: 1, 9: 2, 11: 2}


@pytest.mark.parametrize("row_group_rows", [2, 1000])
def test_a_rewrite_counts_nan_at_any_depth_and_again_when_rows_died(lake, row_group_rows):
    """Copied row groups or decoded ones, of files whose manifests say nothing of NaN, as PyIceberg writes them."""
    settings = replace(SETTINGS, row_group_rows=row_group_rows)
    lake.create(T, NESTED, properties={"write.metadata.metrics.column.quiet": "none"})
    for first in (0, 10):
        lake.append(T, rows_of(first))
    assert not any(entry.file.nan_value_counts for entry in lake.state(T).data)
    lake.rewrite(T, rewrite_all=True, settings=settings)
    (one,) = lake.state(T).data
    assert one.file.nan_value_counts == {number: 2 * count for number, count in EXPECTED.items()}
    assert {1, 2, 6, 8} == one.file.lower_bounds.keys() == one.file.upper_bounds.keys()  # 8 in a struct, 9 in a list
    assert 7 not in one.file.value_counts
    lake.delete_by_position(T, {one.file.path: [0]})
    lake.rewrite(T, rewrite_all=True, settings=settings)
    (one,) = lake.state(T).data
    assert one.file.nan_value_counts == {2: 1, 6: 0, 8: 1, 9: 3, 11: 2}


@pytest.mark.parametrize("name", ["default", "column.s.x"])
def test_a_mode_that_iceberg_does_not_know_is_refused_by_name_before_a_file_is_written(lake, name):
    lake.create(T, NESTED)
    lake.append(T, rows_of(0))
    lake.edit_metadata(T, {"properties": {f"write.metadata.metrics.{name}": "truncate(0)"}})
    with pytest.raises(InputError, match=rf"the table's property write\.metadata\.metrics\.{name}: 'truncate\(0\)' is"):
        lake.rewrite(T, rewrite_all=True)
    assert not list(lake.folder.rglob("*-deltacompact.parquet"))


def test_no_column_is_read_again_of_which_every_input_says_that_it_has_no_nan(lake, monkeypatch):
    from deltacompact.iceberg_modes.rewrite import writing

    lake.create(T, NESTED)
    lake.append(T, rows_of(0))
    lake.rewrite(T, rewrite_all=True)
    counted = []
    monkeypatch.setattr(writing, "nan_counts", lambda store, file, columns, limits: counted.append(columns) or {})
    lake.rewrite(T, rewrite_all=True)
    assert [sorted(columns.values()) for columns in counted] == [[2, 7, 8, 9, 11]]
    (one,) = lake.state(T).data
    assert one.file.nan_value_counts == {6: 0}
