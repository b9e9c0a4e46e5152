"""A sort order as people write it, as Spark's procedure has it.

    "day DESC NULLS LAST, id"     day downwards, null behind all values; then id upwards, null before all values
    "hilbert(day, customer)"      along Hilbert's curve through the ranks of both
    "region, zorder(a, b)"        by region, and for each along Z-order
    "\"a,b\" DESC"                a name with a comma, a bracket, or DESC at its end stands in double quotes

Without NULLS, null counts as less than all values, NaN as greater.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.layout.quoting import QUOTED, parts, unquoted

CURVE_COLUMNS_MAX = 4
_WAY = r"(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?"
_ITEM = re.compile(rf'(?P<name>{QUOTED}|[^"()]+?){_WAY}', re.I | re.S)
_CURVE = re.compile(rf"(?P<curve>zorder|hilbert)\s*\((?P<columns>(?:{QUOTED}|[^()\"])*)\)", re.I)


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
    items = tuple(_item(said_by, part) for part in parts(text))
    names = [name for item in items for name in item.names]
    if repeated := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"{said_by} has {repeated!r} twice")
    return items


def _item(said_by: str, text: str) -> SortItem:
    if curve := _CURVE.fullmatch(text):
        names = tuple(map(unquoted, parts(curve["columns"])))
        if "" in names or len(names) > CURVE_COLUMNS_MAX:
            raise InputError(f"{said_by}: {text!r} needs one to {CURVE_COLUMNS_MAX} columns, as in hilbert(a, b)")
        return CurveThrough(Curve(curve["curve"].lower()), names)
    found = _ITEM.fullmatch(text)
    if found is None:
        raise InputError(f"{said_by}: {text!r} cannot be read: write a DESC NULLS LAST, hilbert(b, c)")
    descending = (found["way"] or "").lower() == "desc"
    nulls_first = found["nulls"].lower() == "first" if found["nulls"] else not descending
    return OrderedColumn(unquoted(found["name"].strip()), descending, nulls_first)
