"""What kernel tests draw: columns of every type that a key or a sort key may have, with slices, nulls and extremes.

(timestamp("us"), 4, integers of 64 bits, how to make an array)      4 is the class tag in the key bytes
"""

from __future__ import annotations

import decimal
import hashlib
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import reference_kernels as reference
from hypothesis import strategies as st

UNITS = ("s", "ms", "us", "ns")


def int_array(kind: pa.DataType) -> Callable[[list[int | None]], pa.Array]:
    """Temporal arrays from what is stored: any integer is a value, whether Python has a name for it or not."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return lambda values: pa.array(values, width).view(kind)


def binary_view(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.large_string() if kind == pa.string_view() else pa.large_binary()).cast(kind)


def unscaled(kind: pa.DataType) -> Callable[[list[int | None]], pa.Array]:
    wide = decimal.Context(prec=100)
    return lambda values: pa.array(
        [None if v is None else decimal.Decimal(v).scaleb(-kind.scale, wide) for v in values], kind
    )


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1])


Make = Callable[[list[Any]], pa.Array]
Kind = tuple[pa.DataType, int, st.SearchStrategy[Any], Make]


def plain(kind: pa.DataType) -> Make:
    return lambda values: pa.array(values, kind)


def all_kinds() -> list[Kind]:
    kinds: list[Kind] = []
    for bits in (8, 16, 32, 64):
        for name, signed in ((f"int{bits}", True), (f"uint{bits}", False)):
            kind = getattr(pa, name)()
            kinds.append((kind, 1, integers(bits, signed), plain(kind)))
    for bits, kind in ((16, pa.float16()), (32, pa.float32()), (64, pa.float64())):
        numbers = st.floats(width=bits)  # type: ignore[arg-type]
        special = st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf])
        kinds.append((kind, 2, numbers | special, plain(kind)))
    for kind in (pa.decimal32(7, 2), pa.decimal64(16, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)):
        most = 10**kind.precision - 1
        kinds.append((kind, 3, st.integers(-most, most) | st.integers(-200, 200), unscaled(kind)))
    for unit in UNITS:
        for tag, kind in ((4, pa.timestamp(unit)), (5, pa.timestamp(unit, "Europe/Berlin")), (8, pa.duration(unit))):
            kinds.append((kind, tag, integers(64) | st.integers(-2000, 2000), int_array(kind)))
    kinds.append((pa.date32(), 6, integers(32), int_array(pa.date32())))
    days = st.integers(-(2**63) // 86_400_000 + 1, 2**63 // 86_400_000)
    kinds.append((pa.date64(), 6, days.map(lambda day: day * 86_400_000), int_array(pa.date64())))
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        day = 86_400 * reference.PER_SECOND[kind.unit]
        kinds.append((kind, 7, st.integers(0, day - 1), int_array(kind)))
    for kind in (pa.string(), pa.large_string()):
        kinds.append((kind, 9, st.text(max_size=40), plain(kind)))
    for kind in (pa.binary(), pa.large_binary()):
        kinds.append((kind, 10, st.binary(max_size=140), plain(kind)))
    kinds.append((pa.string_view(), 9, st.text(max_size=40), lambda values: binary_view(values, pa.string_view())))
    kinds.append((pa.binary_view(), 10, st.binary(max_size=140), lambda values: binary_view(values, pa.binary_view())))
    for width in (0, 1, 7, 16):
        kind = pa.binary(width)
        kinds.append((kind, 10, st.binary(min_size=width, max_size=width), plain(kind)))
    kinds.append((pa.bool_(), 11, st.booleans(), plain(pa.bool_())))
    return kinds


KINDS = all_kinds()
SORTABLE = [kind for kind in KINDS if kind[1] not in (9, 10) or pa.types.is_fixed_size_binary(kind[0])]


@st.composite
def drawn_column(draw: st.DrawFn, kinds: list[Kind], rows: int) -> tuple[pa.Array, int]:
    """A column of some type, as a slice out of a longer array, with or without nulls."""
    _, tag, values, make = draw(st.sampled_from(kinds))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
    cells = values if draw(st.booleans()) else values | st.none()
    length = before + rows + after
    return make(draw(st.lists(cells, min_size=length, max_size=length))).slice(before, rows), tag


@st.composite
def key_columns(draw: st.DrawFn, rows_max: int = 12) -> tuple[list[pa.Array], list[int], int]:
    rows = draw(st.integers(0, rows_max))
    drawn = draw(st.lists(drawn_column(KINDS, rows), min_size=0, max_size=4))
    return [array for array, _ in drawn], [tag for _, tag in drawn], rows


def digest_of(key: int) -> bytes:
    """Few keys, some of which agree in their first eight bytes."""
    return hashlib.sha1(bytes([key // 2])).digest()[:8] + hashlib.sha1(bytes([key])).digest()[8:]
