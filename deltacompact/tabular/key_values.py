"""The ranges of key columns in text files, which have no footer: they are measured when the file is appended.

id = 7, 3, 9        ("id", 3, 9)
name = b, a, null   ("name", "a", "b")
day = 2024-01-01    nothing: only whole numbers and text are kept, because JSON has them

Only forecasts use them: see key_ranges.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile

KeyRanges = tuple[tuple[str, Any, Any], ...]

TEXT_MAX = 64
"""Ranges with longer texts are not kept."""


def of_table(table: pa.Table, keys: Sequence[str]) -> KeyRanges:
    """(column, least, greatest) for each of these columns that has values of a kept type."""
    found = ((name, _range(table[name])) for name in keys if name in table.column_names)
    return tuple((name, *of_column) for name, of_column in found if of_column is not None)


def union(files: Sequence[DataFile]) -> KeyRanges:
    """The ranges of the rows of all these files, for the columns whose range every file knows."""
    ranges = [{name: (low, high) for name, low, high in file.ranges} for file in files]
    names = set.intersection(*map(set, ranges)) if ranges else set()
    of_names = {name: [of_file[name] for of_file in ranges] for name in sorted(names)}
    return tuple(
        (name, min(low for low, _ in known), max(high for _, high in known))
        for name, known in of_names.items()
        if len({type(low) for low, _ in known}) == 1
    )


def _range(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    is_kept = low is not None and (isinstance(low, int) or max(len(low), len(high)) <= TEXT_MAX)
    return (low, high) if is_kept else None
