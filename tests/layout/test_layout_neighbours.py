"""Small files that lie side by side become one file, never across others, and runs come to an end."""

from __future__ import annotations

import numpy as np
from file_boxes import boxes_by_hand
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.neighbours import MergeSizes, _Box, neighbours

SIZES = MergeSizes(small=40, most=100, files_min=3)


def found(ranges, sizes, mergeable=None, merging=SIZES):
    boxes = boxes_by_hand([ranges])
    mask = np.array([True] * len(ranges) if mergeable is None else mergeable)
    return [sorted(own.tolist()) for own in neighbours(boxes, np.array(sizes), mask, merging)]


def test_a_large_file_parts_the_small_ones():
    assert found([(1, 2), (3, 4), (5, 6), (7, 8), (9, 9)], [20, 20, 90, 20, 30]) == [[0, 1], [3, 4]]
    assert found([(1, 2), (5, 6), (7, 8)], [30, 90, 30]) == []


def test_a_merged_file_lies_across_none_that_stays():
    assert found([(1, 2), (3, 4), (5, 6)], [30, 10, 30], [True, False, True]) == []
    assert found([(1, 2), (0, 9), (5, 6)], [30, 10, 30], [True, False, True]) == [[0, 2]]  # it lies below both


def test_a_file_that_only_touches_two_others_is_no_bridge():
    assert found([(1, 5), (5, 9), (9, 12)], [30, 90, 30]) == []
    assert found([(1, 5), (5, 5), (5, 9)], [30, 30, 90]) == [[0, 1]]


def test_enough_small_files_are_merged_unless_one_has_most_of_the_bytes():
    assert found([(1, 1), (2, 2)], [5, 5]) == []
    assert found([(1, 1), (2, 2), (3, 3)], [5, 5, 5]) == [[0, 1, 2]]
    assert found([(1, 1), (2, 2), (3, 3), (4, 4)], [20, 2, 2, 2]) == [[1, 2, 3]]


def test_leaves_of_a_tree_join_together_where_two_alone_would_lie_across_a_third():
    days, customers = [(0, 24), (0, 25), (25, 50), (26, 50)], [(0, 9), (10, 19), (0, 9), (10, 19)]
    (own,) = neighbours(boxes_by_hand([days, customers]), np.full(4, 15), np.ones(4, bool), SIZES)
    assert sorted(own.tolist()) == [0, 1, 2, 3]


def test_a_step_looks_at_few_of_many_files(monkeypatch):
    """It looked at all files of the partition: eight thousand small ones took a quarter of a minute."""
    looked, within = [], _Box.within

    def counted(self, others):
        looked.append(others.low.shape[1])
        return within(self, others)

    monkeypatch.setattr(_Box, "within", counted)
    days = [(10 * day, 10 * day + 8) for day in range(1_000)]
    for sizes in ([1] * len(days), [30] * len(days)):
        assert len([*neighbours(boxes_by_hand([days, days]), np.array(sizes), np.ones(len(days), bool), SIZES)]) > 1
    assert sum(looked) < 20 * len(days)


def merged_until_nothing_is_found(columns, sizes, mergeable, merging):
    """Runs until one finds nothing. Gives the boxes, the sizes, and how often the rows of each file were moved."""
    moved, rounds = [0] * len(sizes), 0
    while True:
        sets = list(neighbours(boxes_by_hand(columns), np.array(sizes), np.array(mergeable), merging))
        if not sets:
            return columns, sizes, moved
        rounds += 1
        assert rounds <= 20
        files = [[file] for file in range(len(sizes)) if not any(file in own for own in sets)]
        files += [own.tolist() for own in sets]
        for own in files[len(files) - len(sets) :]:
            for other in set(range(len(sizes))) - {*own}:
                assert no_new_meeting(columns, own, other)
            assert len(own) > 1 and sum(sizes[file] for file in own) <= merging.most
        columns = [
            [(min(of[file][0] for file in own), max(of[file][1] for file in own)) for own in files] for of in columns
        ]
        moved = [max(moved[file] for file in own) + (len(own) > 1) for own in files]
        mergeable = [all(mergeable[file] for file in own) for own in files]
        sizes = [sum(sizes[file] for file in own) for own in files]


def no_new_meeting(columns, own, other):
    """A file that met none of a set does not meet the merged one, unless that lies inside of it."""
    joint = [(min(of[file][0] for file in own), max(of[file][1] for file in own)) for of in columns]
    there = [of[other] for of in columns]
    is_inside = all(low <= least and most <= high for (low, high), (least, most) in zip(there, joint, strict=True))
    met = any(meets([of[file] for of in columns], there) for file in own)
    return met or is_inside or not meets(joint, there)


def meets(one, other):
    return all(low <= high_of and low_of <= high for (low, high), (low_of, high_of) in zip(one, other, strict=True))


RANGES = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))
FILES = st.lists(st.tuples(RANGES, RANGES, st.integers(1, 120), st.booleans()), min_size=1, max_size=25)


@given(FILES, st.integers(1, 2), st.integers(1, 5))
def test_runs_come_to_an_end_and_no_row_is_moved_often(files, dimensions, files_min):
    columns = [[file[place] for file in files] for place in range(dimensions)]
    merging = MergeSizes(40, 100, files_min)
    sizes, mergeable = [file[2] for file in files], [file[3] for file in files]
    _, left, moved = merged_until_nothing_is_found(columns, sizes, mergeable, merging)
    assert sum(left) == sum(sizes)
    assert max(moved) <= 7  # 1 byte doubles 6 times to be large


@given(st.lists(st.integers(1, 10), min_size=60, max_size=150))
def test_of_many_tiny_files_side_by_side_few_are_left(sizes):
    days = [(day, day) for day in range(len(sizes))]
    _, left, _ = merged_until_nothing_is_found([days], sizes, [True] * len(sizes), SIZES)
    assert sum(size < SIZES.small for size in left) <= 2 * (1 + sum(size >= SIZES.small for size in left))
