"""Parses what users write as `--where`, by PyIceberg's grammar.

day = '2026-11-22' and "a b" > 7      And(EqualTo(day, '2026-11-22'), GreaterThan(a b, 7))
moment > '2026-11-22 09:10'           GreaterThan(moment, '2026-11-22T09:10:00+00:00'), in a column with a zone
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Not, Or, Reference, SetPredicate
from pyiceberg.expressions.literals import Literal, StringLiteral
from pyiceberg.expressions.parser import boolean_expression
from pyparsing import ParseException

from deltacompact.base.errors import InputError
from deltacompact.base.moments import TIME_FORMAT, zoned

_GRAMMAR = boolean_expression.copy().parse_with_tabs()
"""PyIceberg's own makes spaces of a tab, in values, too."""


_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(?P<fraction>\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)


def parsed(where: str, said: str, has_zone: Callable[[str], bool | None]) -> BooleanExpression:
    """The expression, as PyIceberg has it, with each text that is compared with a time in the form that PyIceberg and
    Arrow both take.

    `has_zone` tells whether the times of a column have a zone; None: it holds no times.
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
        return _with_times(expression, has_zone)
    except (ValueError, OverflowError) as error:
        raise InputError(f"where {said!r}: {error}") from None


def _with_times(expression: BooleanExpression, has_zone: Callable[[str], bool | None]) -> BooleanExpression:
    if isinstance(expression, Not):
        return Not(_with_times(expression.child, has_zone))
    if isinstance(expression, And | Or):
        return type(expression)(_with_times(expression.left, has_zone), _with_times(expression.right, has_zone))
    if not isinstance(expression, LiteralPredicate | SetPredicate) or not isinstance(expression.term, Reference):
        return expression
    if (with_zone := has_zone(expression.term.name)) is None:
        return expression

    def spelled(literal: Literal[Any]) -> Literal[Any]:
        return StringLiteral(_time(literal.value, with_zone)) if isinstance(literal.value, str) else literal

    if isinstance(expression, LiteralPredicate):
        return type(expression)(expression.term, spelled(expression.literal))
    return type(expression)(expression.term, {spelled(literal) for literal in expression.literals})


def _time(text: str, with_zone: bool) -> str:
    """The time as ISO 8601 has it; of UTC in a column with a zone. Digits beyond the microsecond stay."""
    if (said := _TIME.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no time: {TIME_FORMAT}")
    fraction = said["fraction"] or ""
    try:
        moment = datetime.fromisoformat(text.replace(fraction, "", 1))
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: {error}") from None
    if moment.tzinfo and not with_zone:
        raise ValueError(f"the times of the column have no zone, and {text!r} has one: {TIME_FORMAT}")
    written = zoned(moment).astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{written}{fraction}{'+00:00' if with_zone else ''}"
