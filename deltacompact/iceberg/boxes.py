"""The boxes of a branch's data files, from what manifests say of their columns: whoever has written them.

column by name      its field id and type, as today's schema has it
lower, upper        values that compare as the column does; a bound that is missing, or is none of its type: unknown
counts              a file of which all values are null, or NaN, says so by its counts

Writers cut strings to 16 characters, and round the cut upper bound up: readers open files by these bounds, so depth
is counted by them.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.column_bounds import WHOLE_NUMBERS, comparable, has_order
from deltacompact.iceberg.table.content_files import ContentFile, Entry
from deltacompact.iceberg.table.metadata import Column, TableMetadata
from deltacompact.iceberg.table.table_state import scope_of
from deltacompact.layout.boxes import Boxes, ColumnBounds, boxes_of, numbered

_DIGITS = 38
"""Most digits of a decimal."""


def boxes_of_files(metadata: TableMetadata, data: Sequence[Entry], columns: Sequence[str]) -> Boxes:
    """The boxes of data files by these columns. Raises InputError naming a column that has no order, or is unknown."""
    files = [entry.file for entry in data]
    bounds = [_bounds(files, *ordered_column(metadata, name)) for name in columns]
    return boxes_of(columns, bounds, numbered(map(scope_of, data)), (file.rows for file in files))


def ordered_column(metadata: TableMetadata, name: str) -> tuple[int, Column]:
    """The field id of a column by which files may lie apart, and the column. Raises InputError."""
    known = {
        column.field.name: (number, column)
        for number, column in metadata.columns.items()
        if column.is_top_level and not column.is_dropped
    }
    where = f"of table {metadata.table_id!r}"
    if name not in known:
        if name.partition(".")[0] in known:
            raise InputError(f"column {name!r} {where} lies inside of a struct: name a column of the top level")
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
        raise InputError(f"column {name!r} is not in table {metadata.table_id!r}: {hint}")
    number, column = known[name]
    if not has_order(column.type):
        raise InputError(f"column {name!r} {where} has type {column.type}, which has no order: name another one")
    return number, column


def without_bounds(data: Sequence[Entry], number: int) -> int:
    """How many files have no bounds of a column."""
    return sum(number not in entry.file.lower_bounds and number not in entry.file.upper_bounds for entry in data)


def _bounds(files: Sequence[ContentFile], number: int, column: Column) -> ColumnBounds:
    counts = [(file.value_counts.get(number, 0), file.null_value_counts.get(number, 0)) for file in files]
    nans = [file.nan_value_counts.get(number, 0) for file in files]
    return ColumnBounds(
        _array([file.lower_bounds.get(number) for file in files], column.type),
        _array([file.upper_bounds.get(number) for file in files], column.type),
        np.array([0 < values <= nulls for values, nulls in counts], bool),
        np.array([nan > 0 and values <= nulls + nan for (values, nulls), nan in zip(counts, nans, strict=True)], bool),
    )


def _array(bounds: Sequence[bytes | None], type_: str) -> pa.Array:
    values: list[Any] = [comparable(bound, type_) for bound in bounds]
    if type_.startswith("decimal"):
        greatest = 10**_DIGITS
        return pa.array([one if one is None or abs(one) < greatest else None for one in values], pa.decimal128(_DIGITS))
    if type_ in WHOLE_NUMBERS or type_ == "boolean":
        return pa.array(values, pa.int64())
    return pa.array(values, pa.float64() if type_ in ("float", "double") else pa.binary())
