"""How far rows that are written together reach among all of their partition: against counting file by file."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from file_boxes import NANS, NULLS, boxes_by_hand
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.extents import STAYS, extents_of, weighed

_SIDE = st.none() | st.integers(0, 9).map(float) | st.sampled_from([-math.inf, math.inf, math.nan])
_RANGE = st.tuples(_SIDE, _SIDE) | st.sampled_from([NULLS, NANS])


@st.composite
def tables(draw):
    """Ranges by column, and of each file its partition, its rows, and the group with which it is written."""
    files = draw(st.integers(1, 12))
    columns = draw(st.lists(st.lists(_RANGE, min_size=files, max_size=files), min_size=1, max_size=3))
    groups = draw(st.lists(st.integers(STAYS, 3), min_size=files, max_size=files))
    rows = draw(st.lists(st.integers(0, 5), min_size=files, max_size=files))
    of_those_that_stay = draw(st.lists(st.sampled_from("ab"), min_size=files, max_size=files))
    partitions = [
        stays if group == STAYS else "ab"[group % 2] for group, stays in zip(groups, of_those_that_stay, strict=True)
    ]
    return columns, partitions, rows, groups


def by_hand(range_):
    """A range on the line from nulls (0) by values to NaN (2). Sides that are unknown, or contradict: anything."""
    if range_ in (NULLS, NANS):
        return ((0, 0), (0, 0)) if range_ == NULLS else ((2, 0), (2, 0))
    low, high = ((1, side) if side is not None and side == side else None for side in range_)
    if low and high and low > high:
        low = high = None
    return low or (0, 0), high or (2, 0)


@given(tables())
def test_counting_the_files_that_meet_gives_the_same(table):
    columns, partitions, rows, groups = table
    boxes = boxes_by_hand(columns, partitions, rows, [pa.float64()] * len(columns))
    found = extents_of(boxes, np.array(groups), 4)
    for group in range(4):
        own = [file for file, of in enumerate(groups) if of == group]
        there = [file for file, of in enumerate(partitions) if own and of == partitions[own[0]]]
        total = sum(rows[file] for file in there)
        for name, ranges in zip(boxes.columns, columns, strict=True):
            known = [by_hand(range_) for range_ in ranges]
            least, most = (end((known[file][side] for file in own), default=None) for side, end in ((0, min), (1, max)))
            met = sum(rows[file] for file in there if known[file][0] <= most and least <= known[file][1])
            assert found[group].get(name, 1.0) == (met / total if total else 1.0)


def test_the_rows_that_come_last_reach_over_few_others_by_day_and_over_all_by_customer():
    days, customers = [(1, 30), (31, 31), (31, 31), (31, 32)], [(1, 26), (1, 11), (1, 5), (2, 26)]
    boxes = boxes_by_hand([days, customers], rows=[900, 60, 20, 20])
    assert extents_of(boxes, np.array([STAYS, STAYS, 0, 0]), 1) == [{"c0": 0.1, "c1": 1.0}]
    assert extents_of(boxes, np.array([0, 0, 0, 0]), 1) == [{"c0": 1.0, "c1": 1.0}]  # all are written: as ever
    assert extents_of(boxes, np.array([0, 0, 1, 1]), 2)[0] == {"c0": 1.0, "c1": 1.0}
    unknown = boxes_by_hand([[(1, 30), (None, None), (32, 32)]], rows=[900, 60, 40])
    assert extents_of(unknown, np.array([STAYS, STAYS, 0]), 1) == [{"c0": 0.1}]  # it may hold any day
    assert extents_of(unknown, np.array([STAYS, 0, STAYS]), 1) == [{"c0": 1.0}]


def test_partitions_are_told_apart_and_thousands_of_files_take_no_time():
    days = [(number, number + 1) for number in range(20_000)]
    boxes = boxes_by_hand([days, days[::-1]], [number % 500 for number in range(20_000)], [10] * 20_000)
    written = np.array([number % 500 if number >= 19_000 else STAYS for number in range(20_000)])
    assert extents_of(boxes, written, 500) == [{"c0": 2 / 40, "c1": 2 / 40}] * 500


@pytest.mark.parametrize(
    ("weight", "extent", "becomes"), [(3.0, 0.5, 1.5), (2.0, 1.0, 2.0), (5e-324, 0.1, 5e-324), (0.0, 0.5, 0.0)]
)
def test_weights_times_extents(weight, extent, becomes):
    (column,) = weighed([ClusterColumn("a", weight)], {"a": extent, "b": 0.1})
    assert (column.name, column.weight) == ("a", becomes)
    assert weighed([ClusterColumn("a", weight)], {}) == (ClusterColumn("a", weight),)
