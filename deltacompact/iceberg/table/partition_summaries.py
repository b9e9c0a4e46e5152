"""Partition summaries (field 507) of the lines of a manifest list: planners skip manifests by them.

    day 2026-11-01, 2026-11-03, null     contains null, from 2026-11-01 to 2026-11-03
    all values null                      no bounds

A wrong bound would lose rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue, Spec, SpecField
from deltacompact.iceberg.table.partition_values import is_decimal, not_null, shortest_bytes


def partition_summaries(spec: Spec, partitions: Sequence[PartitionTuple]) -> list[dict[str, Any]]:
    """The summaries of partition fields in the line of a manifest, one for each field."""
    return [_summary(part, [values[place] for values in partitions]) for place, part in enumerate(spec.fields)]


def _summary(part: SpecField, values: Sequence[PartitionValue]) -> dict[str, Any]:
    known = [value for value in values if value is not None and value == value]
    to_bytes, order = _single_value(part)
    return {
        "contains_null": any(value is None for value in values),
        "contains_nan": any(isinstance(value, float) and value != value for value in values),
        "lower_bound": to_bytes(min(known, key=order)) if known else None,
        "upper_bound": to_bytes(max(known, key=order)) if known else None,
    }


_PACKED = {"int": "<i", "long": "<q", "float": "<f", "double": "<d", "boolean": "<?"}


def _single_value(part: SpecField) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How a value of the partition field is stored as a bound (spec, appendix D), and how values are ordered."""
    type_ = not_null(part.avro["type"])
    name = type_ if isinstance(type_, str) else type_["type"]
    if is_decimal(type_):
        return _shortest, lambda value: value
    if name in ("float", "double"):
        return struct.Struct(_PACKED[name]).pack, lambda value: (float(value), math.copysign(1, value))
    if name in _PACKED:
        return struct.Struct(_PACKED[name]).pack, lambda value: value
    if name == "string":
        return str.encode, str.encode
    return bytes, bytes


def bound_value(part: SpecField) -> Callable[[bytes], Any]:
    """A function from a stored bound of the partition field to a value in the field's order."""
    type_ = not_null(part.avro["type"])
    if is_decimal(type_):
        return lambda bound: int.from_bytes(bound, "big", signed=True)
    name = type_ if isinstance(type_, str) else type_["type"]
    if name not in _PACKED:
        return bytes
    narrow, wide = ("<f", "<d") if name in ("float", "double") else ("<i", "<q")
    by_width = {1: "<?", 4: narrow, 8: wide}  # a column that was widened has bounds of both widths
    return lambda bound: struct.unpack(by_width[len(bound)], bound)[0]


def _shortest(number: int) -> bytes:
    """A decimal without needless leading bytes."""
    return number.to_bytes(shortest_bytes(number), "big", signed=True)
