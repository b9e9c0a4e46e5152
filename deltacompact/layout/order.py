"""Turns a column's values into arrays that can be compared fast, in the same order: whole numbers, floats, or bytes.

    int, date, time, timestamp, bool     whole numbers                    1969-12-31 -> -1
    float, double                        floats: -0.0 is 0.0, NaN above all
    decimal                              16 or 32 bytes of one width      -1.50 -> 7f ff … 6a     1.50 -> 80 00 … 96
    string, binary, uuid                 bytes of full length             "é" -> c3 a9, as UTF-8 orders characters

Nulls are left out: the caller decides whether they come first or last. Values are compared in full, not by shortened
bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError

Ordered: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"
"""Values without nulls, in NumPy's order or in Arrow's order of bytes."""
Numbers = npt.NDArray[np.int64]
Side: TypeAlias = Literal["left", "right"]
RUNS_MERGED_MAX = 16
"""With fewer sorted runs, merging them is fastest. With more, sorting from scratch is."""
_HEAD = 8
"""Bytes of a string that are compared at once, as one number."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column without its nulls, and for each row whether it is null."""

    of: Ordered
    is_null: npt.NDArray[np.bool_]


def has_order(type_: pa.DataType) -> bool:
    """Whether values of a type can be compared."""
    try:
        ordered(pa.array([], _plain_type(type_)))
    except (InputError, pa.ArrowException):
        return False
    return True


def values_of(column: pa.Array | pa.ChunkedArray) -> Values:
    """The values of a column. Raises InputError for a type without an order."""
    array = _whole(column)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_null = np.asarray(array.is_null())
    return Values(ordered(array.drop_null() if array.null_count else array), is_null)


def ordered(array: pa.Array) -> Ordered:
    """Values without nulls, in the form in which they are compared. Raises InputError for a type without an order."""
    t, type_ = pa.types, array.type
    if t.is_boolean(type_):
        return np.asarray(array.cast(pa.uint8()))
    if t.is_integer(type_) or t.is_floating(type_):
        return np.asarray(array)
    if t.is_date32(type_) or t.is_time32(type_):
        return np.asarray(array.cast(pa.int32()))
    if t.is_date64(type_) or t.is_time64(type_) or t.is_timestamp(type_) or t.is_duration(type_):
        return np.asarray(array.cast(pa.int64()))
    if t.is_decimal(type_):
        return _of_decimals(array)
    if t.is_fixed_size_binary(type_):
        return _in_bytes(array, type_.byte_width).view(f"S{type_.byte_width}").reshape(-1)
    if t.is_string(type_) or t.is_large_string(type_) or t.is_binary(type_) or t.is_large_binary(type_):
        return array.cast(pa.large_binary())
    raise InputError(f"values of type {type_} have no order")


def stable_order(values: npt.NDArray[Any]) -> Numbers:
    """The places of values in sorted order; equal values keep their order.

    If a whole number and its place fit 64 bits, they are packed and sorted by vector instructions, in a fifth of the
    time. If the values are a few sorted runs, NumPy's stable sort merges them in a third of that.
    """
    if len(values) < 2 or values.dtype.kind not in "iu" or np.count_nonzero(values[1:] < values[:-1]) < RUNS_MERGED_MAX:
        return np.argsort(values, kind="stable").astype(np.int64)
    low, place_bits = values.min(), (len(values) - 1).bit_length()
    if (int(values.max()) - int(low)).bit_length() + place_bits > 64:
        return np.argsort(values, kind="stable").astype(np.int64)
    packed = (values.astype(np.uint64) - np.array(low).astype(np.uint64)) << np.uint64(place_bits)
    packed |= np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << place_bits) - 1)).astype(np.int64)


def dense_ranks(values: Ordered) -> tuple[Numbers, Numbers]:
    """(rank of each value: the number of distinct smaller values, first place of each distinct value)."""
    if not isinstance(values, np.ndarray):
        return _ranks_of_bytes(values)
    order = stable_order(values)
    sorted_ = values[order]
    begins = np.ones(len(values), bool)
    begins[1:] = sorted_[1:] != sorted_[:-1]
    if values.dtype.kind == "f":
        begins[1:] &= ~np.isnan(sorted_[:-1])  # all NaN are alike, and last
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.cumsum(begins) - 1
    return ranks, order[begins]


