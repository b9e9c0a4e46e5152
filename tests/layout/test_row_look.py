"""Which rows of a file are looked at."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.row_look import RowLook
from deltacompact.layout.spread import LookedGroup, looked_groups

GROUPS = st.lists(st.integers(0, 60), min_size=1, max_size=5)


def slices_of(look, cuts):
    """The rows of a look as slices that begin anywhere."""
    places = sorted({look.start, look.stop, *(look.start + cut for cut in cuts if look.start + cut < look.stop)})
    pairs = pairwise(places)
    return [(first, pa.table({"row": range(first, stop)})) for first, stop in pairs]


@given(GROUPS, st.integers(0, 20), st.integers(1, 100), st.lists(st.integers(1, 60)))
def test_rows_of_one_group_equally_far_apart_however_it_is_read(groups, number, step, cuts):
    look = RowLook.at(groups, number, step)
    seen = [row for first, table in slices_of(look, cuts) for row in look.of(first, table)["row"].to_pylist()]
    group = number % len(groups)
    assert look.rows == (sum(groups[:group]), sum(groups[: group + 1]))
    assert seen == list(range(*look.rows, look.step))


def test_as_many_rows_as_of_the_whole_file():
    assert RowLook.at([5_000, 5_000], 0, 100) == RowLook(0, 5_000, 50)
    assert RowLook.at([5_000, 5_000], 3, 100) == RowLook(5_000, 10_000, 50)
    assert RowLook.at([8_000], 2, 100) == RowLook(0, 8_000, 100)


def test_looks_into_row_groups_are_counted_and_only_wanted_rows_are_read():
    assert looked_groups([2_000, 100], [0, 700, 2_050], (0, 2_100)) == [
        LookedGroup(0, 2, (0, 2_000)),
        LookedGroup(1, 1, (2_000, 2_100)),
    ]
    assert looked_groups([10, 10, 10], [9, 10], (5, 12)) == [LookedGroup(0, 1, (5, 10)), LookedGroup(1, 1, (10, 12))]
