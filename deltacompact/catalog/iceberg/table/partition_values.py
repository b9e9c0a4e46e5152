"""Partition values as manifests hold them, and as columns do.

day      date             20458         a whole number of days      2026-01-05
price    decimal(9, 2)    b"\\x00\\x7b"    bytes of a whole number     1.23
code     uuid             16 bytes                                  the same bytes
"""

from __future__ import annotations

import decimal

import pyarrow as pa

from deltacompact.catalog.iceberg.table.content_files import PartitionValue


def constant_of(value: PartitionValue, type_: pa.DataType) -> pa.Scalar | None:
    """A partition value as one of the column; None: it is not of the column's type (it may have been promoted)."""
    if isinstance(value, bytes) and pa.types.is_decimal(type_):
        with decimal.localcontext(prec=type_.precision):
            number = decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-type_.scale)
        return _scalar(number, type_)
    if isinstance(value, bytes) and isinstance(type_, pa.BaseExtensionType):
        found = _scalar(value, type_.storage_type)
        return None if found is None else pa.ExtensionScalar.from_storage(type_, found)
    return _scalar(value, type_)


def _scalar(value: object, type_: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
