"""Columns for random tables: each has few values, and every physical type that a file may store them in.

    integer   0 1 -1 200 70000 …    int8 uint8 … int64      one file may have int8, the next one int64
    string    "" "a" "aa" …         string, large string, view, dictionary

`bag` is for comparing rows: it ignores their order and their nulls, and NaN equals itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from oracle import Row


@dataclass(frozen=True)
class Kind:
    """Values that collide often. Any file may have the column in any of the types that holds its values."""

    values: tuple[Any, ...] = field(repr=False)
    types: tuple[pa.DataType | str, ...] = field(repr=False)

    def array(self, values: list[Any], wanted: pa.DataType | str) -> pa.Array:
        """The values in the wanted type, or in the next type that holds them. The last type holds all values."""
        wider = self.types[self.types.index(wanted) :] if wanted in self.types else self.types
        for type_ in (wanted, *wider):
            try:
                array = built(values, type_)
                array.validate(full=True)
            except (pa.ArrowInvalid, OverflowError):
                continue
            if list(map(canonical, array.to_pylist())) == list(map(canonical, values)):
                return array
        raise AssertionError(f"{self.types[-1]} does not hold {values}")


def built(values: list[Any], type_: pa.DataType | str) -> pa.Array:
    if type_ == "dictionary":
        return pa.array(values, pa.string()).dictionary_encode()
    if type_ == "dictionary with nulls":
        return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int32()), pa.array(values, pa.string()))
    if type_ in (pa.string_view(), pa.binary_view()):
        return pa.array(values, pa.string() if type_ == pa.string_view() else pa.binary()).cast(type_)
    return pa.array(values, type_)


EVENING = datetime(1995, 4, 3, 20, 16, 32)
KINDS = {
    "integer": Kind(
        (0, 1, -1, 200, 70_000, 2**63 - 1, -(2**63)),
        (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()),
    ),
    "unsigned": Kind((0, 1, 255, 2**64 - 1), (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    "float": Kind((0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan), (pa.float16(), pa.float32(), pa.float64())),
    "boolean": Kind((False, True), (pa.bool_(),)),
    "decimal": Kind(
        (Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("99999999.99")),
        (pa.decimal128(4, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal128(38, 2)),
    ),
    "date": Kind((date(1995, 4, 3), date(1995, 4, 4), date(1969, 12, 31)), (pa.date64(), pa.date32())),
    "timestamp": Kind(
        (EVENING, EVENING + timedelta(milliseconds=982), datetime(1969, 12, 31, 23, 59, 59)),
        (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us")),
    ),
    "instant": Kind(
        (
            EVENING.replace(tzinfo=UTC),
            EVENING.replace(tzinfo=UTC) + timedelta(hours=7),
            datetime(1969, 1, 1, tzinfo=UTC),
        ),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "America/Los_Angeles"), pa.timestamp("ms", "UTC")),
    ),
    "time": Kind(
        (time(0), time(13, 16, 32), time(13, 16, 32, 982_000)), (pa.time32("s"), pa.time32("ms"), pa.time64("us"))
    ),
    "duration": Kind(
        (timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1500)), (pa.duration("s"), pa.duration("ms"))
    ),
    "fixed bytes": Kind((b"\x00\x00", b"\xff\xfe", b"ab"), (pa.binary(2),)),
    "string": Kind(
        ("", "a", "aa", "é", "\x00", "a\x00", "nine byte", "sixteen bytes,é"),
        (pa.string_view(), "dictionary", "dictionary with nulls", pa.large_string(), pa.string()),
    ),
    "binary": Kind(
        (b"", b"\xff\xfe", b"ab", b"a", b"a\x00", b"\xff" * 12), (pa.binary(2), pa.large_binary(), pa.binary())
    ),
}
LONG_KINDS = {
    "long string": Kind(
        ("", "abc", "ab\x00", "abcdefghi", "abcdefghi\x00", "z" * 32, "é" * 16, "é" * 15 + "z"),
        (pa.string_view(), "dictionary", "dictionary with nulls", pa.large_string(), pa.string()),
    ),
    "long binary": Kind(
        (b"", b"abc", b"ab\x00", b"\xff" * 9, bytes(32), b"\xff" * 31),
        (pa.binary(3), pa.binary(32), pa.binary_view(), pa.large_binary(), pa.binary()),
    ),
}
"""The values of these columns fit into a sort key only if no other column needs room in it."""
ALL_KINDS = KINDS | LONG_KINDS
PAYLOADS = {
    "note": Kind(("x", "yy"), (pa.string(), "dictionary")),
    "amount": Kind((1, 300, 2**40), (pa.int8(), pa.int32(), pa.int64())),
    "pair": Kind(({"a": 1, "b": None}, {"a": None, "b": "z"}), (pa.struct([("a", pa.int32()), ("b", pa.string())]),)),
    "items": Kind(([], [1, None, 3]), (pa.list_(pa.int64()),)),
    "tags": Kind(([("k", 1)], []), (pa.map_(pa.string(), pa.int32()),)),
}

PLAIN = {
    "integer": Kind((0, 1, -1, 300, 2**40), (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    "string": Kind(("", "a", "NA", 'é "x",\n', "null"), (pa.string(),)),
    "float": Kind((0.5, -0.25, 1.5, math.inf, math.nan), (pa.float64(),)),  # CSV says 0 for 0.0, an integer
    "boolean": Kind((False, True), (pa.bool_(),)),
}
"""Columns that every file format can store: signed integers, strings, floats, booleans."""


def canonical(value: Any) -> Any:
    """The value as one that can be compared and hashed. NaN equals itself, whatever its type."""
    if isinstance(value, dict):
        return tuple((name, canonical(child)) for name, child in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(child) for child in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def bag(rows: Iterable[Row]) -> Counter[Any]:
    """The rows as a multiset, each without its null columns."""
    return Counter(
        frozenset((name, canonical(value)) for name, value in row.items() if value is not None) for row in rows
    )
