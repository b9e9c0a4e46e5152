"""The least and greatest values of columns: found in rows, stored as JSON in the log, used as bounds of boxes.

    day        2026-01-03 … 2026-01-09       20456, 20462             days since 1970
    customer   "ada" … "zoë", 70 bytes       "ada", "zoë…" + 1        long values are cut, the greatest is rounded up
    note       only null                     null, null
    amount     1.5 … NaN                     {"float": …} twice       NaN is no bound: readers could not skip by it

A column without a known range may have any value.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.layout.boxes import ColumnBounds
from deltacompact.layout.skipping import KnownColumn, bound_of
from deltacompact.layout.stored_values import stored_value, value_of

Range = tuple[Any, Any]
"""(least, greatest), as numbers or bytes. (None, None): the rows have only null."""
ValueRanges = Mapping[str, Range]
StoredRanges = tuple[tuple[str, Any, Any], ...]

ONLY_NULL: Range = (None, None)
BOUND_BYTES_MAX = 64


def ranges_of(rows: pa.Table, names: Sequence[str]) -> dict[str, Range]:
    """The ranges of these columns in `rows`."""
    return {name: range_of(comparable(rows[name])) for name in names}


def joined(ranges: Iterable[ValueRanges]) -> dict[str, Range]:
    """The ranges of all rows together. If one part lacks a column's range, the range of the whole is unknown."""
    each = list(ranges)
    names = set.intersection(*(set(of_file) for of_file in each)) if each else set()
    return {name: _joined([of_file[name] for of_file in each]) for name in sorted(names)}


def stored_ranges(ranges: ValueRanges) -> StoredRanges:
    """The ranges as the log stores them."""
    cut = {name: (_cut(low), _cut_above(high)) for name, (low, high) in ranges.items()}
    return tuple((name, stored_value(low), stored_value(high)) for name, (low, high) in cut.items())


def ranges_from(stored: StoredRanges, was: pa.Schema, now: pa.Schema) -> dict[str, Range]:
    """The ranges of a file written with schema `was`, in the types that the columns have now."""
    found = {}
    for name, low, high in stored:
        if name in was.names and name in now.names:
            types = was.field(name).type, now.field(name).type
            with contextlib.suppress(pa.ArrowException):  # it does not fit the new type: unknown
                found[name] = _in_type(value_of(low), *types), _in_type(value_of(high), *types)
    return found


def ranges_to_skip_by(file: DataFile, now: pa.Schema) -> dict[str, Range]:
    """The ranges in the log by which readers may skip a file, in the types that the columns have now.

    A file that was kept as it came had its ranges from its footer. Older builds misread those of times of day, and of
    names with a dot.
    """
    if file.clustered is None:
        return {}
    ranges = ranges_from(file.clustered.ranges, file.schema, now)
    if file.clustered.by:
        return ranges
    times = {column.name for column in file.schema if pa.types.is_time(column.type)}
    return {name: range_ for name, range_ in ranges.items() if name not in times and "." not in name}


def column_bounds(ranges: Sequence[ValueRanges], name: str, type_: pa.DataType) -> ColumnBounds:
    """The bounds of files in one column. A bound that does not fit the column's type is unknown."""
    held = _held(type_)
    known = [of_file.get(name) for of_file in ranges]
    low, high = (
        pa.array([None if range_ is None or not _fits(range_[side], held) else range_[side] for range_ in known], held)
        for side in (0, 1)
    )
    return ColumnBounds(
        low, high, np.array([range_ == ONLY_NULL for range_ in known], bool), np.zeros(len(known), bool)
    )


def with_rows(of_files: ColumnBounds, values: pa.ChunkedArray) -> ColumnBounds:
    """The bounds of files, followed by the values of some rows, each row like a file of its own."""
    own = comparable(values).combine_chunks()
    is_null = np.asarray(own.is_null())
    is_nan = (
        np.asarray(pc.fill_null(pc.is_nan(own), False)) if pa.types.is_floating(own.type) else np.zeros_like(is_null)
    )
    return ColumnBounds(
        pa.concat_arrays([of_files.low, own]),
        pa.concat_arrays([of_files.high, own]),
        np.concatenate([of_files.nulls, is_null]),
        np.concatenate([of_files.nans, is_nan]),
    )


