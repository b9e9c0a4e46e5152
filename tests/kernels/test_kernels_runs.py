"""Runs of an index against plain twins: lookup, merge, order; and the checksum of their files."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pyarrow as pa
import pytest
import reference_kernels as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_columns import digest_of
from reference_kernels import GONE, TOMBSTONE, Entry

from deltacompact import _kernels as kernels


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
