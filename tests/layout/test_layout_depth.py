"""Depth by ranks is what counting files one by one gives, whatever their bounds are."""

from __future__ import annotations

import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from file_boxes import NANS, NULLS, boxes_by_hand
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.boxes import ColumnBounds, boxes_of
from deltacompact.layout.depth import RANGE_SHARE, depth_of, depths_of, drawn, held_by, predicates_of

_VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4),
    pa.float64(): st.floats(allow_nan=False) | st.sampled_from([-0.0, 0.0, 1.0]),
    pa.binary(): st.binary(max_size=3) | st.sampled_from([b"", b"\0", b"\0\0", b"\xff"]),
    pa.decimal128(38): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal) | st.integers(0, 3).map(Decimal),
}


@st.composite
def columns(draw, files):
    """The Arrow type, and of each file (low, high) with None for unknown, or NULLS, or NANS."""
    type_ = draw(st.sampled_from(sorted(_VALUES, key=str)))
    values = _VALUES[type_]
    pairs = st.tuples(values, values).map(lambda pair: (min(pair), max(pair)))
    halves = st.tuples(st.none() | values, st.none()) | st.tuples(st.none(), values)
    return type_, draw(st.lists(pairs | halves | st.sampled_from([NULLS, NANS]), min_size=files, max_size=files))


@st.composite
def tables(draw):
    files = draw(st.integers(1, 12))
    numbers = draw(st.lists(st.sampled_from("abc"), min_size=files, max_size=files))
    rows = draw(st.lists(st.integers(0, 5), min_size=files, max_size=files))
    return numbers, rows, [draw(columns(files)) for _ in range(draw(st.integers(1, 3)))]


def boxes(numbers, rows, of_columns):
    return boxes_by_hand([ranges for _, ranges in of_columns], numbers, rows, [type_ for type_, _ in of_columns])


def meet(one, other):
    """Whether the ranges of two files have a place in common: nulls come first, NaN last."""

    def ends(of):
        if isinstance(of, str):
            return [(-1,) if of == NULLS else (1,)] * 2
        low, high = ((side,) if value is None else (0, value) for side, value in zip((-1, 1), of, strict=True))
        return [low, high]

    (low, high), (other_low, other_high) = ends(one), ends(other)
    return low <= other_high and other_low <= high


@given(tables())
def test_files_meet_as_their_bounds_do(table):
    """Of each file's whole box, as many files hold a part as counting them one by one says."""
    numbers, _, of_columns = table
    found = boxes(*table)
    for file, number in enumerate(numbers):
        for other, other_number in enumerate(numbers):
            by_hand = number == other_number and all(meet(ranges[file], ranges[other]) for _, ranges in of_columns)
            low, high = (
                np.maximum(found.low[:, file], found.low[:, other]),
                np.minimum(found.high[:, file], found.high[:, other]),
            )
            assert (low <= high).all() == by_hand


@given(tables())
def test_depth_counts_the_files_that_hold_what_is_drawn(table):
    found = boxes(*table)
    for share in (0.0, RANGE_SHARE, 1.0):
        asked = drawn(found, share, 20)
        naive = [
            sum(
                bool(
                    (found.low[:, file] <= asked.high[:, place]).all()
                    and (found.high[:, file] >= asked.low[:, place]).all()
                )
                for file in range(found.files)
            )
            for place in range(20)
        ]
        assert held_by(found, asked).tolist() == naive
        assert min(naive) >= 1  # the file that it was drawn from
        assert (asked.low <= asked.high).all()
    for column in range(len(found.columns)):
        one = found.of(column)
        places = range(int(one.high.max()) + 1)
        by_hand = max(
            sum(low <= place <= high for low, high in zip(one.low[0], one.high[0], strict=True)) for place in places
        )
        assert int(depths_of(one).max()) == by_hand == depth_of(one).most


def test_files_side_by_side_have_depth_one_and_readers_open_one():
    day = [(start * 10, start * 10 + 9) for start in range(100)]
    found = depth_of(boxes(["a"] * 100, [5] * 100, [(pa.int64(), day)]))
    assert (found.mean, found.most, found.value_share) == (1.0, 1, 0.01)
    assert 0.05 < found.range_share < 0.07  # a twentieth of all values, and the file in which it begins


def test_files_over_each_other_are_all_opened():
    """Their bounds differ a little, as those of files that came in no order do."""
    of_numbers = [(place, 10**6 - place) for place in range(8)]
    of_texts = [(b"https://%02d" % place, b"https://%02d" % (99 - place)) for place in range(8)]
    for type_, ranges in ((pa.int64(), of_numbers), (pa.binary(), of_texts)):
        found = depth_of(boxes(["a"] * 8, [5] * 8, [(type_, ranges)]))
        assert found.most == 8
        assert found.value_share > 0.9


def test_between_whole_numbers_lies_nothing():
    found = boxes(["a"] * 3, [1] * 3, [(pa.int64(), [(0, 0), (1, 1), (0, 1)])])
    assert set((drawn(found).low[0] % 2).tolist()) == {0}
    found = boxes(["a"] * 3, [1] * 3, [(pa.float64(), [(0, 0), (1, 1), (0, 1)])])
    assert set((drawn(found).low[0] % 2).tolist()) == {0, 1}


def test_readers_ask_for_the_values_of_known_rows():
    files = boxes_by_hand([[(0, 9), (10, 99), (10, 99)] + [(9, 9)] * 19 + [(50, 50)]])
    rows = files.take(np.arange(3, 23))
    found = depth_of(files.take(np.arange(3)), rows=rows)
    assert found.mean == pytest.approx((19 * 1 + 2) / 20)
    ranges = predicates_of(rows, 0.05)
    assert (ranges.low[0] < ranges.high[0]).sum() == 0  # a twentieth from 9 on is 9 again
    assert depth_of(files.take(np.arange(3)), rows=rows).range_mean == found.mean


def test_partitions_do_not_meet_and_shares_are_of_the_partition():
    found = depth_of(boxes(["a", "b"], [5, 5], [(pa.int64(), [(0, 9), (0, 9)])]))
    assert (found.mean, found.most, found.value_share) == (1.0, 1, 1.0)


def test_two_columns_have_less_depth_together_than_each():
    cells = [(day, id_) for day in range(10) for id_ in range(10)]
    of_columns = [(pa.int64(), [(10 * cell[side], 10 * cell[side] + 9) for cell in cells]) for side in (0, 1)]
    found = boxes(["a"] * 100, [1] * 100, of_columns)
    assert depth_of(found.of(0)).value_share == pytest.approx(0.1)
    assert depth_of(found).mean == 1.0


def test_a_hundred_thousand_files_take_seconds():
    rng = np.random.default_rng(7)
    starts = rng.integers(0, 1 << 40, (3, 100_000))
    widths = rng.integers(0, 1 << 35, (3, 100_000))
    none = np.zeros(100_000, bool)
    began = time.process_time()
    bounds = [
        ColumnBounds(pa.array(low), pa.array(low + wide), none, none) for low, wide in zip(starts, widths, strict=True)
    ]
    found = boxes_of("abc", bounds, np.zeros(100_000, np.int64), np.ones(100_000, np.int64))
    depth = depth_of(found)
    assert time.process_time() - began < 10
    assert 0 < depth.value_share < depth_of(found.of(0)).value_share
