"""Dates are whole days, and times of day lie in one day. A value may be anywhere: in lists, structs, dictionaries.

    date64       1995-04-03 00:00    a date
                 1995-04-03 10:30    refused: Parquet keeps only the day, and two keys would become one
                 2^31 days           refused: Parquet and keys have 32 bits for a day
    time32[s]    10:30, 24:00        times of day
                 3,000,000 s         refused: Parquet has 32 bits for its milliseconds

Arrow's specification demands this. Some libraries hand over other values, and most casts and writers truncate or wrap
them silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.tabular.conversion import is_list

DAY_MS = 86_400_000
_UNITS_OF_DAY = {"s": 86_400, "ms": DAY_MS, "us": DAY_MS * 10**3, "ns": DAY_MS * 10**6}
_Test = Callable[[pa.DataType], bool]


def no_date(column: pa.ChunkedArray) -> str | None:
    """Why a date64, at any depth of the column, is no date. None: all are."""
    for dates in _arrays(column, pa.types.is_date64):
        values = np.asarray(dates.view(pa.int64()))
        days = values // DAY_MS
        for wrong, why in (
            (values != days * DAY_MS, "is not a whole day"),
            (days != days.astype(np.int32), "is a day that 32 bits do not hold"),
        ):
            if wrong.any():
                return f"date64 value {values[wrong][0]} ms {why}"
    return None


def check_times(table: pa.Table, path: str) -> None:
    """Raise SchemaError naming file and column of a time of day before 0:00 or after 24:00.

    Only appends check it: tables of earlier releases have such values.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        for times in _arrays(column, pa.types.is_time):
            values = np.asarray(times.view(pa.int32() if times.type.bit_width == 32 else pa.int64()))
            wrong = values[(values < 0) | (values > _UNITS_OF_DAY[times.type.unit])]
            if wrong.size:
                raise SchemaError(f"{path}: column {name!r}: {times.type} value {wrong[0]} is no time of one day")


def _arrays(column: pa.ChunkedArray, is_wanted: _Test) -> Iterator[pa.Array]:
    """The arrays of the wanted types, at any depth of the column, without nulls."""
    if _may_have(column.type, is_wanted):
        for chunk in column.chunks:
            for array in _below(chunk, is_wanted):
                yield array.drop_null()


def _may_have(type_: pa.DataType, is_wanted: _Test) -> bool:
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _may_have(type_.storage_type, is_wanted)
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return _may_have(type_.value_type, is_wanted)
    below = range(type_.num_fields) if t.is_nested(type_) else ()
    return is_wanted(type_) or any(_may_have(type_.field(place).type, is_wanted) for place in below)


def _below(array: pa.Array, is_wanted: _Test) -> Iterator[pa.Array]:
    """The arrays of the wanted types in an array, at any depth. Values below a null do not count."""
    t, type_ = pa.types, array.type
    if is_wanted(type_):
        yield array
    elif isinstance(type_, pa.BaseExtensionType):
        yield from _below(array.storage, is_wanted)
    elif t.is_run_end_encoded(type_):
        from deltacompact.base import compute as pc

        yield from _below(pc.run_end_decode(array), is_wanted)
    elif t.is_dictionary(type_):
        yield from _below(array.dictionary.take(array.indices.drop_null().unique()), is_wanted)
    elif t.is_map(type_):
        first, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        yield from _below(array.keys.slice(first, stop - first), is_wanted)
        yield from _below(array.items.slice(first, stop - first), is_wanted)
    elif t.is_struct(type_) or is_list(type_):
        for values in array.flatten() if t.is_struct(type_) else [array.flatten()]:
            if _may_have(values.type, is_wanted):
                yield from _below(values, is_wanted)
