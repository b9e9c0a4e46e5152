"""Parses what users write as `--where`, by PyIceberg's grammar.

day = '2026-11-22' and "a b" > 7      And(EqualTo(day, '2026-11-22'), GreaterThan(a b, 7))
moment > '2026-11-22 09:10'           GreaterThan(moment, '2026-11-22T09:10:00+00:00'), in a column with a zone
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Not, Or, Reference, SetPredicate
from pyiceberg.expressions.literals import Literal, LongLiteral, StringLiteral
from pyiceberg.expressions.parser import boolean_expression
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType
from pyparsing import ParseException

from deltacompact.base.errors import InputError
from deltacompact.base.moments import TIME_FORMAT, zoned

_GRAMMAR = boolean_expression.copy().parse_with_tabs()
"""PyIceberg's own makes spaces of a tab, in values, too."""


_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(?P<fraction>\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Times:
    """What the times of a column have: a zone or none, and so many digits of a second's fraction."""

    has_zone: bool
    digits: int


class _Number(LongLiteral):
    """A whole number; in a column of nanoseconds, those since 1970. PyIceberg has no literal of them."""

    def to(self, type_var: IcebergType) -> Literal[Any]:
        return self if isinstance(type_var, TimestampNanoType | TimestamptzNanoType) else super().to(type_var)


class _TimeText(StringLiteral):
    """A time in the form of ISO 8601. PyIceberg converts it for all columns but those of nanoseconds."""

    def to(self, type_var: IcebergType) -> Literal[Any]:
        if not isinstance(type_var, TimestampNanoType | TimestamptzNanoType):
            return super().to(type_var)
        type_ = pa.timestamp("ns", "UTC" if isinstance(type_var, TimestamptzNanoType) else None)
        return _Number(pa.scalar(self.value).cast(type_).value)


def parsed(where: str, said: str, times_of: Callable[[str], Times | None]) -> BooleanExpression:
    """The expression, as PyIceberg has it, with each text that is compared with a time in the form that PyIceberg and
    Arrow both take.

    `times_of` tells what the times of a column have; None: it holds no times.
    Raises InputError, which shows `said`, if the text cannot be parsed, or for a time that does not fit its column.
    """
    try:
        expression: BooleanExpression = _GRAMMAR.parse_string(where, parse_all=True)[0]
    except (ParseException, ValueError):  # it lists every rule of the grammar; int() refuses thousands of digits
        raise InputError(
            f"where {said!r} cannot be parsed: write it like day = '2026-11-22' and id > 7, and names of other signs "
            'than a-z, A-Z, 0-9 and _ in double quotes: "unit price" > 7'
        ) from None
    try:
        return _with_times(expression, times_of)
    except (ValueError, OverflowError) as error:
        raise InputError(f"where {said!r}: {error}") from None


def _with_times(expression: BooleanExpression, times_of: Callable[[str], Times | None]) -> BooleanExpression:
    if isinstance(expression, Not):
        return Not(_with_times(expression.child, times_of))
    if isinstance(expression, And | Or):
        return type(expression)(_with_times(expression.left, times_of), _with_times(expression.right, times_of))
    if not isinstance(expression, LiteralPredicate | SetPredicate) or not isinstance(expression.term, Reference):
        return expression
    if (times := times_of(expression.term.name)) is None:
        return expression

    def spelled(literal: Literal[Any]) -> Literal[Any]:
        if isinstance(literal, LongLiteral):
            return _Number(literal.value)
        return _TimeText(_time(literal.value, times)) if isinstance(literal.value, str) else literal

    if isinstance(expression, LiteralPredicate):
        return type(expression)(expression.term, spelled(expression.literal))
    return type(expression)(expression.term, {spelled(literal) for literal in expression.literals})


def _time(text: str, times: Times) -> str:
    """The time as ISO 8601 has it; of UTC in a column with a zone."""
    if (said := _TIME.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no time: {TIME_FORMAT}")
    fraction = said["fraction"] or ""
    try:
        moment = datetime.fromisoformat(text.replace(fraction, "", 1))
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: {error}") from None
    if moment.tzinfo and not times.has_zone:
        raise ValueError(f"the times of the column have no zone, and {text!r} has one: {TIME_FORMAT}")
    if len(digits := fraction[1:].rstrip("0")) > times.digits:
        most = f"{times.digits} digits after the second" if times.digits else "whole seconds"
        raise ValueError(f"the times of the column have {most}, and {text!r} has {len(digits)}: {TIME_FORMAT}")
    written = zoned(moment).astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{written}{'.' if digits else ''}{digits}{'+00:00' if times.has_zone else ''}"
