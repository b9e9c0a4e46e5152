"""The three forms of a partition value: stored in manifests, ours (which is compared), and the column's.

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

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue, Spec, SpecField, canonical


def compared(value: Any, avro: Any) -> PartitionValue:
    """Our form of a stored value, by the Avro type of its field. A decimal becomes a whole number (1.23: 123)."""
    if isinstance(value, bytes) and is_decimal(avro):
        return int.from_bytes(value, "big", signed=True)
    return canonical(value)


def avro_value(value: PartitionValue, avro: Any) -> Any:
    """The stored form of our value, by the Avro type of its field. Raises InputError for a decimal without room."""
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
    """Our form of a partition of this spec. Documents of earlier versions have decimals in their stored form."""
    return tuple(compared(value, part.avro["type"]) for value, part in zip(values, spec.fields, strict=True))


def named_values(partition: PartitionTuple, spec: Spec) -> dict[str, str | None]:
    """The values of a partition of this spec in words, by the names of its fields."""
    return {part.name: in_words(value, part) for part, value in zip(spec.fields, partition, strict=True)}


def in_words(value: PartitionValue, part: SpecField) -> str | None:
    """Our value as people write it: the day 20458 as 2026-01-05, the decimal 123 as 1.23."""
    type_ = not_null(part.avro["type"])
    logical = type_.get("logicalType") if isinstance(type_, dict) else None
    unit = _UNITS.get(part.transform) or _UNITS.get(logical or "")
    if value is None or not isinstance(value, int):
        return None if value is None else str(value)
    if is_decimal(type_):
        return str(decimal.Decimal(value).scaleb(-int(type_["scale"])))
    return str(value) if unit is None else str(np.datetime64(value, unit))


_UNITS: dict[str, Any] = {"year": "Y", "month": "M", "day": "D", "hour": "h", "date": "D", "timestamp-micros": "us"}
"""Of transforms and logical types, numpy's units since 1970."""


def not_null(avro: Any) -> Any:
    """The type of an optional Avro field."""
    return next((member for member in avro if member != "null"), "null") if isinstance(avro, list) else avro


def is_decimal(avro: Any) -> bool:
    type_ = not_null(avro)
    return isinstance(type_, dict) and type_.get("logicalType") == "decimal"


def decimal_bytes(avro: Any) -> int:
    """How many bytes a manifest uses for a decimal. 0: the type has no fixed size."""
    type_ = not_null(avro)
    return int(type_.get("size", 0)) if isinstance(type_, dict) else 0


def shortest_bytes(number: int) -> int:
    """The bytes that a whole number needs with its sign."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def constant_of(value: PartitionValue, type_: pa.DataType) -> pa.Scalar | None:
    """The column's form of a partition value; None: it does not fit the column's type, which may have been promoted."""
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
