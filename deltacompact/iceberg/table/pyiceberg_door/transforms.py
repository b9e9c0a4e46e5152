"""The partitions of rows: PyIceberg's transforms over Arrow arrays, the door to them.

    spec      day(at), bucket[4](id)
    rows      2026-01-05 10:00  7      2026-01-05 11:00  9      2026-01-06 00:00  7
    found     partitions (20458, 2), (20458, 1), (20459, 2)     and of each row, the number of its partition

Partition values have the form that manifests hold (content_files.py).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.transforms import UnknownTransform, VoidTransform, parse_transform
from pyiceberg.types import BinaryType, IcebergType, NestedField, TimestampType, TimestamptzType
from pyiceberg.utils.decimal import decimal_to_unscaled

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue, Spec, canonical
from deltacompact.iceberg.table.metadata import Column, TableMetadata

_VOID = "void"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One field of a partition spec. `source` is the column's name, `type` its Iceberg type."""

    source: str
    type: str
    transform: str


def partition_columns(spec: Spec, columns: Mapping[int, Column]) -> tuple[PartitionColumn, ...]:
    """The fields of a spec, to compute partitions of rows by. Raises InputError for a partition field that cannot be
    computed from rows."""
    found = []
    for part in spec.fields:
        transform: Any = parse_transform(part.transform)
        if isinstance(transform, VoidTransform):
            found.append(PartitionColumn("", "", _VOID))
            continue
        column = columns.get(part.source_id)
        if column is None or column.is_dropped or not column.is_top_level or not _is_known(transform):
            why = "its column is not there" if _is_known(transform) else "its transform is unknown"
            if column is not None and not column.is_top_level:
                why = "its column lies inside of a struct"
            raise InputError(f"rows cannot be divided by {part.name!r} of partition spec {spec.spec_id}: {why}")
        found.append(PartitionColumn(column.field.name, column.type, part.transform))
    return tuple(found)


def partitions_of(
    table: pa.Table, columns: Sequence[PartitionColumn]
) -> tuple[npt.NDArray[np.int64], list[PartitionTuple]]:
    """(the number of each row's partition, the partitions by number)."""
    numbers = np.zeros(table.num_rows, np.int64)
    partitions: list[PartitionTuple] = [()]
    for column in columns:
        codes, values = _coded(table, column)
        pairs, numbers = np.unique(numbers * len(values) + codes, return_inverse=True)
        partitions = [(*partitions[pair // len(values)], values[pair % len(values)]) for pair in pairs.tolist()]
    return numbers, partitions


def _coded(table: pa.Table, column: PartitionColumn) -> tuple[npt.NDArray[np.int64], list[PartitionValue]]:
    """(the number of each row's value, the values by number)."""
    if column.transform == _VOID:
        return np.zeros(table.num_rows, np.int64), [None]
    array = _whole(table[column.source])
    transformed = _transformed(array, column)
    _refuse_overflow(array, transformed, column)
    array, from_stored = _plain(transformed)
    coded = array.dictionary_encode(null_encoding="encode")
    values = [None if value is None else from_stored(value) for value in coded.dictionary.to_pylist()]
    return np.asarray(coded.indices, np.int64), values


def transformed(column: pa.ChunkedArray, by: PartitionColumn) -> pa.Array:
    """The transformed values of a column."""
    return _transformed(_whole(column), by)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def check_transform(by: PartitionColumn) -> None:
    """Raises InputError if the transform does not take values of its column's type."""
    transform: Any = parse_transform(by.transform)
    if not _is_known(transform) or not transform.can_transform(_type(by.type)):
        raise InputError(f"column {by.source!r} has type {by.type}, of which {by.transform} makes nothing")


def check_orders(metadata: TableMetadata) -> None:
    """Refuse sort orders with which PyIceberg cannot commit: it checks all orders of a table, not only the current one.

    Raises InputError naming a transform that we do not know.
    """
    for field in (field for fields in metadata.sort_orders.values() for field in fields):
        if not _is_known(parse_transform(field.transform)):
            raise InputError(
                f"a sort order of table {metadata.table_id!r} has a transform that we do not know ({field.transform}): "
                "nothing can be committed to it"
            )


def _is_known(transform: Any) -> bool:
    """Whether values can be computed. They cannot for 0 buckets, or for a width of 0."""
    divisor = getattr(transform, "num_buckets", getattr(transform, "width", 1))
    return not isinstance(transform, (UnknownTransform, VoidTransform)) and divisor > 0


def _transformed(array: pa.Array, column: PartitionColumn) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    transform: Any = parse_transform(column.transform)
    if column.transform == "identity":
        return array
    type_ = _type(column.type)
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":  # the library's own are wrong before 1970
        array = _floored(array).cast(pa.timestamp("us", array.type.tz))
        type_ = TimestampType() if array.type.tz is None else TimestamptzType()
    if isinstance(type_, BinaryType):
        array = array.cast(pa.binary())
    found: pa.Array = transform.pyarrow_transform(type_)(array)
    return found


def _type(text: str) -> IcebergType:
    """Iceberg's type of this name."""
    field = {"id": 1, "name": "column", "type": text, "required": False}
    return NestedField.model_validate(field).field_type


def _floored(nanoseconds: pa.Array) -> pa.Array:
    """Whole microseconds."""
    stored = nanoseconds.cast(pa.int64())
    return pa.array(np.asarray(pc.fill_null(stored, 0)) // 1000, mask=np.asarray(pc.is_null(stored)))


def _refuse_overflow(values: pa.Array, truncated: pa.Array, column: PartitionColumn) -> None:
    """Refuse numbers whose truncated value is below the least of the type: engines wrap around there, and miss such
    rows for `id < 0`."""
    if column.transform.startswith("truncate") and (_is_whole(values.type) or pa.types.is_decimal(values.type)):
        over = pc.greater(truncated, values) if _is_whole(values.type) else _has_more_digits(truncated)
        if pc.any(over).as_py():
            value = values.filter(over)[0].as_py()
            raise InputError(
                f"{column.transform} of {value} in column {column.source!r} is less than any {column.type}: "
                "choose another partition spec"
            )


def _has_more_digits(decimals: pa.Array) -> pa.Array:
    """Which decimals have more digits than their type."""
    type_ = decimals.type
    least = decimal.Decimal((1, (9,) * type_.precision, -type_.scale))
    return pc.less(decimals, pa.scalar(least, type_))


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(type_))


def _plain(array: pa.Array) -> tuple[pa.Array, Callable[[Any], PartitionValue]]:
    """The array in a form in which only identical values are equal, and a function to the manifest's form."""
    t = pa.types
    if t.is_floating(array.type):  # by their bits: 0.0 is not -0.0, and NaN is NaN
        bits: Any = np.int32 if t.is_float32(array.type) else np.int64
        floats = bits(0).view(np.float32 if t.is_float32(array.type) else np.float64).dtype
        array = pc.if_else(pc.is_nan(array), pa.scalar(np.nan, array.type), array)
        return array.view(pa.from_numpy_dtype(bits)), lambda value: canonical(float(bits(value).view(floats)))
    if t.is_decimal(array.type):
        return array, decimal_to_unscaled
    if t.is_date(array.type):
        return array.cast(pa.int32()), int
    if t.is_time(array.type) or t.is_timestamp(array.type):
        return array.cast(pa.int64()), int
    return array, lambda value: value
