"""Files that overlap are found as comparing all pairs finds them; a run merges tiers and never chooses twice."""

from __future__ import annotations

import time

import numpy as np
import pytest
from file_boxes import NULLS, boxes_by_hand
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.data_file import LayoutAccount
from deltacompact.layout import overlap
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.overlap import RewriteAllowance, overlapping, tiers, to_lay_out
from deltacompact.planning.overlapping import LayoutBound

_RANGE = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def tables(draw):
    files = draw(st.integers(1, 40))
    ranges = st.lists(_RANGE | st.just(NULLS) | st.just((4, 4)), min_size=files, max_size=files)
    partitions = draw(st.lists(st.sampled_from("ab"), min_size=files, max_size=files))
    ages = draw(st.lists(st.integers(0, 3), min_size=files, max_size=files))
    return boxes_by_hand(draw(st.lists(ranges, min_size=1, max_size=3)), partitions), np.array(ages)


def overlap_by_hand(boxes, one, other):
    pairs = [
        (max(low[one], low[other]), min(high[one], high[other]))
        for low, high in zip(boxes.low, boxes.high, strict=True)
    ]
    return all(low <= high for low, high in pairs) and any(low < high for low, high in pairs)


def chosen_in(*others):
    return to_lay_out(*others).chosen


@given(tables(), st.booleans())
def test_all_pairs_give_the_same(table, by_age):
    boxes, ages = table
    files = range(boxes.files)
    by_hand = [
        any(
            overlap_by_hand(boxes, file, other)
            for other in files
            if other != file and (not by_age or ages[file] == ages[other])
        )
        for file in files
    ]
    assert overlapping(boxes, ages if by_age else None).tolist() == by_hand


@pytest.mark.parametrize(
    ("columns", "overlap"),
    [
        ([[(1, 3), (3, 5)]], False),  # one value in common: a cut by value cannot part them better
        ([[(1, 3), (2, 5)]], True),
        ([[(4, 4), (4, 4)]], False),  # a value larger than a file
        ([[(4, 4), (4, 4)], [(1, 5), (2, 9)]], True),  # which another column can cut
        ([[(4, 4), (4, 4)], [(1, 5), (6, 9)]], False),
        ([[NULLS, NULLS]], False),
        ([[NULLS, (1, 5)]], False),
        ([[(None, None), (1, 5)]], True),  # it may hold anything
    ],
)
def test_what_overlaps(columns, overlap):
    assert overlapping(boxes_by_hand(columns)).tolist() == [overlap, overlap]


def test_the_newest_runs_are_merged_while_the_older_is_not_larger():
    def merged(*sizes):
        files = len(sizes)
        return int((tiers(np.zeros(files, np.int64), np.arange(files), np.array(sizes)) >= 0).sum())

    assert merged(100, 2, 1, 1) == 3
    assert merged(100, 2, 1) == 0
    assert merged(100, 11, 10, 9) == 3
    assert merged(1, 1, 1, 1) == 4
    assert merged(5) == 0


def test_healthy_files_that_lie_over_each_other_are_all_chosen():
    boxes = boxes_by_hand([[(0, 80 + place) for place in range(8)]])
    assert chosen_in(boxes, np.full(8, 500), np.arange(8)).all()
    assert chosen_in(boxes, np.full(8, 500), np.zeros(8, int)).all()  # one unsorted insert


def test_data_that_arrive_in_time_order_never_touch_the_base():
    days = [(day, day + 1) for day in range(50)] + [(50, 60), (51, 61)]
    sizes, ages = np.full(52, 100), np.array([0] * 50 + [1, 2])
    assert chosen_in(boxes_by_hand([days]), sizes, ages).tolist() == [False] * 50 + [True, True]


def test_drift_of_time_divides_the_last_leaf_and_keeps_the_others():
    base = [(0, 9), (10, 19), (20, 29), (30, 39)]
    boxes, sizes = boxes_by_hand([[*base, (35, 50), (36, 52)]]), np.array([100] * 4 + [150] * 2)
    laid_out, ages = np.array([True] * 4 + [False] * 2), np.array([0] * 4 + [1, 2])
    assert chosen_in(boxes, sizes, ages, laid_out).tolist() == [False, False, False, True, True, True]


