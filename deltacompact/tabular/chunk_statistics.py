"""What a Parquet footer says of the chunks of top-level columns: where they are, and the bounds of their values.

day date32       1969-12-31 … 2026-11-22      as pyarrow says
t time64[us]     0 … 86,400,000,000,000       nanoseconds, by the stored numbers: pyarrow takes 24:00 for 0:00
a.b              not told                     a column of this name, or the field b of a struct
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.data_file import DataFile
from deltacompact.tabular import field_ids

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def places(metadata: pq.FileMetaData) -> dict[str, int]:
    """The places of the chunks in each row group, by the file's own names. Names with a dot are left out."""
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    return {path: number for number, path in enumerate(paths) if "." not in path}


def places_of(file: DataFile, metadata: pq.FileMetaData, names: Iterable[str]) -> dict[str, int]:
    """The same by the table's names, for columns whose values are all the file's own."""
    found, filled = places(metadata), field_ids.fills_of(file)
    has = [file.schema.field(name) for name in names if name in file.schema.names]
    unfilled = [column.name for column in has if field_ids.field_id(column) not in filled]
    own = ((name, field_ids.stored_names(file, [name])) for name in unfilled)
    return {name: found[stored[0]] for name, stored in own if stored and stored[0] in found}


def bounds(chunk: pq.ColumnChunkMetaData, type_: pa.DataType) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column of this type, as values of `type_of_bounds`. None: not known."""
    said = chunk.statistics
    if said is None or not said.has_min_max or chunk.physical_type == "INT96":
        return None
    if pa.types.is_time(type_):  # pyarrow also cuts nanoseconds
        scale = _NANOSECONDS["ms" if said.physical_type == "INT32" else type_.unit]
        return said.min_raw * scale, said.max_raw * scale
    with contextlib.suppress(ValueError, OverflowError):  # Python has no dates before the year 1 and after 9999
        return said.min, said.max
    return None


def type_of_bounds(type_: pa.DataType) -> pa.DataType:
    """The type of the bounds of a column: one for all times of day, so that those of two files compare."""
    return pa.time64("ns") if pa.types.is_time(type_) else type_
