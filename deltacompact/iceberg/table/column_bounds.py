"""Bounds of a column, as values that compare as the column does. A manifest has them in Iceberg's binary form.

long       0500 0000 0000 0000      5
string     "ada"                    its UTF-8 bytes: their order is that of the characters
decimal    ff                       -1, without its point

A bound that does not fit its type is unknown. An int that became a long has four bytes in old manifests.
"""

from __future__ import annotations

import struct
from typing import Any

WHOLE_NUMBERS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_BYTES = ("string", "binary", "uuid")


def ordered(bound: bytes | None, type_: str) -> Any:
    """A bound that holds for all values of a column. None: unknown.

    Floats, UUIDs and booleans have none: bounds of floats leave out NaN, and writers ordered UUIDs differently.
    """
    return None if type_ in ("float", "double", "uuid", "boolean") else comparable(bound, type_)


def comparable(bound: bytes | None, type_: str) -> Any:
    """The bound of a column of any type that has an order: a number, or bytes. None: unknown."""
    if bound is None:
        return None
    if type_ in WHOLE_NUMBERS:
        if len(bound) not in (4, 8) or (type_.startswith("timestamp") and len(bound) != 8):
            return None
        return struct.unpack("<i" if len(bound) == 4 else "<q", bound)[0]
    if type_ in ("float", "double"):
        return struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0] if len(bound) in (4, 8) else None
    if type_.startswith("decimal"):
        return int.from_bytes(bound, "big", signed=True)
    if type_ == "boolean":
        return int(bound != b"\0") if len(bound) == 1 else None
    return bound if type_ in _BYTES or type_.startswith("fixed") else None


def has_order(type_: str) -> bool:
    """Whether files can lie apart by a column of this type."""
    plain = type_ in (*WHOLE_NUMBERS, *_BYTES, "float", "double", "boolean")
    return plain or type_.startswith(("decimal", "fixed"))