def test_a_base_that_is_larger_waits_until_as_much_has_come():
    base = [(0, 49), (50, 99)]
    sizes = np.array([100, 100, 10, 10])
    assert chosen_in(boxes_by_hand([[*base, (0, 99), (0, 99)]]), sizes, np.array([0, 0, 1, 2])).tolist() == [
        False,
        False,
        True,
        True,
    ]
    sizes[2:] = 100
    assert chosen_in(boxes_by_hand([[*base, (0, 99), (0, 99)]]), sizes, np.array([0, 0, 1, 2])).all()


def test_many_runs_of_other_days_and_the_same_customers_are_parted_together():
    days = [(day, day + 1) for day in range(0, 40, 2)]
    boxes = boxes_by_hand([[(0, 39), *days], [(0, 9)] * 21])
    sizes, ages = np.array([1000] + [10] * 20), np.arange(21)
    laid_out = ages == 0
    assert chosen_in(boxes, sizes, ages, laid_out).tolist() == [False] + [True] * 20
    few = boxes.take(np.arange(3))
    assert not chosen_in(few, sizes[:3], ages[:3], laid_out[:3]).any()


def test_runs_that_make_a_grid_lie_well():
    cells = np.array(np.unravel_index(np.arange(64), (8, 8))) * 10
    columns = [[(low, low + 9) for low in of_column.tolist()] for of_column in cells]
    assert not chosen_in(boxes_by_hand(columns), np.ones(64), np.arange(64) % 4).any()


def bounded(boxes, sizes, ages, laid_out, times, carried=0.0, **others):
    """The choice where each new file earns so many times its bytes."""
    return to_lay_out(boxes, sizes, ages, laid_out, RewriteAllowance(times * sizes * ~laid_out, carried), **others)


def test_a_bound_leaves_the_oldest_runs():
    boxes = boxes_by_hand([[(0, 9)] * 3])
    laid_out = np.array([True, True, False])
    sizes, ages = np.array([20, 10, 10]), np.arange(3)
    assert chosen_in(boxes, sizes, ages, laid_out).all()
    choice = bounded(boxes, sizes, ages, laid_out, 2)
    assert choice.chosen.tolist() == [False, True, True] and choice.waits.tolist() == [True, False, False]
    assert not bounded(boxes, sizes, ages, laid_out, 1).chosen.any()
    assert bounded(boxes, sizes, ages, laid_out, 2, carried=20).chosen.all()


def test_what_came_since_the_version_earns_and_before_the_first_all_that_is_there():
    runs, sizes = np.array([4, 5, 6]), np.array([10, 20, 30])
    known = LayoutBound(2.0, LayoutAccount(came=100, rewritten=150), since=5).allowance(runs, sizes)
    assert (known.earned.tolist(), known.carried) == ([0.0, 40.0, 60.0], 50.0)
    first = LayoutBound(2.0, None, since=5).allowance(runs, sizes)
    assert (first.earned.tolist(), first.carried) == ([20.0, 40.0, 60.0], 0.0)


def test_a_session_chooses_no_more_rows_than_it_can_lay_out():
    boxes, sizes, ages = boxes_by_hand([[(0, 9)] * 6]), np.full(6, 10), np.zeros(6)
    bound = LayoutBound(4.0)
    for most, chosen in ((60, 6), (35, 3), (9, 0), (-10, 0)):
        found = to_lay_out(boxes, sizes, ages, ages > 0, bound.allowance(ages, sizes, most))
        assert (found.chosen.sum(), found.waits.sum()) == (chosen, 6 - chosen)


