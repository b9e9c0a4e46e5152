"""Partition values, which are texts, beside the columns of files.

day='2026-11-01', column day date32     the rows of a file without the column get 2026-11-01
day='2026-11-01', a row has 11-02       refused: the column disagrees with the partition's value
day='monday', column day date32         refused: the value does not fit date32
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Partition
from deltacompact.tabular.column_types import plain_type
from deltacompact.tabular.conversion import converted_column

NO_NAN = "NaN names no partition, because it equals no value"


def with_partition_keys(columns: pa.Schema, keys: Iterable[str]) -> pa.Schema:
    """The columns, and a text column for each partition key that no file has."""
    return pa.schema([*columns, *(pa.field(name, pa.string()) for name in keys if name not in columns.names)])


def partition_scalar(text: str | None, field: pa.Field) -> pa.Scalar:
    """A partition value, cast to the type of its column. Raises SchemaError if it does not fit."""
    plain = plain_type(field.type)
    try:
        value = pa.scalar(text, pa.string()).cast(plain) if text is not None else pa.scalar(None, plain)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaError(f"partition value {text!r} does not fit {plain}, the type of column {field.name!r}") from None
    return value.cast(field.type) if plain != field.type else value


def is_nan(value: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py())


def check_fit(partition: Partition, columns: pa.Schema) -> None:
    """Raises SchemaError if a value of the partition does not fit the column of its name."""
    for name, text in partition.values:
        if name in columns.names:
            partition_scalar(text, columns.field(name))


def check_partition_values(table: pa.Table, partition: Partition, path: str) -> None:
    """Raises SchemaError if a row has another value in a partition column than the partition, or NaN."""
    for name, text in partition.values:
        if name not in table.column_names or not table.num_rows:
            continue
        column = converted_column(table[name], plain_type(table[name].type))
        if pa.types.is_null(column.type):
            agrees = text is None
        else:
            try:
                expected = partition_scalar(text, pa.field(name, column.type))
            except SchemaError as error:
                raise SchemaError(f"{path}: {error}") from None
            if is_nan(expected):
                raise SchemaError(f"{path}: column {name!r}: {NO_NAN}")
            agrees = _all_equal(column, expected)
        if not agrees:
            shown = "null" if text is None else repr(text)
            raise SchemaError(f"{path}: column {name!r} disagrees with the partition's value {shown}")


def _all_equal(column: pa.ChunkedArray, expected: pa.Scalar) -> bool:
    if not expected.is_valid:
        return bool(column.null_count == len(column))
    from deltacompact.base import compute as pc

    return bool(column.null_count == 0 and pc.all(pc.equal(column, expected)).as_py())
