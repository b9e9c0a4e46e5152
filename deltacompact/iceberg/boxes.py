"""The boxes of a branch's data files, by the column bounds in manifests of any writer.

column by name      its field id and type in today's schema
lower, upper        values in the column's order; a bound that is missing, or does not fit the type, is unknown
counts              they tell that all values of a file are null or NaN

Writers cut strings to 16 characters, and round the cut upper bound up: readers open files by these bounds, so depth
is counted by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.wording import column_meant
from deltacompact.iceberg.table.column_bounds import WHOLE_NUMBERS, comparable, has_order
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import Column, TableMetadata
from deltacompact.iceberg.table.partition_values import constant_of
from deltacompact.iceberg.table.table_state import Scope, scope_of
from deltacompact.layout.boxes import Boxes, ColumnBounds, boxes_of, numbered
from deltacompact.layout.skipping import KnownColumn, KnownColumns

_DIGITS = 38
"""Most digits of a decimal."""


def boxes_of_files(
    metadata: TableMetadata,
    data: Sequence[ManifestEntry],
    columns: Sequence[str],
    rows: Sequence[tuple[Scope, pa.Table]] = (),
) -> Boxes:
    """The boxes of data files by these columns, followed by one box for each of `rows`.

    Raises InputError naming a column that has no order, or is unknown.
    """
    files = [entry.file for entry in data]
    bounds = [_bounds(files, *ordered_column(metadata, name), [table[name] for _, table in rows]) for name in columns]
    scopes = [*map(scope_of, data), *(scope for scope, table in rows for _ in range(table.num_rows))]
    ones = repeat(1, len(scopes) - len(files))
    return boxes_of(columns, bounds, numbered(scopes), chain((file.rows for file in files), ones))


def ordered_column(metadata: TableMetadata, name: str) -> tuple[int, Column]:
    """(field id, column) of a top-level column that has an order. Raises InputError for any other name."""
    known = {
        column.field.name: (number, column)
        for number, column in metadata.columns.items()
        if column.is_top_level and not column.is_dropped
    }
    where = f"of table {metadata.table_id!r}"
    if name not in known:
        if name.partition(".")[0] in known:
            raise InputError(f"column {name!r} {where} lies inside of a struct: name a column of the top level")
        raise InputError(f"column {name!r} is not in table {metadata.table_id!r}: {column_meant(name, list(known))}")
    number, column = known[name]
    if not has_order(column.type):
        raise InputError(f"column {name!r} {where} has type {column.type}, which has no order: name another one")
    return number, column


def without_bounds(data: Sequence[ManifestEntry], number: int) -> int:
    """How many files have no bounds of a column, and may hold values: so readers always open them."""
    return sum(not has_bounds(entry.file, number) and may_hold_values(entry.file, number) for entry in data)


def has_bounds(file: ContentFile, number: int) -> bool:
    return number in file.lower_bounds or number in file.upper_bounds


def may_hold_values(file: ContentFile, number: int) -> bool:
    """Whether the counts of a file do not say that a column has only nulls and NaN there. Readers skip such files."""
    empty = file.null_value_counts.get(number, 0) + file.nan_value_counts.get(number, 0)
    return not 0 < file.value_counts.get(number, 0) <= empty


def _bounds(files: Sequence[ContentFile], number: int, column: Column, rows: Sequence[pa.ChunkedArray]) -> ColumnBounds:
    counts = [(file.value_counts.get(number, 0), file.null_value_counts.get(number, 0)) for file in files]
    nans = [file.nan_value_counts.get(number, 0) for file in files]
    values = [_of_rows(chunk, column.type) for of_table in rows for chunk in of_table.chunks]
    low = _array([file.lower_bounds.get(number) for file in files], column.type)
    high = _array([file.upper_bounds.get(number) for file in files], column.type)
    of_rows = pa.concat_arrays([low.slice(0, 0), *values])
    nan = (
        np.asarray(pc.fill_null(pc.is_nan(of_rows), False))
        if pa.types.is_floating(low.type)
        else np.zeros(len(of_rows), bool)
    )
    return ColumnBounds(
        pa.concat_arrays([low, of_rows]),
        pa.concat_arrays([high, of_rows]),
        np.concatenate([np.array([0 < all_ <= nulls for all_, nulls in counts], bool), np.asarray(of_rows.is_null())]),
        np.concatenate(
            [
                np.array([of > 0 and all_ <= nulls + of for (all_, nulls), of in zip(counts, nans, strict=True)], bool),
                nan,
            ]
        ),
    )


def bounds_of(metadata: TableMetadata, file: ContentFile) -> dict[str, tuple[Any, Any]]:
    """The bounds (lower, upper) of a file's columns, by name. None: this bound is unknown. Both unknown: left out.

    UUIDs are left out, too, because writers order them differently.
    """
    found = {}
    for name in metadata.ordered_columns:
        number, column = ordered_column(metadata, name)
        sides = [bounds.get(number) for bounds in (file.lower_bounds, file.upper_bounds)]
        low, high = (value if value == value else None for value in _array(sides, column.type).to_pylist())
        if column.type != "uuid" and (low, high) != (None, None):
            found[name] = low, high
    return found


def known_of_files(metadata: TableMetadata, data: Sequence[ManifestEntry], names: Sequence[str]) -> list[KnownColumns]:
    """What manifests say of these columns in each file, for those who skip files."""
    columns = [(name, *ordered_column(metadata, name)) for name in names if name in metadata.ordered_columns]
    compared = [(name, number, column) for name, number, column in columns if column.type != "uuid"]
    return [{name: _known(metadata, entry.file, number, column) for name, number, column in compared} for entry in data]


def _known(metadata: TableMetadata, file: ContentFile, number: int, column: Column) -> KnownColumn:
    """What the manifest says of a column. Counts say nothing if the file may lack the column: a default or the
    partition may fill it."""
    low, high = (_bound(sides.get(number), column) for sides in (file.lower_bounds, file.upper_bounds))
    constant = _constant(metadata, file, number, column)
    if low is None and high is None and constant is not None:
        return KnownColumn(constant, constant, nulls=False)
    rows, nulls = file.value_counts.get(number), file.null_value_counts.get(number)
    nans = file.nan_value_counts.get(number)
    is_filled = column.has_default or constant is not None
    has_values = is_filled or not rows or nulls is None or rows > nulls + (nans or 0)
    return KnownColumn(low, high, has_values, nulls != 0, nans != 0)


def _constant(metadata: TableMetadata, file: ContentFile, number: int, column: Column) -> pa.Scalar | None:
    """The value of the column in all rows, if the file is partitioned by it with transform identity; else None."""
    for part, value in zip(metadata.specs[file.spec_id].fields, file.partition, strict=True):
        if part.source_id == number and part.transform == "identity" and value is not None and value == value:
            return constant_of(value, column.field.type)
    return None


def _bound(stored: bytes | None, column: Column) -> pa.Scalar | None:
    value = comparable(stored, column.type)
    is_number = value is not None and column.type != "boolean" and value == value  # NaN is no bound
    return constant_of(value, column.field.type) if is_number else None


def comparable_rows(metadata: TableMetadata, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a column in the type of its bounds."""
    _, column = ordered_column(metadata, name)
    return pa.chunked_array([_of_rows(chunk, column.type) for chunk in values.chunks], _compared(column.type))


def _array(bounds: Sequence[bytes | None], type_: str) -> pa.Array:
    values: list[Any] = [comparable(bound, type_) for bound in bounds]
    if type_.startswith("decimal"):
        greatest = 10**_DIGITS
        values = [value if value is None or abs(value) < greatest else None for value in values]
    return pa.array(values, _compared(type_))


def _compared(type_: str) -> pa.DataType:
    """The Arrow type in which values of a column are compared. Decimals become whole numbers (1.23: 123)."""
    if type_.startswith("decimal"):
        return pa.decimal128(_DIGITS)
    if type_ in WHOLE_NUMBERS or type_ == "boolean":
        return pa.int64()
    return pa.float64() if type_ in ("float", "double") else pa.binary()


def _of_rows(values: pa.Array, type_: str) -> pa.Array:
    """Values of rows in that type."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if type_.startswith("decimal"):
        wide = values.cast(pa.decimal128(_DIGITS, values.type.scale))
        return pa.Array.from_buffers(_compared(type_), len(wide), wide.buffers(), offset=wide.offset)
    if type_ == "date":
        values = values.cast(pa.int32())
    return values.cast(_compared(type_))