def test_what_partitions_leave_goes_to_the_first_that_need_more():
    """In each of two partitions lies a run that was laid out, and over it one that is new, a bit smaller."""
    boxes = boxes_by_hand([[(0, 9)] * 4], [0, 0, 1, 1])
    laid_out, sizes, ages = np.array([True, False] * 2), np.array([10, 8] * 2), np.array([0, 1] * 2)
    assert not bounded(boxes, sizes, ages, laid_out, 2, ranked=[]).chosen.any()
    first, last = [True, True, False, False], [False, False, True, True]
    assert bounded(boxes, sizes, ages, laid_out, 2, ranked=[1, 0]).chosen.tolist() == last
    assert bounded(boxes, sizes, ages, laid_out, 2, ranked=[0, 1]).chosen.tolist() == first
    assert bounded(boxes, sizes, ages, laid_out, 3, ranked=[0, 1]).chosen.all()


def test_without_ranks_what_partitions_leave_goes_to_those_that_overlap_most():
    """Each partition's share is less than its files, so that together they had chosen nothing, in this and all runs."""
    partitions = np.repeat(np.arange(200), 4)
    boxes = boxes_by_hand([[(0, 9)] * 800], partitions.tolist())
    sizes, ages = 100 + partitions, np.zeros(800, np.int64)
    laid_out, allowance = ages > 0, RewriteAllowance(np.zeros(800), 0.1 * float(sizes.sum()))
    chosen = to_lay_out(boxes, sizes, ages, laid_out, allowance).chosen
    assert 0.09 * sizes.sum() < sizes[chosen].sum() <= allowance.carried
    assert set(partitions[chosen]) == set(range(int(partitions[chosen].min()), 200))


def test_a_partition_that_is_offered_more_gives_up_nothing():
    """Its new files lie well together, some of them not: with more bytes it had chosen fewer, and others took them."""
    boxes = boxes_by_hand([[(1, 2), (0, 2), (0, 2), (0, 2), (0, 1), (1, 3)]], [0, 1, 0, 1, 0, 0])
    own, sizes, ages = boxes.partitions == 0, np.array([1, 2, 3, 4, 5, 1]), np.array([1, 0, 0, 1, 2, 1])
    earned, first = (bounded(boxes, sizes, ages, ages == 0, 1, ranked=ranked).chosen for ranked in ([], [1, 0]))
    assert 0 < sizes[own & earned].sum() <= sizes[own & first].sum()


@given(tables(), st.floats(0, 3), st.floats(-10, 30), st.booleans())
def test_a_run_never_rewrites_more_than_it_may_and_each_partition_gets_what_it_earned(table, times, carried, by_heat):
    boxes, ages = table
    sizes, laid_out = 1 + np.arange(boxes.files) % 5, ages == 0
    allowance = RewriteAllowance(times * sizes * ~laid_out, carried)
    numbers = np.unique(boxes.partitions).tolist()
    found = to_lay_out(boxes, sizes, ages, laid_out, allowance, numbers[::-1] if by_heat else None)
    own = [boxes.partitions == number for number in numbers]
    each = allowance.of(boxes.partitions, sizes)
    spent = [sizes[mask & found.chosen].sum() for mask in own]
    assert sum(spent) <= sum(each) + 1e-6 and sum(each) <= max(0, times * sizes[~laid_out].sum() + carried) + 1e-6
    alone = to_lay_out(boxes, sizes, ages, laid_out, allowance, ranked=[])
    earned = [sizes[mask & alone.chosen].sum() for mask in own]
    assert all(bytes_ <= most + 1e-6 for bytes_, most in zip(earned, each, strict=True))
    assert all(had <= sizes[mask & found.chosen].sum() for mask, had in zip(own, earned, strict=True))
    assert not (found.chosen & found.waits).any()


