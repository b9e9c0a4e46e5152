"""Parses what users write as `--where`, by PyIceberg's grammar.

day = '2026-11-22' and "a b" > 7      And(EqualTo(day, '2026-11-22'), GreaterThan(a b, 7))
"""

from __future__ import annotations

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import boolean_expression
from pyparsing import ParseException

from deltacompact.base.errors import InputError

_GRAMMAR = boolean_expression.copy().parse_with_tabs()
"""PyIceberg's own makes spaces of a tab, in values, too."""


def parsed(where: str, said: str) -> BooleanExpression:
    """The expression, as PyIceberg has it. Raises InputError, which shows `said`, if it cannot be parsed."""
    try:
        expression: BooleanExpression = _GRAMMAR.parse_string(where, parse_all=True)[0]
    except (ParseException, ValueError):  # it lists every rule of the grammar; int() refuses thousands of digits
        raise InputError(
            f"where {said!r} cannot be parsed: write it like day = '2026-11-22' and id > 7, and names of other signs "
            'than a-z, A-Z, 0-9 and _ in double quotes: "unit price" > 7'
        ) from None
    return expression
