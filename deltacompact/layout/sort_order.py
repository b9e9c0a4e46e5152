"""A sort order as people write it, as Spark's procedure has it.

    "day DESC NULLS LAST, id"     day downwards, null behind all values; then id upwards, null before all values
    "hilbert(day, customer)"      along Hilbert's curve through the ranks of both
    "region, zorder(a, b)"        by region, and for each along Z-order

Without NULLS, null counts as less than all values, NaN as greater.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from deltacompact.base.errors import InputError

CURVE_COLUMNS_MAX = 4
_ITEM = re.compile(r"(?P<name>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S)
_CURVE = re.compile(r"(?P<curve>zorder|hilbert)\s*\((?P<columns>[^()]*)\)", re.I)


class Curve(enum.StrEnum):
    """A curve through the ranks of several columns."""

    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class OrderedColumn:
    """A column to sort by. `transform`: by what Iceberg's transform makes of its values."""

    name: str
    descending: bool = False
    nulls_first: bool = True
    transform: str = "identity"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class CurveThrough:
    """Columns to sort by along a curve."""

    curve: Curve
    names: tuple[str, ...]


SortItem = OrderedColumn | CurveThrough


def sort_items(said_by: str, text: str) -> tuple[SortItem, ...]:
    """The items of a sort order. Raises InputError naming the one that cannot be read, or that comes twice."""
    items = tuple(_item(said_by, part) for part in _parts(text))
    names = [name for item in items for name in item.names]
    if repeated := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"{said_by} has {repeated!r} twice")
    return items


def _parts(text: str) -> Iterator[str]:
    """The items: commas inside of brackets do not end one."""
    start = depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def _item(said_by: str, text: str) -> SortItem:
    if curve := _CURVE.fullmatch(text):
        names = tuple(name.strip() for name in curve["columns"].split(","))
        if "" in names or len(names) > CURVE_COLUMNS_MAX:
            raise InputError(f"{said_by}: {text!r} needs one to {CURVE_COLUMNS_MAX} columns, as in hilbert(a, b)")
        return CurveThrough(Curve(curve["curve"].lower()), names)
    found = _ITEM.fullmatch(text)
    if found is None or "(" in text or ")" in text:
        raise InputError(f"{said_by}: {text!r} cannot be read: write a DESC NULLS LAST, hilbert(b, c)")
    descending = (found["way"] or "").lower() == "desc"
    nulls_first = found["nulls"].lower() == "first" if found["nulls"] else not descending
    return OrderedColumn(found["name"].strip(), descending, nulls_first)
