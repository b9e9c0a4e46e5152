"""Key bytes and digests against their plain twins: every type, slices, nulls, every length, every SHA-1 backend.

golden/key_vectors.txt has bytes that must never change.
`UPDATE_GOLDEN=1 pytest tests/kernels/test_kernels_keys.py` rewrites them.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_kernels as reference
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_columns import KINDS, UNITS, Kind, binary_view, drawn_column, int_array, key_columns

from deltacompact import _kernels as kernels

GOLDEN = Path(__file__).parents[1] / "golden" / "key_vectors.txt"


def backends() -> list[str]:
    names = []
    for name in ("avx512", "sha-ni", "avx2", "portable"):
        try:
            kernels.key_digests([], [], 0, backend=name)
        except ValueError:
            continue
        names.append(name)
    return names


@settings(max_examples=examples(300), deadline=None)
@given(key_columns())
def test_key_bytes_and_digests_are_those_of_the_twin(drawn: tuple[list[pa.Array], list[int], int]) -> None:
    columns, tags, rows = drawn
    assert kernels.key_bytes(columns, tags, rows) == reference.key_bytes(columns, tags, rows)
    expected = reference.key_digests(columns, tags, rows)
    for backend in backends():
        assert np.array_equal(kernels.key_digests(columns, tags, rows, backend=backend), expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind[0]))
@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_every_type_has_its_key_bytes(kind: Kind, data: st.DataObject) -> None:
    array, tag = data.draw(drawn_column([kind], 5))
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


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("rows", [255, 256, 257, 512, 1000])
def test_batches_of_keys_of_one_length(backend: str, rows: int) -> None:
    """Later batches reuse the padding of the first one; a null, a longer key or a shorter batch ends that."""
    dice = np.random.default_rng(rows)
    numbers, days = dice.integers(-(2**63), 2**63 - 1, rows), dice.integers(0, 20_000, rows).astype(np.int32)
    alike = [pa.array(numbers), pa.array(days, pa.date32()), pa.nulls(rows), pa.array(days % 2 == 0)]
    some = [pa.array(numbers, mask=dice.random(rows) < 0.01), *alike[1:]]
    for columns in (alike[:1], alike, some):
        tags = [1, 6, 9, 11][: len(columns)]
        expected = reference.key_digests(columns, tags, rows)
        assert np.array_equal(kernels.key_digests(columns, tags, rows, backend=backend), expected)


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
    known = {str(type_).replace(", ", ","): make for type_, _, _, make in KINDS}
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


def test_the_backend_is_one_that_works() -> None:
    assert kernels.sha1_backend() in backends()


@pytest.mark.slow
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
