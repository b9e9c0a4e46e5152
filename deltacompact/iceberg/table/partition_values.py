"""Partition values: as manifests store them, as ours, which are compared, and as columns have them.

                          stored                    ours        in a column
    day      date         20458                     20458       2026-01-05
    price    decimal      b"\\x00\\x00\\x00\\x7b"     123         1.23        before the column was widened
    price    decimal      b"\\x00…\\x7b", 8 bytes    123         1.23        after that: the same partition
    code     uuid         16 bytes                  the same    the same bytes

How a manifest stores a value depends on the type that the column had then. Equal values are one partition all the same.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue, Spec, canonical


def compared(value: Any, avro: Any) -> PartitionValue:
    """A stored value as ours, by the Avro type of its field: a decimal is its whole number (1.23 is 123)."""
    if isinstance(value, bytes) and is_decimal(avro):
        return int.from_bytes(value, "big", signed=True)
    return canonical(value)


def stored(value: PartitionValue, avro: Any) -> Any:
    """Our value as a field of this Avro type stores it. Raises InputError for a decimal that has no room."""
    if value is None or not is_decimal(avro):
        return value
    number = compared(value, avro)
    assert isinstance(number, int)
    needed = shortest_bytes(number)
    room = decimal_bytes(avro) or needed
    if needed > room:
        raise InputError(f"a partition has the decimal {number}, which needs {needed} bytes: its column has {room} now")
    return number.to_bytes(room, "big", signed=True)


def compared_tuple(values: PartitionTuple, spec: Spec) -> PartitionTuple:
    """A partition of this spec, in whose values documents of earlier versions have decimals as they were stored."""
    return tuple(compared(value, part.avro["type"]) for value, part in zip(values, spec.fields, strict=True))


def not_null(avro: Any) -> Any:
    """The type of an optional Avro field."""
    return next((member for member in avro if member != "null"), "null") if isinstance(avro, list) else avro


def is_decimal(avro: Any) -> bool:
    type_ = not_null(avro)
    return isinstance(type_, dict) and type_.get("logicalType") == "decimal"


def decimal_bytes(avro: Any) -> int:
    """The bytes that a manifest has for a decimal. 0: the type has no fixed size."""
    type_ = not_null(avro)
    return int(type_.get("size", 0)) if isinstance(type_, dict) else 0


def shortest_bytes(number: int) -> int:
    """The bytes that a whole number needs with its sign."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def constant_of(value: PartitionValue, type_: pa.DataType) -> pa.Scalar | None:
    """A partition value as one of the column; None: it is not of the column's type (it may have been promoted)."""
    if isinstance(value, int) and pa.types.is_decimal(type_):
        with decimal.localcontext(prec=type_.precision):
            number = decimal.Decimal(value).scaleb(-type_.scale)
        return scalar_of(number, type_)
    if isinstance(value, bytes) and isinstance(type_, pa.BaseExtensionType):
        found = scalar_of(value, type_.storage_type)
        return None if found is None else pa.ExtensionScalar.from_storage(type_, found)
    return scalar_of(value, type_)


def scalar_of(value: object, type_: pa.DataType) -> pa.Scalar | None:
    """The value in Arrow's type; None: Arrow cannot hold it."""
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
