"""Partition values, which are texts, beside the columns of files.

day='2026-11-01', column day date32     the rows of a file without the column get 2026-11-01
day='2026-11-01', a row has 11-02       refused: the column disagrees with the partition's value
day='monday', column day date32         refused: the value does not fit date32
day='01', nobody knows a column day     may be the value of day='1', of day='1.0' and of day='true'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import Partition, partition_text
from deltacompact.tabular.column_types import plain_type
from deltacompact.tabular.conversion import converted_column

NO_NAN = "NaN names no partition, because it equals no value"
_HEX = re.compile("0[xX][0-9a-fA-F]{1,16}")


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


def fitting_scalar(text: str | None, field: pa.Field) -> pa.Scalar:
    """A partition value, as above. Raises SchemaError for NaN, too."""
    value = partition_scalar(text, field)
    if is_nan(value):
        raise SchemaError(f"partition value {text!r} of column {field.name!r} is NaN, which equals no value")
    return value


def check_fit(partition: Partition, columns: pa.Schema, begins: bool = True) -> None:
    """Raises SchemaError if a value of the partition does not fit the column of its name; or is NaN, if it `begins`.

    Older releases have begun partitions of NaN, which are read like others.
    """
    for name, text in partition.values:
        if name in columns.names:
            (fitting_scalar if begins else partition_scalar)(text, columns.field(name))


def value_of(text: str | None, field: pa.Field) -> pa.Scalar | None:
    """The value of a text. None: it is no value of the type."""
    try:
        return fitting_scalar(text, field)
    except SchemaError:
        return None


def usual_text(value: pa.Scalar, field: pa.Field) -> str | None:
    """The text that names the partition of a value, from which every reader gets the value back.

    Raises InputError for a value that cannot name a partition.
    """
    try:
        text = partition_text(value)
        if text is None or partition_scalar(text, field).equals(value):
            return text
    except (InputError, OverflowError, ValueError):  # bytes; dates before the year 1
        pass
    why = NO_NAN if is_nan(value) else f"{field.type} values cannot name partitions"
    raise InputError(f"partition column {field.name!r}: {why}")


def likely_value(text: str | None) -> float | datetime | str | None:
    """What a text may mean: texts that are one value of some type are one here. So are some others."""
    if text is None:
        return None
    digits = str(int(text, 16)) if _HEX.fullmatch(text) else {"true": "1", "false": "0"}.get(text.lower(), text)
    if (number := value_of(digits, pa.field("", pa.float32()))) is not None:  # the type that takes most for one value
        return float(number.as_py())
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):
        return text


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
