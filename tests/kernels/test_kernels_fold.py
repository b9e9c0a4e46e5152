"""Entries in buckets, and their fold, against plain twins: base index and new events in, survivors and counts out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_kernels as reference
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_columns import digest_of
from reference_kernels import DELETE, KEYLESS, TOMBSTONE, Entry

from deltacompact import _kernels as kernels

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


@settings(deadline=None)
@given(st.sampled_from([0, 1, 9]), st.integers(1, 40), st.lists(st.sampled_from([0, 5, 127, 900, 5000]), max_size=4))
def test_entries_for_a_fold_are_grouped_and_roughly_in_order(width: int, count: int, sizes: list[int]) -> None:
    """The same entries in the same buckets. The first bits ascend, and the entries of one digest keep their order."""
    dice = np.random.default_rng([width, count, *sizes])
    parts = [dice.integers(0, 256, (rows, 32 + width), np.uint8) for rows in sizes]
    for part in parts:
        part[len(part) // 2 :, :20] = part[: len(part) - len(part) // 2, :20]
    plain, offsets = kernels.group_entries(parts, count)
    grouped, for_fold = kernels.group_entries(parts, count, for_fold=True)
    assert for_fold.tolist() == offsets.tolist()
    for low, high in itertools.pairwise(offsets.tolist()):
        before, after = ([line.tobytes() for line in matrix[low:high]] for matrix in (plain, grouped))
        assert sorted(before, key=lambda line: line[:20]) == sorted(after, key=lambda line: line[:20])
    if count == 1 and sum(sizes) >= 5000:
        assert np.all(np.diff(grouped[:, 0].astype(int) >> 2) >= 0)


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


@settings(max_examples=examples(500), deadline=None)
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
