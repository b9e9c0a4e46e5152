"""Values of date64, which count milliseconds, must be whole days.

    date64    1995-04-03 00:00    a date
              1995-04-03 10:30    refused: Parquet keeps only the day, and two keys would become one

Arrow's specification of date64 demands whole days. Some libraries hand over other values, and most casts and writers
truncate them silently. A date64 may be anywhere: in lists, structs, dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from deltacompact.tabular.conversion import is_list

DAY_MS = 86_400_000


def part_of_day(column: pa.ChunkedArray) -> int | None:
    """A date64 value with a time of day, at any depth of the column, in milliseconds; None: there is none."""
    if not _may_have(column.type):
        return None
    for chunk in column.chunks:
        for dates in _dates(chunk):
            values = np.asarray(dates.drop_null().view(pa.int64()))
            odd = np.flatnonzero(values % DAY_MS)
            if odd.size:
                return int(values[odd[0]])
    return None


def _may_have(type_: pa.DataType) -> bool:
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _may_have(type_.storage_type)
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return _may_have(type_.value_type)
    below = range(type_.num_fields) if t.is_nested(type_) else ()
    return bool(t.is_date64(type_)) or any(_may_have(type_.field(place).type) for place in below)


def _dates(array: pa.Array) -> Iterator[pa.Array]:
    """The date64 arrays of an array, at any depth. Values below a null do not count."""
    t, type_ = pa.types, array.type
    if t.is_date64(type_):
        yield array
    elif isinstance(type_, pa.BaseExtensionType):
        yield from _dates(array.storage)
    elif t.is_run_end_encoded(type_):
        from deltacompact.base import compute as pc

        yield from _dates(pc.run_end_decode(array))
    elif t.is_dictionary(type_):
        yield from _dates(array.dictionary.take(array.indices.drop_null().unique()))
    elif t.is_map(type_):
        first, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        yield from _dates(array.keys.slice(first, stop - first))
        yield from _dates(array.items.slice(first, stop - first))
    elif t.is_struct(type_) or is_list(type_):
        for values in array.flatten() if t.is_struct(type_) else [array.flatten()]:
            if _may_have(values.type):
                yield from _dates(values)
