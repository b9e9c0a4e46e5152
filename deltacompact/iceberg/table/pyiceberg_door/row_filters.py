"""Filters of rows, written in the same language as filters of files (where.py), for any table's columns.

day = '2026-11-22' and id > 7      (day == 2026-11-22) and (id > 7), as pyarrow computes it
name like 'a%'                     starts_with(name, "a")

Values take the types of their columns. Null is neither equal nor unequal to a value, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BoundPredicate
from pyiceberg.expressions import literals as literals_
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError, UnknownColumnError
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.iceberg.table.pyiceberg_door.where_text import Times, parsed
from deltacompact.layout.quoting import QUOTED, unquoted

_COMPARED = {
    "EqualTo": pc.Expression.__eq__,
    "NotEqualTo": pc.Expression.__ne__,
    "GreaterThan": pc.Expression.__gt__,
    "GreaterThanOrEqual": pc.Expression.__ge__,
    "LessThan": pc.Expression.__lt__,
    "LessThanOrEqual": pc.Expression.__le__,
}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_UNKNOWN = pc.scalar(pa.scalar(None, pa.bool_()))


def row_filter(where: str, columns: pa.Schema) -> pc.Expression:
    """The expression as pyarrow computes it. Raises InputError if it cannot be parsed or does not fit the columns."""
    plain, names = _with_plain_names(where)
    types = {column.name: _compared_type(column.type) for column in columns}
    times = {
        name: Times(type_.tz is not None, _DIGITS[type_.unit])
        for name, type_ in types.items()
        if pa.types.is_timestamp(type_)
    }
    expression = parsed(plain, where, lambda said: times.get(_column_name(said, names)))
    try:
        return visit(expression, _RowFilterVisitor(where, columns, names))
    except (TypeError, ValueError, OverflowError, NotImplementedError, pa.ArrowException) as error:
        raise InputError(f"where {where!r} is not an expression about this table: {text_of(error)}") from None


_PIECE = re.compile(rf"'(?:[^'\\]|''|\\.)*'|{QUOTED}", re.S)
"""A value or a name, in its quotes."""


def _with_plain_names(where: str) -> tuple[str, dict[str, str]]:
    """The text with a plain name for each quoted one, and what they stand for. PyIceberg refuses a dot in a name, which
    is a field of a struct to it, and makes a quote of a backslash."""
    names: dict[str, str] = {}

    def plain(piece: re.Match[str]) -> str:
        if piece[0].startswith("'"):
            return piece[0]
        name = f"_quoted_{len(names)}"
        while name in where:  # a column of the table, perhaps
            name += "_"
        names[name] = unquoted(piece[0])
        return name

    return _PIECE.sub(plain, where), names


def _column_name(said: str, names: Mapping[str, str]) -> str:
    """The column's own name, of one with stand-ins for what was quoted."""
    return ".".join(names.get(part, part) for part in said.split("."))


class _RowFilterVisitor(BooleanExpressionVisitor[pc.Expression]):
    def __init__(self, where: str, columns: pa.Schema, names: Mapping[str, str]) -> None:
        self._where = where
        self._names = names
        self._columns = columns

    def visit_true(self) -> pc.Expression:
        return pc.scalar(True)

    def visit_false(self) -> pc.Expression:
        return pc.scalar(False)

    def visit_not(self, child_result: pc.Expression) -> pc.Expression:
        return ~child_result

    def visit_and(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result & right_result

    def visit_or(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result | right_result

    def visit_bound_predicate(self, predicate: BoundPredicate) -> pc.Expression:
        raise NotImplementedError("it is bound to another table")

    def visit_unbound_predicate(self, predicate: Any) -> pc.Expression:
        said = str(getattr(predicate.term, "name", predicate.term))
        name = _column_name(said, self._names)
        if name not in self._columns.names:
            raise UnknownColumnError(
                f"where {self._where!r}: there is no column {name!r} ({columns_shown(self._columns.names)})"
            )
        column, kind, of_column = pc.field(name), type(predicate).__name__, self._columns.field(name).type
        if (type_ := _compared_type(of_column)) != of_column:
            column = column.cast(type_)
        if kind in ("IsNull", "NotNull"):
            return column.is_null() if kind == "IsNull" else column.is_valid()
        if kind in ("IsNaN", "NotNaN"):
            return pc.is_nan(column) if kind == "IsNaN" else ~pc.is_nan(column)
        if kind in ("In", "NotIn"):
            listed = [_value(literal, type_) for literal in predicate.literals]
            zeros = [0.0, -0.0] if pa.types.is_floating(type_) and 0 in listed else []  # to Arrow's they are two values
            values = pa.array([*listed, *zeros], type_)
            found = column.isin(values) | (column.is_null() & _UNKNOWN)  # Arrow's is false for null
            return found if kind == "In" else ~found
        if kind in ("StartsWith", "NotStartsWith"):
            found = pc.starts_with(column, str(predicate.literal.value))
            return found if kind == "StartsWith" else ~found
        return _COMPARED[kind](column, pa.scalar(_value(predicate.literal, type_), type_))


def _compared_type(type_: pa.DataType) -> pa.DataType:
    """A type with all values of a column that Arrow's functions take: few of them take dictionaries and half floats."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    return pa.float32() if pa.types.is_float16(type_) else type_


def _value(literal: literals_.Literal[Any], type_: pa.DataType) -> Any:
    """A literal in its column's type: a text may stand for a date."""
    value = literal.value
    if isinstance(value, Decimal) and pa.types.is_floating(type_):
        value = float(value)  # Arrow's cast takes 0.35 for another number than everybody else
    if isinstance(value, int) and pa.types.is_decimal(type_):
        value = Decimal(value)  # from an int, Arrow would want room for all digits that an int64 can have
    if isinstance(value, int) and pa.types.is_unsigned_integer(type_):
        return pa.scalar(value, type_).as_py()
    if isinstance(value, str) and pa.types.is_time(type_):
        return time.fromisoformat(value)
    found = pa.scalar(value)
    return found.cast(type_).as_py() if found.type != type_ else value