def _ranks_of_bytes(values: pa.LargeBinaryArray) -> tuple[Numbers, Numbers]:
    """Compares the eight bytes after the common prefix, and all bytes of values that are equal there."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = pc.min_max(values).as_py()
    ranks, first = dense_ranks(_heads(values, common_prefix(ends["min"], ends["max"])))
    alike = np.flatnonzero(np.bincount(ranks)[ranks] > 1)
    if not len(alike):
        return ranks, first
    coded = values.take(pa.array(alike)).dictionary_encode()
    order = np.asarray(pc.array_sort_indices(coded.dictionary)).astype(np.int64)
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    ranks *= len(order)
    ranks[alike] += rank_of[np.asarray(coded.indices)]
    return dense_ranks(ranks)


def not_above(cuts: Ordered, values: Ordered) -> Numbers:
    """For each value, how many cuts are less or equal. Cuts are sorted."""
    return _counted(cuts, values, "right")


def below(cuts: Ordered, values: Ordered) -> Numbers:
    """For each value, how many cuts are less. Cuts are sorted."""
    return _counted(cuts, values, "left")


def _counted(cuts: Ordered, values: Ordered, side: Side) -> Numbers:
    if isinstance(cuts, np.ndarray):
        return np.searchsorted(cuts, values, side=side).astype(np.int64)
    return _counted_in_bytes(cuts, values, side)


def _counted_in_bytes(cuts: pa.LargeBinaryArray, values: pa.LargeBinaryArray, side: Side) -> Numbers:
    """Compares the eight bytes after the common prefix of the cuts, and all bytes of values that equal a cut there."""
    if not len(cuts) or not len(values):
        return np.zeros(len(values), np.int64)
    skipped = common_prefix(cuts[0].as_py(), cuts[-1].as_py())
    heads = _heads(cuts, skipped)
    of_values = _heads(values, skipped)
    low = np.searchsorted(heads, of_values, side="left").astype(np.int64)
    high = np.searchsorted(heads, of_values, side="right").astype(np.int64)
    if skipped:
        begin = pa.scalar(cuts[0].as_py()[:skipped], pa.large_binary())
        others = ~np.asarray(pc.starts_with(values, pattern=begin.as_py()))
        beyond = np.where(np.asarray(pc.greater(values, begin)), len(cuts), 0)
        low, high = np.where(others, beyond, low), np.where(others, beyond, high)
    return _bisected(cuts, values, low, high, pc.less_equal if side == "right" else pc.less)


def _bisected(
    cuts: pa.LargeBinaryArray, values: pa.LargeBinaryArray, low: Numbers, high: Numbers, counts: Callable[..., Any]
) -> Numbers:
    """The numbers between `low` and `high`, by bisection. Each step compares all undecided values at once."""
    while len(asked := np.flatnonzero(low < high)):
        middle = (low[asked] + high[asked]) // 2
        counted = np.asarray(counts(cuts.take(pa.array(middle)), values.take(pa.array(asked))))
        low[asked] = np.where(counted, middle + 1, low[asked])
        high[asked] = np.where(counted, high[asked], middle)
    return low


def _heads(values: pa.LargeBinaryArray, skipped: int) -> npt.NDArray[np.uint64]:
    """The eight bytes of each value after the first `skipped`, as a number. Zeros stand for missing bytes."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    padded = np.concatenate([data, np.zeros(_HEAD, np.uint8)])
    words = np.ndarray((len(data) + 1,), ">u8", padded, strides=(1,))  # eight bytes from each byte on
    starts = np.minimum(offsets[:-1] + skipped, offsets[1:])
    missing = np.maximum(_HEAD - (offsets[1:] - starts), 0).astype(np.uint64) * np.uint64(8)
    found = (words[starts].astype(np.uint64) >> (missing & np.uint64(63))) << (missing & np.uint64(63))
    return np.where(missing < 64, found, np.uint64(0))


def common_prefix(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    limit = min(len(one), len(other))
    return next((place for place in range(limit) if one[place] != other[place]), limit)


def _of_decimals(array: pa.Array) -> npt.NDArray[Any]:
    """Big-endian bytes with the sign bit inverted: they sort like the numbers."""
    wide = pa.decimal256(array.type.precision, array.type.scale)
    plain = pa.decimal128(array.type.precision, array.type.scale) if array.type.precision <= 38 else wide
    array = array.cast(plain)
    width = plain.bit_width // 8
    turned = _in_bytes(array, width)[:, ::-1].copy()
    turned[:, 0] ^= 0x80
    return turned.view(f"S{width}").reshape(-1)


def _in_bytes(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of values of one width. NumPy ignores zeros at the end, which is harmless for values of one width."""
    raw = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.ascontiguousarray(raw[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
