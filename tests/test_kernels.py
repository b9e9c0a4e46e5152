"""Every kernel against its plain twin in reference_kernels.py, over all types, slices, nulls and hostile input."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import itertools
import math
import os
import re
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_kernels as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_kernels import DELETE, GONE, KEYLESS, TOMBSTONE, Entry

from deltacompact import _kernels as kernels

GOLDEN = Path(__file__).parent / "golden" / "key_vectors.txt"
UNITS = ("s", "ms", "us", "ns")


def backends() -> list[str]:
    names = []
    for name in ("sha-ni", "avx2", "portable"):
        try:
            kernels.key_digests([], [], 0, backend=name)
        except ValueError:
            continue
        names.append(name)
    return names


# --- columns of every type -------------------------------------------------------------------------------------------


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
def column(draw: st.DrawFn, kinds: list[Kind], rows: int) -> tuple[pa.Array, int]:
    """A column of some type, as a slice out of a longer array, with or without nulls."""
    _, tag, values, make = draw(st.sampled_from(kinds))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
    cells = values if draw(st.booleans()) else values | st.none()
    length = before + rows + after
    return make(draw(st.lists(cells, min_size=length, max_size=length))).slice(before, rows), tag


@st.composite
def key_columns(draw: st.DrawFn, rows_max: int = 12) -> tuple[list[pa.Array], list[int], int]:
    rows = draw(st.integers(0, rows_max))
    drawn = draw(st.lists(column(KINDS, rows), min_size=0, max_size=4))
    return [array for array, _ in drawn], [tag for _, tag in drawn], rows


# --- keys ------------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(key_columns())
def test_key_bytes_and_digests_are_those_of_the_twin(drawn: tuple[list[pa.Array], list[int], int]) -> None:
    columns, tags, rows = drawn
    assert kernels.key_bytes(columns, tags, rows) == reference.key_bytes(columns, tags, rows)
    expected = reference.key_digests(columns, tags, rows)
    for backend in backends():
        assert np.array_equal(kernels.key_digests(columns, tags, rows, backend=backend), expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind[0]))
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_type_has_its_key_bytes(kind: Kind, data: st.DataObject) -> None:
    array, tag = data.draw(column([kind], 5))
    assert kernels.key_bytes([array], [tag], 5) == reference.key_bytes([array], [tag], 5)


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 15, 255, 256, 257, 600])
def test_every_length_is_hashed_right(backend: str, rows: int) -> None:
    edges = (0, 1, 47, 48, 49, 50, 55, 56, 57, 58, 63, 64, 65, 113, 114, 119, 120, 121, 127, 128, 129, 1000, 5000)
    lengths = np.random.default_rng(rows).choice(np.array(edges), rows)
    values = [bytes([i % 251]) * int(length) for i, length in enumerate(lengths)]
    digests = kernels.key_digests([pa.array(values, pa.binary())], [10], rows, backend=backend)
    for value, digest in zip(values, digests, strict=True):
        assert digest.tobytes() == hashlib.sha1(b"\x01\x0a" + len(value).to_bytes(4, "big") + value).digest()


@pytest.mark.parametrize("backend", backends())
def test_all_key_lengths_up_to_three_blocks(backend: str) -> None:
    values = [bytes(range(length)) for length in range(200)]
    expected = reference.key_digests([pa.array(values)], [10], 200)
    assert np.array_equal(kernels.key_digests([pa.array(values)], [10], 200, backend=backend), expected)


def test_one_long_key_among_short_ones() -> None:
    values = ["a", "b" * 3_000_000, "c", None, "d" * 70]
    array = pa.array(values)
    assert np.array_equal(kernels.key_digests([array], [9], 5), reference.key_digests([array], [9], 5))


def test_null_typed_columns_are_null_under_any_tag() -> None:
    for tag in range(1, 12):
        assert kernels.key_bytes([pa.nulls(2)], [tag], 2) == [bytes([0])] * 2


def test_equal_keys_of_different_types_are_one_key() -> None:
    noon = datetime.datetime(2024, 5, 6, 12, tzinfo=datetime.UTC)
    same = [
        (1, [pa.array([7], kind) for kind in (pa.int8(), pa.uint8(), pa.int32(), pa.uint64())]),
        (2, [pa.array([0.5], kind) for kind in (pa.float16(), pa.float32(), pa.float64())]),
        (2, [pa.array([0.0]), pa.array([-0.0], pa.float32())]),
        (3, [pa.array([decimal.Decimal("1.25")], kind) for kind in (pa.decimal32(4, 2), pa.decimal256(70, 2))]),
        (5, [pa.array([noon], pa.timestamp(unit, zone)) for unit in UNITS for zone in ("UTC", "Asia/Tokyo")]),
        (6, [pa.array([datetime.date(1969, 7, 20)], kind) for kind in (pa.date32(), pa.date64())]),
        (9, [pa.array(["ö"], pa.string()), pa.array(["ö"], pa.large_string()), binary_view(["ö"], pa.string_view())]),
        (10, [pa.array([b"ab"], pa.binary()), pa.array([b"ab"], pa.binary(2))]),
    ]
    for tag, arrays in same:
        assert len({kernels.key_bytes([array], [tag], 1)[0] for array in arrays}) == 1
    assert kernels.key_bytes([pa.array([2**64 - 1], pa.uint64())], [1], 1) != kernels.key_bytes(
        [pa.array([-1])], [1], 1
    )


def test_keys_that_are_refused() -> None:
    week, storage = pa.array([1]), pa.array([b"0" * 16], pa.binary(16))
    cases: list[tuple[list[Any], list[int], int, str]] = [
        ([week], [9], 1, r"column 0: Arrow type Int64 does not belong to class tag 9 \(string\)"),
        ([week, pa.array(["x"])], [1, 10], 1, "column 1: Arrow type Utf8 does not belong to class tag 10"),
        ([pa.array([1], pa.timestamp("s"))], [5], 1, "class tag 5"),
        ([pa.array([1], pa.timestamp("s", "UTC"))], [4], 1, "class tag 4"),
        ([pa.array(["a"]).dictionary_encode()], [9], 1, "Dictionary"),
        ([pa.ExtensionArray.from_storage(pa.uuid(), storage)], [10], 1, "extension type arrow.uuid"),
        ([pa.array([[1]])], [1], 1, "List"),
        ([pa.array([pa.MonthDayNano([1, 2, 3])])], [8], 1, "Interval"),
        ([week], [1], 2, "column 0: 1 rows, want 2"),
        ([week], [1, 1], 1, "1 columns but 2 tags"),
        ([week], [0], 1, "tags: want an integer from 1 to 11"),
        ([week], [12], 1, "tags: want"),
        ([week], [1], -1, "rows: want"),
        ([[1]], [1], 1, "column 0: not an Arrow array"),
        ([pa.chunked_array([[1]])], [1], 1, "column 0: not an Arrow array"),
        ([int_array(pa.date64())([0, 86_400_001])], [6], 2, "column 0, row 1: date64 value 86400001 ms is not a whole"),
        ([int_array(pa.time64("us"))([2**62])], [7], 1, "column 0, row 0: time value"),
    ]
    for columns, tags, rows, why in cases:
        with pytest.raises(ValueError, match=why):
            kernels.key_digests(columns, tags, rows)
        with pytest.raises(ValueError, match=why):
            kernels.key_bytes(columns, tags, rows)
    with pytest.raises(ValueError, match="no such backend"):
        kernels.key_digests([], [], 0, backend="md5")


def test_offsets_that_lead_nowhere_are_refused() -> None:
    data = pa.py_buffer(b"abc")
    for offsets in ([0, 3, 1], [0, -1, 2], [0, 2**31 - 1, 3]):
        array = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array(offsets, np.int32)), data])
        with pytest.raises(ValueError, match=r"column 0, row [01]: the array's offsets lead outside"):
            kernels.key_digests([array], [9], 2)
    view = np.array([20, 0, 7, 0], np.uint32)
    array = pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(view), data])
    with pytest.raises(ValueError, match="offsets lead outside"):
        kernels.key_digests([array], [9], 1)


def test_a_null_date64_need_not_be_a_whole_day() -> None:
    array = pa.Array.from_buffers(pa.date64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([5, 0]))])
    assert kernels.key_bytes([array], [6], 2) == [b"\x00", b"\x01\x06" + bytes(8)]


def golden_cases() -> list[tuple[str, str]]:
    return re.findall(r"^(key .+)\n----\n((?:.+\n)*)", GOLDEN.read_text(), re.MULTILINE)


def golden_array(word: str) -> tuple[pa.Array, int]:
    """One column of a golden case: tag:type=values, values as Python literals of what Arrow stores."""
    tag, kind, literals = re.fullmatch(r"(\d+):(.+?)=(\[[^=]+\])", word).groups()  # type: ignore[union-attr]
    known = {str(each[0]).replace(", ", ","): each[3] for each in KINDS}
    values = eval(literals, {"nan": math.nan, "inf": math.inf})
    return (pa.nulls(len(values)) if kind == "null" else known[kind](values)), int(tag)


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case[0])
def test_golden_key_vectors(case: tuple[str, str]) -> None:
    command, expected = case
    drawn = [golden_array(word) for word in command.removeprefix("key ").split(" | ")]
    columns, tags = [array for array, _ in drawn], [tag for _, tag in drawn]
    rows = len(columns[0])
    keys, digests = kernels.key_bytes(columns, tags, rows), kernels.key_digests(columns, tags, rows)
    found = zip(keys, digests, kernels.buckets(digests, 313), strict=True)
    lines = "".join(f"{key.hex()} {digest.tobytes().hex()} {bucket}\n" for key, digest, bucket in found)
    if "UPDATE_GOLDEN" in os.environ:
        GOLDEN.write_text(GOLDEN.read_text().replace(f"{command}\n----\n{expected}", f"{command}\n----\n{lines}"))
    else:
        assert lines == expected


# --- buckets and groups ----------------------------------------------------------------------------------------------

COUNTS = st.integers(1, 2**32 - 1) | st.integers(1, 1000) | st.sampled_from([1, 2, 2**16, 2**29, 2**29 + 1, 2**31])


@settings(deadline=None)
@given(st.lists(st.binary(min_size=20, max_size=20), max_size=20), COUNTS)
def test_buckets(digests: list[bytes], count: int) -> None:
    digests += [b"\xff" * 20, b"\x00" * 20]
    matrix = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 20)
    assert kernels.buckets(matrix, count).tolist() == reference.buckets(matrix, count)


@settings(deadline=None)
@given(st.data(), st.sampled_from([0, 1, 9, 17, 42]), st.integers(1, 40))
def test_group_entries(data: st.DataObject, sort_key_bytes: int, count: int) -> None:
    width = 32 + sort_key_bytes
    seeds = data.draw(st.lists(st.integers(0, 30), max_size=4))
    parts = [np.random.default_rng(rows).integers(0, 256, (rows, width), np.uint8) for rows in seeds]
    grouped, offsets = kernels.group_entries(parts, count)
    expected, expected_offsets = reference.group_entries(parts, count)
    assert [line.tobytes() for line in grouped] == expected
    assert offsets.tolist() == expected_offsets
    assert grouped.shape[1] == (width if parts else 32)


def test_pack_entries() -> None:
    rng = np.random.default_rng(3)
    for width in (0, 1, 9, 33):
        digests = rng.integers(0, 256, (50, 20), np.uint8)
        keys = rng.integers(0, 256, (50, width), np.uint8)
        rows = rng.integers(0, 2**64, 50, np.uint64)
        packed = kernels.pack_entries(digests, keys, 2**32 - 2, rows)
        expected = [
            Entry(digest.tobytes(), key.tobytes(), 2**32 - 2, int(row))
            for digest, key, row in zip(digests, keys, rows, strict=True)
        ]
        assert reference.to_entries(packed) == expected


def test_arrays_that_are_refused() -> None:
    digests, keys, rows = np.zeros((2, 20), np.uint8), np.zeros((2, 9), np.uint8), np.zeros(2, np.uint64)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: kernels.buckets(digests.astype(np.int8), 3), r"digests: want .* \(n, 20\), got int8 \(2, 20\)"),
        (lambda: kernels.buckets(np.zeros((2, 40), np.uint8)[:, ::2], 3), "C-contiguous"),
        (lambda: kernels.buckets(np.asfortranarray(np.zeros((2, 20), np.uint8)), 3), "C-contiguous"),
        (lambda: kernels.buckets(np.zeros(20, np.uint8), 3), r"got uint8 \(20,\)"),
        (lambda: kernels.buckets(digests, 0), "hash_bucket_count: want an integer from 1"),
        (lambda: kernels.buckets(digests, 2**32), "hash_bucket_count"),
        (lambda: kernels.buckets("abc", 3), "digests: want"),  # type: ignore[arg-type]
        (lambda: kernels.pack_entries(digests, keys, -1, rows), "ordinal"),
        (lambda: kernels.pack_entries(digests, keys, 2**32, rows), "ordinal"),
        (lambda: kernels.pack_entries(digests, keys[:1], 0, rows), "2 digests, 1 sort keys, 2 rows"),
        (lambda: kernels.pack_entries(digests, keys, 0, rows[:1]), "2 digests, 2 sort keys, 1 rows"),
        (lambda: kernels.pack_entries(digests, keys, 0, rows.astype(np.int64)), "rows: want a contiguous uint64"),
        (lambda: kernels.pack_entries(digests, keys[0], 0, rows), "sort_keys"),
        (lambda: kernels.group_entries([np.zeros((1, 31), np.uint8)], 3), r"parts\[0\]: want .* at least 32"),
        (lambda: kernels.group_entries([np.zeros((1, 32), np.uint8), np.zeros((1, 33), np.uint8)], 3), r"parts\[1\]"),
        (lambda: kernels.is_ascending(np.zeros((1, 20), np.uint8)), "entries: want"),
    ]
    for call, why in wrong:
        with pytest.raises(ValueError, match=why):
            call()


def test_read_only_arrays_are_accepted() -> None:
    digests = np.frombuffer(bytes(40), np.uint8).reshape(2, 20)
    rows = np.frombuffer(bytes(16), np.uint64)
    packed = kernels.pack_entries(digests, np.frombuffer(b"", np.uint8).reshape(2, 0), 1, rows)
    packed.flags.writeable = False
    assert kernels.buckets(digests, 5).tolist() == [0, 0]
    assert kernels.group_entries([packed], 2)[1].tolist() == [0, 2, 2]
    assert not kernels.is_ascending(packed)


# --- sort keys -------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 8))
def test_sort_keys_are_those_of_the_twin(data: st.DataObject, rows: int) -> None:
    columns = [array for array, _ in data.draw(st.lists(column(SORTABLE, rows), max_size=3))]
    descending = [data.draw(st.booleans()) for _ in columns]
    result = kernels.sort_keys(columns, descending, rows)
    assert result.shape == (rows, sum(1 + reference.value_width(array.type) for array in columns))
    assert [line.tobytes() for line in result] == reference.sort_keys(columns, descending, rows)


@pytest.mark.parametrize("kind", SORTABLE, ids=lambda kind: str(kind[0]))
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_sort_key_bytes_order_as_values_do(kind: Kind, data: st.DataObject) -> None:
    array, _ = data.draw(column([kind], 6))
    order = [reference.sort_key_order(value) for value in reference.raw_values(array)]
    for descending in (False, True):
        keys = [line.tobytes() for line in kernels.sort_keys([array], [descending], 6)]
        for a in range(6):
            for b in range(6):
                if order[a][0] != order[b][0] or not descending:
                    assert (keys[a] < keys[b]) == (order[a] < order[b])
                else:
                    assert (keys[a] < keys[b]) == (order[a] > order[b])


VARIABLE = [kind for kind in KINDS if kind[1] in (9, 10)]


def encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


TEXTS = st.text("a\0é", max_size=8) | st.sampled_from(["", "\0", "a", "a\0", "ab", "z" * 32, "é" * 16])


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 8))
def test_sort_keys_of_strings_and_binaries_are_those_of_the_twin(data: st.DataObject, rows: int) -> None:
    columns, widths = [], []
    for kind, tag, values, make in data.draw(st.lists(st.sampled_from(SORTABLE + VARIABLE), max_size=3)):
        width = data.draw(st.integers(16, 32)) if tag in (9, 10) else None
        cells = values.filter(lambda value, width=width: width is None or len(encoded(value)) <= width)
        columns.append(data.draw(column([(kind, tag, cells, make)], rows))[0])
        widths.append(width)
    descending = [data.draw(st.booleans()) for _ in columns]
    result = kernels.sort_keys(columns, descending, rows, widths)
    assert [line.tobytes() for line in result] == reference.sort_keys(columns, descending, rows, widths)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 32))
def test_sort_keys_of_strings_order_as_their_bytes_do(a: str, b: str, width: int) -> None:
    width = max(width, len(a.encode()), len(b.encode()))
    for column in (pa.array([a, b, None]), pa.array([a.encode(), b.encode(), None])):
        up = [line.tobytes() for line in kernels.sort_keys([column], [False], 3, [width])]
        down = [line.tobytes() for line in kernels.sort_keys([column], [True], 3, [width])]
        assert (up[0] < up[1], up[0] == up[1]) == (a.encode() < b.encode(), a == b)
        assert (down[0] > down[1], down[0] == down[1]) == (a.encode() < b.encode(), a == b)
        assert max(up[2], down[2]) < min(*up[:2], *down[:2])


def test_a_sort_key_string_longer_than_its_column_is_wide_is_refused() -> None:
    for column in (pa.array(["a", "abc"]), pa.array([b"a", b"abc"]).cast(pa.binary_view())):
        with pytest.raises(ValueError, match=r"^column 1, row 1: a value of 3 bytes is longer than 2$"):
            kernels.sort_keys([pa.array([1, 2]), column], [False, False], 2, [None, 2])
    for width in (33, -1, "2"):
        with pytest.raises(ValueError, match="widths: want an integer from 0 to 32"):
            kernels.sort_keys([pa.array(["a"])], [False], 1, [width])
    with pytest.raises(ValueError, match="1 columns but 0 widths"):
        kernels.sort_keys([pa.array(["a"])], [False], 1, [])


def test_every_nan_is_one_nan() -> None:
    for kind, code in ((np.float16, np.uint16), (np.float32, np.uint32), (np.float64, np.uint64)):
        bits = np.array([np.nan], kind).view(code)
        other = pa.array(np.concatenate([bits | 1, bits, ~bits | bits]).view(kind))
        assert len({line.tobytes() for line in kernels.sort_keys([other], [False], 3)}) == 1
        assert len(set(kernels.key_bytes([other], [2], 3))) == 1


def test_sort_keys_that_are_refused() -> None:
    for array in (pa.nulls(1), pa.array(["a"]).dictionary_encode(), pa.array([[1]])):
        with pytest.raises(ValueError, match=r"column 1: Arrow type .* cannot be a sort key"):
            kernels.sort_keys([pa.array([1]), array], [False, False], 1)
    for array in (pa.array(["a"]), pa.array([b"a"])):
        with pytest.raises(ValueError, match=r"column 1: Arrow type .* needs a width to be a sort key"):
            kernels.sort_keys([pa.array([1]), array], [False, False], 1)
    with pytest.raises(ValueError, match="1 columns but 0 directions"):
        kernels.sort_keys([pa.array([1])], [], 1)
    with pytest.raises(ValueError, match="column 0: 1 rows, want 3"):
        kernels.sort_keys([pa.array([1])], [False], 3)


# --- the fold --------------------------------------------------------------------------------------------------------


def digest_of(key: int) -> bytes:
    """Few keys, some of which agree in their first eight bytes."""
    return hashlib.sha1(bytes([key // 2])).digest()[:8] + hashlib.sha1(bytes([key])).digest()[8:]


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """A base index, new events, and how they are handed over."""
    sort_key_bytes = draw(st.sampled_from([0, 1, 2]))
    sort_key = st.binary(min_size=sort_key_bytes, max_size=sort_key_bytes).map(
        lambda key: bytes(byte % 3 for byte in key)
    )
    keys = st.integers(0, draw(st.sampled_from([1, 6, 40])))
    base_files, new_files = 2, draw(st.integers(1, 4))
    base_keys = sorted(draw(st.sets(keys, max_size=30)), key=digest_of)
    base = []
    for row, key in enumerate(base_keys):
        tombstone = draw(st.booleans()) and draw(st.booleans())
        position = draw(st.sampled_from([-(2**63), -5, 0, 3, 40, 2**63 - 1]))
        pointer = (TOMBSTONE, position % 2**64) if tombstone else (row % base_files, row)
        base.append(Entry(digest_of(key), draw(sort_key), *pointer))
    count = draw(st.integers(0, 60))
    new = []
    for row in range(count):
        flags = draw(st.sampled_from([0, 0, 0, DELETE, DELETE | KEYLESS]))
        ordinal = base_files + draw(st.integers(0, new_files - 1))
        new.append(Entry(digest_of(draw(keys)), draw(sort_key), ordinal, row | flags))
    positions = sorted(draw(st.lists(st.integers(-10, 60), min_size=new_files + 2, max_size=new_files + 2)))
    if draw(st.booleans()):
        positions[0], positions[-1] = -(2**63), 2**63 - 1
    cuts = sorted(draw(st.lists(st.integers(0, len(base)), max_size=4)))
    return {
        "sort_key_bytes": sort_key_bytes,
        "base": base,
        "new": new,
        "positions": positions,
        "retention": draw(st.none() | st.integers(0, 30) | st.just(2**63 - 1)),
        "chunks": [base[a:b] for a, b in zip([0, *cuts], [*cuts, len(base)], strict=True)],
        "part_sizes": draw(st.lists(st.integers(0, 25), max_size=4)),
    }


def split(entries: list[Entry], sizes: list[int], sort_key_bytes: int) -> list[reference.Matrix]:
    ends = [0, *np.minimum(np.cumsum(np.array(sizes, np.int64)), len(entries)).tolist(), len(entries)]
    return [reference.to_matrix(entries[a:b], sort_key_bytes) for a, b in itertools.pairwise(ends)]


@settings(max_examples=500, deadline=None)
@given(histories())
def test_fold_is_that_of_the_twin(history: dict[str, Any]) -> None:
    width = history["sort_key_bytes"]
    parts = split(history["new"], history["part_sizes"], width)
    fold = kernels.Fold(parts, width, np.array(history["positions"], np.int64), history["retention"])
    out: list[Entry] = []
    for chunk in history["chunks"]:
        out += reference.to_entries(fold.push(reference.to_matrix(chunk, width)))
        if chunk:
            assert all(entry.digest <= chunk[-1].digest for entry in out)
            left = {entry.digest for entry in history["new"] if entry.digest <= chunk[-1].digest}
            assert len(out) <= len(left | {entry.digest for entry in history["base"]})
    out += reference.to_entries(fold.finish())
    expected = reference.fold(history["base"], history["new"], history["positions"], history["retention"])
    assert out == expected.entries
    assert fold.counts == expected.counts
    ordinals, rows = fold.dead()
    assert sorted(zip(ordinals.tolist(), rows.tolist(), strict=True)) == expected.dead


def random_entries(rng: np.random.Generator, keys: int, rows: int, ordinal: int) -> reference.Matrix:
    ids = pa.array(rng.integers(0, keys, rows))
    numbers = np.arange(rows, dtype=np.uint64)
    numbers |= (rng.random(rows) < 0.1).astype(np.uint64) << np.uint64(63)
    stamps = kernels.sort_keys([pa.array(rng.integers(0, 50, rows), pa.int8())], [False], rows)
    return kernels.pack_entries(kernels.key_digests([ids], [1], rows), stamps, ordinal, numbers)


@pytest.mark.parametrize("keys", [1, 50, 30_000])
def test_a_larger_fold_many_partitions_and_hot_keys(keys: int) -> None:
    """Sessions one after the other are one session: what the fold is for."""
    rng = np.random.default_rng(keys)
    parts = [random_entries(rng, keys, 7_000, ordinal) for ordinal in range(4)]
    positions = np.arange(4, dtype=np.int64)
    index = np.zeros((0, 34), np.uint8)
    for part in parts:
        fold = kernels.Fold([part], 2, positions)
        cuts = np.sort(rng.integers(0, len(index) + 1, 3))
        index = np.concatenate([*(fold.push(np.ascontiguousarray(c)) for c in np.split(index, cuts)), fold.finish()])
        assert kernels.is_ascending(index)
    at_once = kernels.Fold([parts[2], parts[0], parts[3], parts[1]], 2, positions)
    assert np.array_equal(at_once.finish(), index)
    everything = [entry for part in parts for entry in reference.to_entries(part)]
    assert reference.to_entries(index) == reference.fold([], everything, list(range(4)), None).entries


def test_folds_that_are_refused() -> None:
    entry = Entry(digest_of(1), b"\x01", 0, 0)
    later = Entry(max(digest_of(3), digest_of(1)), b"\x01", 0, 1)
    one = np.zeros(1, np.int64)

    def fold(*entries: Entry) -> kernels.Fold:
        return kernels.Fold([reference.to_matrix(entries, 1)], 1, one)

    with pytest.raises(ValueError, match="new entries, part 0, row 1: file ordinal 1 has no position, there are 1"):
        fold(entry, entry._replace(ordinal=1))
    with pytest.raises(ValueError, match="keyless"):
        fold(entry._replace(row=KEYLESS))
    with pytest.raises(ValueError, match=r"new_entries\[0\]: want .* 40"):
        kernels.Fold([np.zeros((1, 33), np.uint8)], 8, one)
    with pytest.raises(ValueError, match="tombstone_retention"):
        kernels.Fold([], 0, one, -1)
    with pytest.raises(ValueError, match="positions"):
        kernels.Fold([], 0, one.astype(np.int32))
    with pytest.raises(ValueError, match="file ordinal 0 row 0 is there twice"):
        fold(entry, entry).finish()
    for chunks in ([[later, entry]], [[entry, entry]], [[later], [entry]], [[entry], [entry]]):
        broken = fold(entry._replace(digest=b"\xff" * 20))
        with pytest.raises(ValueError, match="its digest is not above the one before it"):
            for chunk in chunks:
                broken.push(reference.to_matrix(chunk, 1))
        with pytest.raises(RuntimeError, match="has failed before"):
            broken.finish()
    first, second = sorted([entry, later])
    many = [Entry(bytes([n]) + bytes(19), b"", 0, n) for n in range(0x40, 0x80)]
    low, high = Entry(b"\x01" * 20, b"", 0, 0), Entry(b"\xff" * 20, b"", 0, 1)
    descending = kernels.Fold([reference.to_matrix(many, 0)], 0, one)
    with pytest.raises(ValueError, match="row 1 of this chunk"):  # not too little room for what lies between
        descending.push(reference.to_matrix([high, low], 0))
    assert fold(first).push(reference.to_matrix([second], 1)).shape == (2, 33)
    with pytest.raises(ValueError, match="not below 2"):
        fold(entry).push(reference.to_matrix([entry._replace(row=DELETE)], 1))
    with pytest.raises(ValueError, match="base: want"):
        fold(entry).push(np.zeros((1, 32), np.uint8))
    done = fold(entry)
    with pytest.raises(RuntimeError, match="after finish"):
        _ = done.counts
    done.finish()
    assert done.counts["live"] == 1
    for call in (done.finish, lambda: done.push(np.zeros((0, 33), np.uint8))):
        with pytest.raises(RuntimeError, match="finished"):
            call()


def test_a_fold_whose_parts_change_does_not_crash() -> None:
    part = random_entries(np.random.default_rng(0), 100, 5_000, 0)
    fold = kernels.Fold([part], 2, np.zeros(1, np.int64))
    part[:] = 255
    with pytest.raises((ValueError, RuntimeError)):
        fold.finish()


# --- ranks -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data())
def test_ranks_are_those_of_the_twin(data: st.DataObject) -> None:
    sparse = st.integers(0, 2**32 - 1) | st.integers(0, 5)
    ordinals = sorted(data.draw(st.sets(sparse, min_size=1, max_size=5)))
    file_rows = [data.draw(st.integers(0, 700) | st.sampled_from([0, 64, 512])) for _ in ordinals]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    share = data.draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    rows = dict(zip(ordinals, file_rows, strict=True))
    marked = {(ordinal, row) for ordinal in ordinals for row in range(rows[ordinal]) if rng.random() < share}
    order = list(marked)
    rng.shuffle(order)
    survivors = kernels.SurvivorRanks(np.array(ordinals, np.uint32), np.array(file_rows, np.int64))
    half = len(order) // 2
    for share_of in (order[:half], order[half:]):
        survivors.mark(*pointer_arrays(share_of))
    expected = reference.ranks(marked)
    assert survivors.ranks(*pointer_arrays(order)).tolist() == [expected[tuple(pointer)] for pointer in order]
    assert survivors.total == len(marked)
    for ordinal in ordinals:
        assert np.array_equal(survivors.mask(ordinal), reference.mask(marked, ordinal, rows[ordinal]))
        assert survivors.live(ordinal) == sum(of == ordinal for of, _ in marked)


def pointer_arrays(pointers: Any) -> tuple[Any, Any]:
    return np.array([p[0] for p in pointers], np.uint32), np.array([p[1] for p in pointers], np.uint64)


def test_ranks_follow_marks_that_come_later() -> None:
    survivors = kernels.SurvivorRanks(np.array([3], np.uint32), np.array([2_000], np.int64))
    survivors.mark(*pointer_arrays([(3, 1_999)]))
    assert survivors.ranks(*pointer_arrays([(3, 1_999)])).tolist() == [0]
    survivors.mark(*pointer_arrays([(3, 0), (3, 600)]))
    assert survivors.ranks(*pointer_arrays([(3, 1_999), (3, 600)])).tolist() == [2, 1]


def test_ranks_that_are_refused() -> None:
    def group() -> kernels.SurvivorRanks:
        return kernels.SurvivorRanks(np.array([3, 5], np.uint32), np.array([10, 64], np.int64))

    for ordinals, rows, why in (
        ([5, 3], [1, 1], "not strictly ascending: 5 before 3"),
        ([3, 3], [1, 1], "not strictly ascending"),
        ([3], [1, 1], "1 ordinals but 2 row counts"),
        ([3], [-1], "file ordinal 3 has -1 rows"),
        ([3, 4], [2**63 - 1, 2**63 - 1], "no memory"),
    ):
        with pytest.raises(ValueError, match=why):
            kernels.SurvivorRanks(np.array(ordinals, np.uint32), np.array(rows, np.int64))
    for pointers, why in (
        ([(3, 10)], "file ordinal 3 has 10 rows, no row 10"),
        ([(3, 2**64 - 1)], "no row"),
        ([(4, 0)], "file ordinal 4 is not in this group"),
        ([(5, 63), (5, 63)], "file ordinal 5 row 63 is marked twice"),
    ):
        with pytest.raises(ValueError, match=why):
            group().mark(*pointer_arrays(pointers))
    with pytest.raises(ValueError, match="file ordinal 5 row 1 is not marked"):
        group().ranks(*pointer_arrays([(5, 1)]))
    with pytest.raises(ValueError, match="2 ordinals but 1 rows"):
        group().mark(np.zeros(2, np.uint32), np.zeros(1, np.uint64))
    for call in (group().mask, group().live):
        with pytest.raises(ValueError, match="not in this group"):
            call(4)


@settings(deadline=None)
@given(st.data())
def test_files_are_filled_from_masks_and_rows_unmarked(data: st.DataObject) -> None:
    file_rows = [data.draw(st.sampled_from([0, 1, 63, 64, 65, 600])) for _ in range(3)]
    masks = [data.draw(st.none() | st.sets(st.integers(0, max(0, rows - 1)))) if rows else None for rows in file_rows]
    marked = set()
    survivors = kernels.SurvivorRanks(np.arange(3, dtype=np.uint32), np.array(file_rows, np.int64))
    for ordinal, (rows, mask) in enumerate(zip(file_rows, masks, strict=True)):
        here = {(ordinal, row) for row in (range(rows) if mask is None else mask)}
        survivors.fill(ordinal, None if mask is None else reference.mask(here, ordinal, rows))
        marked |= here
    dead = data.draw(st.lists(st.sampled_from(sorted(marked)), unique=True, max_size=9)) if marked else []
    survivors.unmark(*pointer_arrays(dead))
    marked -= set(dead)
    order = sorted(marked, reverse=True)
    expected = reference.ranks(marked)
    assert survivors.ranks(*pointer_arrays(order)).tolist() == [expected[pointer] for pointer in order]
    for ordinal, rows in enumerate(file_rows):
        assert np.array_equal(survivors.mask(ordinal), reference.mask(marked, ordinal, rows))
    for pointer in dead[:1]:
        with pytest.raises(ValueError, match="is not marked"):
            survivors.unmark(*pointer_arrays([pointer]))
    with pytest.raises(ValueError, match="its mask 1 bytes"):
        kernels.SurvivorRanks(np.zeros(1, np.uint32), np.array([9], np.int64)).fill(0, np.zeros(1, np.uint8))


# --- pointers to groups of files, and back --------------------------------------------------------------------------

KEPT, NOWHERE = 2**32 - 1, 2**32 - 2


@settings(deadline=None)
@given(st.data())
def test_pointers_find_their_groups_and_ranks_their_entries(data: st.DataObject) -> None:
    """There and back: what is published is what a dictionary of ranks says."""
    files = data.draw(st.integers(1, 6))
    ranked = data.draw(st.integers(0, 3))
    groups = ranked + data.draw(st.integers(0, 2))
    group_of = [data.draw(st.sampled_from([*range(groups), KEPT])) for _ in range(files)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = data.draw(st.integers(0, 60))
    pointers = [(int(rng.integers(files)), row) for row in range(rows)]
    special = [(reference.TOMBSTONE, int(rng.integers(9))), (KEPT - 1, 0)] * data.draw(st.integers(0, 2))
    everything = pointers + special
    rng.shuffle(everything)
    everything = [(int(ordinal), int(row)) for ordinal, row in everything]
    entries = reference.to_matrix(
        [reference.Entry(bytes([place]) * 20, b"", *pointer) for place, pointer in enumerate(everything)], 0
    )
    split = kernels.PointerSplit(np.array(group_of, np.uint32), groups)
    cut = data.draw(st.integers(0, len(entries)))
    split.push_entries(entries[:cut])
    split.push_entries(entries[cut:])
    ordinals, found, offsets = split.finish()
    by_group = [[p for p in everything if p[0] < files and group_of[p[0]] == group] for group in range(groups)]
    assert list(zip(ordinals.tolist(), found.tolist(), strict=True)) == [p for group in by_group for p in group]
    assert offsets.tolist() == np.cumsum([0, *map(len, by_group)]).tolist()

    ranks = {p: rank for group in by_group for rank, p in enumerate(sorted(group))}
    first_ranks = np.cumsum([0, *map(len, by_group)])[:groups]
    number_of = np.arange(100, 100 + files, dtype=np.uint32)
    expired = data.draw(st.none() | st.integers(0, 9))
    publisher = kernels.Publisher(
        np.array(group_of, np.uint32),
        number_of,
        first_ranks.astype(np.uint64),
        ranked,
        1_000,
        7,
        np.array([ranks[p] for group in by_group for p in group], np.uint32),
        offsets,
        expired,
    )
    published = np.concatenate([publisher.publish(entries[:cut]), publisher.publish(entries[cut:])])
    expected = []
    for place, (ordinal, row) in enumerate(everything):
        if ordinal == reference.TOMBSTONE and expired is not None and row <= expired:
            continue
        if ordinal < files and group_of[ordinal] < ranked:
            rank = int(first_ranks[group_of[ordinal]]) + ranks[ordinal, row]
            ordinal, row = 1_000 + rank // 7, rank % 7
        elif ordinal < files:
            ordinal = int(number_of[ordinal])
        expected.append(reference.Entry(bytes([place]) * 20, b"", ordinal, row))
    assert reference.to_entries(published) == expected
    assert publisher.left == 0


def test_pointers_that_are_refused() -> None:
    group_of = np.array([0, NOWHERE], np.uint32)

    def entry(ordinal: int) -> Any:
        return reference.to_matrix([reference.Entry(b"k" * 20, b"", ordinal, 0)], 0)

    split = kernels.PointerSplit(group_of, 1)
    for ordinal, why in ((1, "file ordinal 1 is in no group"), (2, "there is no file ordinal 2")):
        with pytest.raises(ValueError, match=why):
            split.push_entries(entry(ordinal))
    split.push_pointers(*pointer_arrays([(1, 5), (0, 6), (7, 7)]))  # nobody asks about files that are gone
    assert [array.tolist() for array in split.finish()] == [[0], [6], [0, 1]]
    for call in (split.finish, lambda: split.push_entries(entry(0))):
        with pytest.raises(ValueError, match="finished"):
            call()

    def publisher(ranks: int, offsets: list[int], rows_per_output: int = 1, first: int = 0) -> kernels.Publisher:
        places = np.zeros(1, np.uint64), 1, first, rows_per_output
        return kernels.Publisher(
            group_of, np.zeros(2, np.uint32), *places, np.zeros(ranks, np.uint32), np.array(offsets, np.int64)
        )

    for ranks, offsets in ((1, [0]), (1, [0, 2]), (1, [1, 1]), (0, [0, 1, 0])):
        with pytest.raises(ValueError, match="do not divide"):
            publisher(ranks, offsets)
    with pytest.raises(ValueError, match="an output of no rows"):
        publisher(1, [0, 1], rows_per_output=0)
    with pytest.raises(ValueError, match="more entries than ranks"):
        publisher(0, [0, 0]).publish(entry(0))
    with pytest.raises(ValueError, match="more outputs than file numbers"):
        publisher(1, [0, 1], first=NOWHERE).publish(entry(0))
    left = publisher(2, [0, 2])
    left.publish(entry(0))
    assert left.left == 1


# --- runs of an index ------------------------------------------------------------------------------------------------


def run_of(keys: dict[int, tuple[int, int]], sort_key_bytes: int) -> reference.Matrix:
    """Entries in digest order; the sort key follows from the pointer, so that one key has it in different forms."""
    entries = [
        Entry(digest_of(key), bytes([row % 251]) * sort_key_bytes if file != GONE else bytes(sort_key_bytes), file, row)
        for key, (file, row) in keys.items()
    ]
    return reference.to_matrix(sorted(entries), sort_key_bytes)


POINTERS = st.tuples(st.sampled_from([0, 1, 2, GONE, TOMBSTONE]), st.integers(0, 2**62 - 1)).map(
    lambda pointer: (pointer[0], 0 if pointer[0] == GONE else pointer[1])
)
RUNS = st.lists(st.dictionaries(st.integers(0, 200), POINTERS, max_size=90), min_size=1, max_size=4)


@settings(deadline=None)
@given(RUNS, st.sets(st.integers(0, 255)), st.sampled_from([0, 3]), st.integers(1, 30))
def test_the_newest_entry_of_some_keys_is_found(
    runs: list[dict[int, tuple[int, int]]], wanted: set[int], sort_key_bytes: int, chunk: int
) -> None:
    new = reference.to_matrix([Entry(digest_of(key), b"", 9, key) for key in [*wanted, *list(wanted)[:3]]], 0)
    touched = kernels.Touched([new[: len(new) // 2], new[len(new) // 2 :]], 32 + sort_key_bytes)
    newest: dict[int, tuple[int, int]] = {}
    for keys in runs:
        newest |= keys
    for keys in reversed(runs):
        entries = run_of(keys, sort_key_bytes)
        for start in range(0, len(entries), chunk):
            touched.find(entries[start : start + chunk])
    expected = {key: pointer for key, pointer in newest.items() if key in wanted and pointer[0] != GONE}
    assert touched.found().tobytes() == run_of(expected, sort_key_bytes).tobytes()


@settings(deadline=None)
@given(RUNS, st.sampled_from([0, 3]))
def test_runs_are_merged_and_what_is_gone_is_left_out(
    runs: list[dict[int, tuple[int, int]]], sort_key_bytes: int
) -> None:
    newest: dict[int, tuple[int, int]] = {}
    merged = run_of({}, sort_key_bytes)
    for keys in runs:
        newest |= keys
        merged = kernels.merge_entries(merged, run_of(keys, sort_key_bytes))
    assert merged.tobytes() == run_of(newest, sort_key_bytes).tobytes()
    present = {key: pointer for key, pointer in newest.items() if pointer[0] != GONE}
    assert kernels.present_entries(merged).tobytes() == run_of(present, sort_key_bytes).tobytes()
    for place in range(len(merged)):
        assert kernels.count_to(merged, merged[place : place + 1]) == place + 1


LIVE_OR_TOMBSTONE = st.tuples(st.sampled_from([0, 1, TOMBSTONE]), st.integers(0, 99))
INDEX = st.dictionaries(st.integers(0, 40), LIVE_OR_TOMBSTONE, max_size=30)


@settings(deadline=None)
@given(INDEX, INDEX, st.sampled_from([0, 3]))
def test_what_a_fold_has_changed(
    found: dict[int, tuple[int, int]], folded: dict[int, tuple[int, int]], sort_key_bytes: int
) -> None:
    run, ordinals, rows = kernels.changes(run_of(found, sort_key_bytes), run_of(folded, sort_key_bytes))
    expected = {key: pointer for key, pointer in folded.items() if found.get(key) != pointer}
    expected |= {key: (GONE, 0) for key in found if key not in folded}
    assert run.tobytes() == run_of(expected, sort_key_bytes).tobytes()
    died = [pointer for key, pointer in found.items() if folded.get(key) != pointer and pointer[0] != TOMBSTONE]
    assert sorted(zip(ordinals.tolist(), rows.tolist(), strict=True)) == sorted(died)


def test_runs_that_are_refused() -> None:
    narrow, wide = np.zeros((1, 32), np.uint8), np.zeros((1, 33), np.uint8)
    for call in (kernels.merge_entries, kernels.changes):
        with pytest.raises(ValueError, match="of 32 bytes"):
            call(narrow, wide)
    with pytest.raises(ValueError, match="chunk: want"):
        kernels.Touched([narrow], 33).find(narrow)
    with pytest.raises(ValueError, match="want one entry, got 0"):
        kernels.count_to(narrow, narrow[:0])


# --- small ones ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=6))
def test_is_ascending(keys: list[int]) -> None:
    digests = [digest_of(key) for key in keys]
    matrix = reference.to_matrix([Entry(digest, b"", 0, 0) for digest in digests], 0)
    assert kernels.is_ascending(matrix) == all(a < b for a, b in itertools.pairwise(digests))


@given(st.binary(max_size=3_000))
def test_crc32(data: bytes) -> None:
    assert kernels.crc32(data) == zlib.crc32(data)


def test_crc32_of_any_contiguous_buffer() -> None:
    numbers = np.arange(1_000, dtype=np.float64)
    for buffer in (numbers, numbers.reshape(10, 100), pa.py_buffer(numbers), memoryview(numbers), bytearray(b"x" * 99)):
        assert kernels.crc32(buffer) == zlib.crc32(buffer)
    assert kernels.crc32(np.zeros((0, 32), np.uint8)) == 0
    with pytest.raises(ValueError, match="C-contiguous"):
        kernels.crc32(numbers[::2])
    with pytest.raises(ValueError, match="buffer protocol"):
        kernels.crc32(17)


def test_the_backend_is_one_that_works() -> None:
    assert kernels.sha1_backend() in backends()


def test_digests_let_other_threads_run() -> None:
    """The GIL is released: a thread that only counts goes on while one key of many bytes is hashed."""
    array = pa.array([b"x" * 200_000_000])
    begun, done, counted = threading.Event(), threading.Event(), 0

    def work() -> None:
        begun.set()
        kernels.key_digests([array], [10], 1, backend="portable")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 1_000


def test_absurd_sizes_are_errors() -> None:
    with pytest.raises(MemoryError):
        kernels.key_digests([], [], 2**55)
