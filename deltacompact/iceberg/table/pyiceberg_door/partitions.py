"""Finds the partition of another spec that has all rows of a data file, by the file's own partition and column bounds.

to the spec "truncate(name, 1)"      own partition day=3, name from "anna" to "axel"     ("a",)
                                     own partition day=3, name from "anna" to "bert"     several partitions
                                     own partition name_trunc=a                          ("a",)
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, PrimitiveType

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import ContentFile, PartitionTuple, PartitionValue


def refuse_unknown_transforms(table_id: str, metadata: PyTableMetadata) -> None:
    """Raises InputError for unknown transforms: nobody may write such partitions (spec, "Partition Transforms"), and
    PyIceberg would lose the transform's name."""
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if isinstance(field.transform, UnknownTransform):
                raise InputError(
                    f"partition field {field.name!r} of Iceberg table {table_id!r} has an unknown transform"
                )


def partition_in_spec(
    spec_id: int, metadata: PyTableMetadata, table_id: str
) -> Callable[[ContentFile], PartitionTuple | None]:
    """A function that gives the partition of this spec with all rows of a data file. None: several, or unknown.

    Raises InputError for a spec that the table does not have.
    """
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    if spec_id not in specs:
        known = ", ".join(str(number) for number in sorted(specs))
        raise InputError(f"table {table_id!r} has no partition spec {spec_id} (specs: {known})")
    schema: Schema = metadata.schema()

    def partition(file: ContentFile) -> PartitionTuple | None:
        if file.spec_id == spec_id:
            return file.partition
        own_fields = specs[file.spec_id].fields
        own = {
            (field.source_id, str(field.transform)): value
            for field, value in zip(own_fields, file.partition, strict=True)
        }
        values: list[PartitionValue] = []
        for field in specs[spec_id].fields:
            if isinstance(field.transform, VoidTransform):
                values.append(None)
            elif (name := (field.source_id, str(field.transform))) in own:
                values.append(own[name])
            elif (found := _constant(file, field, schema)) is not None:
                values += found
            else:
                return None
        return tuple(values)

    return partition


def _is_below(value: Any, type_: PrimitiveType) -> bool:
    """Whether a truncated number is below the least one of the type, so that no manifest can hold it."""
    least = {IntegerType(): IntegerType.min, LongType(): LongType.min}.get(type_)
    return least is not None and isinstance(value, int) and value < least


_MONOTONIC = (IdentityTransform, TruncateTransform, YearTransform, MonthTransform, DayTransform, HourTransform)


def _constant(file: ContentFile, field: PartitionField, schema: Schema) -> tuple[PartitionValue] | None:
    """The one partition value that all rows of a file have, in a tuple; None: several, or unknown.

    If lower and upper bound are equal, they are exact: a cut lower bound would be less, a cut upper bound greater.
    """
    number = field.source_id
    nulls, values = file.null_value_counts.get(number), file.value_counts.get(number)
    if nulls is None or not values or number not in schema.field_ids:
        return None
    if nulls == values:
        return (None,)
    low, high = file.lower_bounds.get(number), file.upper_bounds.get(number)
    type_ = schema.find_field(number).field_type
    inexact = (FloatType, DoubleType, DecimalType)  # NaN, -0.0, and numbers that manifests hold as bytes
    if nulls or low is None or high is None or not isinstance(type_, PrimitiveType) or isinstance(type_, inexact):
        return None
    if not isinstance(field.transform, _MONOTONIC) and not (
        isinstance(field.transform, BucketTransform) and low == high
    ):
        return None
    transform: Any = field.transform.transform(type_)
    try:
        first, last = (transform(from_bytes(type_, bound)) for bound in (low, high))
    except (ValueError, struct.error):  # a bound of the type that the column had before
        return None
    if first != last or _is_below(first, type_):
        return None
    return (first.bytes if isinstance(first, uuid.UUID) else first,)
