"""Ranks of live rows, and pointers on their way to groups of files and back, against plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference_kernels as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact import _kernels as kernels
from deltacompact.index.entries import GONE, TOMBSTONE, fields


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


@settings(deadline=None)
@given(st.data())
def test_pointers_are_relocated_like_those_of_the_twin(data: st.DataObject) -> None:
    rewritten = sorted(data.draw(st.sets(st.integers(0, 9) | st.just(2**31), min_size=1, max_size=4)))
    rows = {number: data.draw(st.integers(1, 700)) for number in rewritten}
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    marked = {(number, row) for number in rewritten for row in range(rows[number]) if rng.random() < 0.7}
    survivors = kernels.SurvivorRanks(np.array(rewritten, np.uint32), np.array([*rows.values()], np.int64))
    survivors.mark(*pointer_arrays(sorted(marked)))
    first, per_output = data.draw(st.integers(0, 2**32 - 1_000_000)), data.draw(st.integers(1, 1_000))
    others = [(10, 0), (11, 2**40), (TOMBSTONE, 5), (GONE, 0)]
    pointers = data.draw(st.permutations(sorted(marked)[:50] + others))
    width = data.draw(st.sampled_from([32, 41]))
    entries = rng.integers(0, 256, (len(pointers), width), np.uint8)
    view = fields(entries)
    view["file"], view["row"] = pointer_arrays(pointers)
    before, expected = entries.copy(), reference.ranks(marked)
    assert kernels.points_into(entries, np.array(rewritten, np.uint32)) == bool(len(pointers) > len(others))
    survivors.relocate(entries, first, per_output)
    for (number, row), found in zip(
        pointers, zip(view["file"].tolist(), view["row"].tolist(), strict=True), strict=True
    ):
        output, new_row = divmod(expected.get((number, row), 0), per_output)
        assert found == ((first + output, new_row) if (number, row) in marked else (number, row))
    assert np.array_equal(entries[:, :-12], before[:, :-12])


def test_relocations_that_are_refused() -> None:
    survivors = kernels.SurvivorRanks(np.array([3], np.uint32), np.array([10], np.int64))
    survivors.mark(*pointer_arrays([(3, 4), (3, 5)]))
    entries = np.zeros((1, 32), np.uint8)
    fields(entries)["file"], fields(entries)["row"] = 3, 9
    with pytest.raises(ValueError, match="file ordinal 3 row 9 is not marked"):
        survivors.relocate(entries, 7, 100)
    fields(entries)["row"] = 5
    with pytest.raises(ValueError, match="output 4294967294 is not a file number"):
        survivors.relocate(entries, GONE - 1, 1)
    with pytest.raises(ValueError, match="rows_per_output"):
        survivors.relocate(entries, 7, 0)
    entries.flags.writeable = False
    with pytest.raises(ValueError, match="may be written"):
        survivors.relocate(entries, 7, 100)


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