@given(tables(), st.floats(0, 3), st.booleans())
def test_each_partition_is_answered_as_if_it_were_alone(table, times, is_bounded):
    boxes, ages = table
    sizes, laid_out = 1 + np.arange(boxes.files) % 5, ages == 0
    earned = times * sizes if is_bounded else np.full(boxes.files, np.inf)
    together = to_lay_out(boxes, sizes, ages, laid_out, RewriteAllowance(earned), ranked=[])
    for number in np.unique(boxes.partitions).tolist():
        own = np.flatnonzero(boxes.partitions == number)
        alone = to_lay_out(boxes.take(own), sizes[own], ages[own], laid_out[own], RewriteAllowance(earned[own]))
        assert (together.chosen[own] == alone.chosen).all() and (together.waits[own] == alone.waits).all()


@pytest.mark.parametrize("allowance", [None, RewriteAllowance(np.zeros(800), 480.0)])
def test_many_partitions_are_compared_at_once(monkeypatch, allowance):
    """Each of 25,000 partitions was compared by itself: 20 s."""
    compared = []

    def counted(*boxes, **others):
        compared.append(boxes)
        return overlapping(*boxes, **others)

    monkeypatch.setattr(overlap, "overlapping", counted)
    boxes = boxes_by_hand([[(0, 9)] * 800] * 2, np.repeat(np.arange(200), 4).tolist())
    found = to_lay_out(boxes, np.ones(800, np.int64), np.arange(800) % 4, allowance=allowance, ranked=[])
    assert found.chosen.sum() == (400 if allowance else 800) and len(compared) < 20


def test_a_changed_layout_converges_file_by_file():
    """20 files lie by another column; each run may rewrite 5, and begins with the least values of the heaviest one."""
    boxes = boxes_by_hand([[(0, 99)] * 20, [(place, place + 9) for place in range(20)]])
    sizes, ages, laid_out = np.full(20, 10), np.zeros(20, np.int64), np.zeros(20, bool)
    for run in range(1, 5):
        found = to_lay_out(boxes, sizes, ages, laid_out, RewriteAllowance(np.zeros(20), 50), heaviest=1)
        assert np.flatnonzero(found.chosen).tolist() == list(range(5 * run - 5, 5 * run))
        assert found.waits.sum() >= 20 - 5 * run
        ages[found.chosen], laid_out[found.chosen] = run, True
    assert not to_lay_out(boxes, sizes, ages, laid_out, RewriteAllowance(np.zeros(20), 50)).chosen.any()


def test_what_was_laid_out_together_is_not_chosen_again():
    boxes = boxes_by_hand([[(0, 9), (1, 8)]])
    assert not chosen_in(boxes, np.array([1, 1]), np.array([4, 4]), np.array([True, True])).any()


@given(tables())
def test_a_second_run_finds_nothing(table):
    """The first makes of what it chose files side by side, written together and later."""
    boxes, ages = table
    sizes = np.ones(boxes.files, np.int64)
    chosen = chosen_in(boxes, sizes, ages)
    ages = np.where(chosen, 9, ages)
    assert not chosen_in(
        boxes.take(np.flatnonzero(chosen)), sizes[chosen], ages[chosen], np.ones(chosen.sum(), bool)
    ).any()


@pytest.mark.parametrize("kind", ["clustered", "random", "partitions", "one value"])
@pytest.mark.slow
def test_ten_thousand_files_take_no_time(kind):
    side = 24
    count = side**3
    rng = np.random.default_rng(7)
    if kind == "random":
        low = rng.integers(0, 1 << 20, (3, count))
        high = low + rng.integers(0, 1 << 20, (3, count))
    elif kind == "one value":
        low = high = np.zeros((3, count), np.int64)
    else:
        low = 10 * np.array(np.unravel_index(rng.permutation(count), (side,) * 3))
        high = low + 9
    partitions = np.arange(count) // 4 if kind == "partitions" else np.zeros(count, np.int64)
    low, high = low + partitions * 10 * side, high + partitions * 10 * side
    boxes = Boxes(("a", "b", "c"), low, high, partitions, np.ones(count, np.int64))
    began = time.process_time()
    chosen = chosen_in(boxes, np.ones(count), np.arange(count) % 3)
    assert time.process_time() - began < 5
    assert chosen.any() == (kind == "random")