def known_from(ranges: ValueRanges, columns: pa.Schema) -> dict[str, KnownColumn]:
    """The ranges as `skipping` needs them. Whether a file has nulls or NaN is known only if it has nothing else."""
    return {name: _known(range_, columns.field(name).type) for name, range_ in ranges.items() if name in columns.names}


def _known(range_: Range, type_: pa.DataType) -> KnownColumn:
    low, high = (bound_of(side, type_) for side in range_)
    return KnownColumn(low, high, values=range_ != ONLY_NULL)


# One column


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in one of the four types in which bounds are compared: int64, float64, decimal256 or binary."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [_plain(chunk) for chunk in chunks]
    type_ = plain[0].type if plain else _plain(pa.array([], column.type)).type
    return pa.chunked_array([_cast(chunk) for chunk in plain], _held(type_))


def range_of(values: pa.ChunkedArray) -> Range:
    """The range of values that `comparable` returned."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)), null_selection_behavior="drop")
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _plain(values: pa.Array) -> pa.Array:
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _held(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    type_ = type_.value_type if t.is_dictionary(type_) else type_
    if t.is_floating(type_):
        return pa.float64()
    if t.is_decimal(type_):
        return pa.decimal256(76, type_.scale)
    if t.is_uint64(type_):
        return pa.decimal256(76, 0)
    is_bytes = t.is_string(type_) or t.is_large_string(type_) or t.is_binary(type_) or t.is_large_binary(type_)
    return pa.binary() if is_bytes or t.is_fixed_size_binary(type_) else pa.int64()


def _cast(values: pa.Array) -> pa.Array:
    t, type_ = pa.types, values.type
    if t.is_boolean(type_):
        values = values.cast(pa.uint8())
    elif t.is_date32(type_) or t.is_time32(type_):
        values = values.cast(pa.int32())
    elif t.is_large_string(type_):
        values = values.cast(pa.large_binary())
    return values.cast(_held(type_))


def _joined(ranges: Sequence[Range]) -> Range:
    known = [range_ for range_ in ranges if range_[0] is not None and range_[1] is not None]
    if not known:
        return ONLY_NULL
    return min(low for low, _ in known), max(high for _, high in known)


def in_type(value: Any, was: pa.DataType, now: pa.DataType) -> Any:
    """A value of a footer, in the form in which bounds are compared. Raises pa.ArrowException or ValueError."""
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound")
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else comparable(pa.array([value], was).cast(now))[0].as_py()


# Stored values


def _cut(low: Any) -> Any:
    return low[:BOUND_BYTES_MAX] if isinstance(low, bytes) else low


def _cut_above(high: Any) -> Any:
    """Short bytes that are not less. If all leading bytes are 0xff, nothing short is greater: they are not cut."""
    if not isinstance(high, bytes) or len(high) <= BOUND_BYTES_MAX:
        return high
    begin = high[:BOUND_BYTES_MAX].rstrip(b"\xff")
    return begin[:-1] + bytes([begin[-1] + 1]) if begin else high


def _in_type(value: Any, was: pa.DataType, now: pa.DataType) -> Any:
    """A bound in the column's current type: the unit of a time may have become finer."""
    if value is None or was == now or not isinstance(value, int) or not pa.types.is_temporal(was):
        return value
    return comparable(pa.array([value], pa.int64()).cast(_by_number(was)).cast(was).cast(now))[0].as_py()


def _by_number(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _fits(value: Any, held: pa.DataType) -> bool:
    t = pa.types
    if t.is_floating(held):
        return isinstance(value, float) and not math.isnan(value)
    if t.is_decimal(held):
        return isinstance(value, (Decimal, int))
    return isinstance(value, bytes) if t.is_binary(held) else isinstance(value, int)
