"""Expressions about files: may a data file have rows for which `day = 3 and id > 100` is true?

day=2  id 1 to 50        no: by its partition
day=3  id 1 to 50        no: by its column bounds
day=3  id 90 to 200      maybe
day=3  id in 5 bytes     maybe: a bound that does not fit the column's type is unknown
"""

from __future__ import annotations

import decimal
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from deltacompact.base.errors import InputError
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.iceberg.table.content_files import ContentFile, PartitionTuple
from deltacompact.iceberg.table.pyiceberg_door.where_text import Times, parsed

EXACT = 100
"""The precision for computing with decimals: Python's own 28 digits are fewer than a column may have."""
_UNKNOWN_COLUMN = re.compile("Could not find field with name (?P<name>.*), case_sensitive=")
_TIMES: Mapping[type, Times] = {
    TimestampType: Times(has_zone=False, digits=6),
    TimestamptzType: Times(has_zone=True, digits=6),
    TimestampNanoType: Times(has_zone=False, digits=9),
    TimestamptzNanoType: Times(has_zone=True, digits=9),
}
_COUNTS = ("value_counts", "null_value_counts", "nan_value_counts")


def files_that_may_match(where: str, metadata: PyTableMetadata) -> Callable[[ContentFile], bool]:
    """A function that tells, by partition and column bounds, whether a data file may have rows that match `where`.

    Raises InputError for an expression that cannot be parsed, or that does not fit the columns.
    """
    with decimal.localcontext(prec=EXACT):
        return _files_that_may_match(where, metadata)


def _files_that_may_match(where: str, metadata: PyTableMetadata) -> Callable[[ContentFile], bool]:
    schema: Schema = metadata.schema()
    times = {name: _TIMES.get(type(schema.find_type(name))) for name in schema.column_names}
    expression = parsed(where, where, times.get)
    try:
        by_bounds = _InclusiveMetricsEvaluator(schema, expression)
    except Exception as error:  # of a column, or of a value's type
        if unknown := _UNKNOWN_COLUMN.match(text_of(error)):
            shown = columns_shown(schema.column_names)
            raise InputError(f"where {where!r}: there is no column {unknown['name']!r} ({shown})") from None
        raise InputError(f"where {where!r} is not an expression about this table: {text_of(error)}") from None
    columns = {number: schema.find_type(number) for number in extract_field_ids(by_bounds.expr)}
    asked = {number: type_ for number, type_ in columns.items() if isinstance(type_, PrimitiveType)}
    known = set(schema.field_ids)
    by_partition = {
        spec.spec_id: _of_partition(spec, schema, expression)
        for spec in metadata.partition_specs
        if {field.source_id for field in spec.fields} <= known
    }

    def may(file: ContentFile) -> bool:
        partition = by_partition.get(file.spec_id)
        if partition is not None and not partition(file.partition):
            return False
        metrics: dict[str, Any] = {name: dict(getattr(file, name)) for name in _COUNTS}
        metrics |= {name: _known(getattr(file, name), asked) for name in ("lower_bounds", "upper_bounds")}
        return bool(by_bounds.eval(DataFile.from_args(record_count=file.rows, **metrics)))

    return may


def _known(bounds: Mapping[int, bytes], asked: Mapping[int, PrimitiveType]) -> dict[int, bytes]:
    """The bounds of the columns that are asked for, as far as they fit today's types. A date that became a timestamp
    has four bytes in old manifests."""
    return {
        number: bounds[number] for number, type_ in asked.items() if number in bounds and _fits(bounds[number], type_)
    }


def _fits(bound: bytes, type_: PrimitiveType) -> bool:
    try:
        from_bytes(type_, bound)
    except (struct.error, ValueError, TypeError):
        return False
    return True


def _of_partition(
    spec: PartitionSpec, schema: Schema, expression: BooleanExpression
) -> Callable[[PartitionTuple], bool]:
    """A function that tells whether rows of a partition may match. Decimals in partitions are whole numbers."""
    struct = spec.partition_type(schema)
    projected = inclusive_projection(schema, spec)(expression)
    matches = expression_evaluator(Schema(*struct.fields), projected, True)
    types = [field.field_type for field in struct.fields]

    def may(partition: PartitionTuple) -> bool:
        values = [
            unscaled_to_decimal(int(value), type_.scale)
            if isinstance(type_, DecimalType) and value is not None
            else value
            for type_, value in zip(types, partition, strict=True)
        ]
        return bool(matches(Record(*values)))

    return may
