"""Parses a sort order, in the syntax of Spark's procedure.

    "day DESC NULLS LAST, id"     day descending, nulls last; then id ascending, nulls first
    "hilbert(day, customer)"      along Hilbert's curve through the ranks of both
    "region, zorder(a, b)"        by region, and within a region along Z-order
    "bucket(4, a), days(ts) DESC" by the results of Iceberg's transforms
    "\"a,b\" DESC"                a name with a comma, a bracket, or DESC at its end stands in double quotes

Without NULLS FIRST or LAST, null counts as less than all values. NaN is greater than all numbers.
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
_TRANSFORM = re.compile(rf"(?P<transform>[a-z_]+)\s*\((?P<arguments>(?:{QUOTED}|[^()\"])*)\){_WAY}", re.I)
_CURVE = re.compile(rf"(?P<curve>zorder|hilbert)\s*\((?P<columns>(?:{QUOTED}|[^()\"])*)\)", re.I)
_WITH_NUMBER = ("bucket", "truncate")
_NUMBER = re.compile(r"0*[1-9]\d{0,9}")
_NUMBER_MAX = (1 << 31) - 1
"""Iceberg's numbers of buckets and widths are Java's ints."""
_OF_TIMES = {"date": "day", "date_hour": "hour"} | {
    name: unit for unit in ("year", "month", "day", "hour") for name in (unit, f"{unit}s")
}


class Curve(enum.StrEnum):
    """A curve through the ranks of several columns."""

    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class OrderedColumn:
    """A column to sort by. `transform`: the Iceberg transform whose results are sorted."""

    name: str
    descending: bool = False
    nulls_first: bool = True
    transform: str = "identity"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        transform, _, number = self.transform.rstrip("]").partition("[")
        arguments = ", ".join([number] * bool(number) + [_in_quotes(self.name)])
        key = arguments if transform == "identity" else f"{transform}({arguments})"
        return f"{key} {'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True, slots=True)
class CurveThrough:
    """Columns to sort by along a curve."""

    curve: Curve
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.curve}({', '.join(map(_in_quotes, self.names))})"


SortItem = OrderedColumn | CurveThrough


def sort_items(said_by: str, text: str) -> tuple[SortItem, ...]:
    """The items of a sort order. Raises InputError naming an item that cannot be parsed, or that comes twice."""
    items = tuple(_item(said_by, part) for part in parts(text))
    keys = [(name, getattr(item, "transform", "identity")) for item in items for name in item.names]
    if repeated := next((name for place, (name, by) in enumerate(keys) if (name, by) in keys[:place]), None):
        raise InputError(f"{said_by} has {repeated!r} twice")
    return items


def in_one_spelling(text: str) -> str:
    """A sort order as all texts with the same items are written. Raises InputError like `sort_items`."""
    return ", ".join(map(str, sort_items("a sort order", text)))


def _in_quotes(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _item(said_by: str, text: str) -> SortItem:
    if curve := _CURVE.fullmatch(text):
        names = tuple(map(unquoted, parts(curve["columns"])))
        if "" in names or len(names) > CURVE_COLUMNS_MAX:
            raise InputError(f"{said_by}: {text!r} needs one to {CURVE_COLUMNS_MAX} columns, as in hilbert(a, b)")
        return CurveThrough(Curve(curve["curve"].lower()), names)
    found = _TRANSFORM.fullmatch(text) or _ITEM.fullmatch(text)
    by = None if found is None else _key(found.groupdict())
    if found is None or by is None:
        raise InputError(
            f"{said_by}: {text!r} cannot be read: write a DESC NULLS LAST, bucket(4, b), days(c), hilbert(d, e)"
        )
    descending = (found["way"] or "").lower() == "desc"
    nulls_first = found["nulls"].lower() == "first" if found["nulls"] else not descending
    transform, name = by
    return OrderedColumn(unquoted(name.strip()), descending, nulls_first, transform)


def _key(found: dict[str, str]) -> tuple[str, str] | None:
    """(transform as Iceberg writes it, column). None: it cannot be parsed. Arguments may come in either order, as in
    Spark."""
    if "name" in found:
        return "identity", found["name"]
    name, arguments = found["transform"].lower(), list(parts(found["arguments"]))
    if name in _OF_TIMES and len(arguments) == 1 and arguments[0]:
        return _OF_TIMES[name], arguments[0]
    if name in _WITH_NUMBER and len(arguments) == 2:
        number, column = arguments if arguments[0].isdecimal() else arguments[::-1]
        if _NUMBER.fullmatch(number) and int(number) <= _NUMBER_MAX and column:
            return f"{name}[{int(number)}]", column
    return None
