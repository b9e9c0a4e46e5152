"""Ranges of a sort order against Python's own comparison of keys, and where curves are cut."""

from __future__ import annotations

import functools
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_orders import compared
from value_columns import TYPES, array_of, comparable

from deltacompact.base.errors import InputError
from deltacompact.layout.cutting_ranges import cut_ranges, keys_of
from deltacompact.layout.document import layout_document, layout_from_json
from deltacompact.layout.order import dense_ranks, stable_order, values_of
from deltacompact.layout.ranges import sorted_by
from deltacompact.layout.sort_order import Curve, CurveThrough, OrderedColumn, in_one_spelling, sort_items
from deltacompact.layout.split_tree import Leaf


@st.composite
def sorted_rows(draw):
    """A table of one to three columns with ties and nulls, and by what it is sorted."""
    count, arrays, items = draw(st.integers(0, 50)), {}, []
    for number in range(draw(st.integers(1, 3))):
        type_ = draw(st.sampled_from(list(TYPES)))
        pool = draw(st.lists(st.one_of(st.none(), TYPES[type_]), min_size=1, max_size=8))
        values = draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
        arrays[f"c{number}"] = array_of(type_, values)
        items.append(OrderedColumn(f"c{number}", draw(st.booleans()), draw(st.booleans())))
    return pa.table(arrays), items


@given(sorted_rows(), st.integers(1, 6), st.integers(1, 3), st.data())
def test_ranges_follow_each_other_as_rows_do(case, files, cells, data):
    rows, items = case
    seen = rows.slice(0, data.draw(st.integers(0, rows.num_rows)))
    keys = keys_of(seen, items)
    ranges = cut_ranges(seen, keys, np.ones(seen.num_rows), files, cells)
    values = list(zip(*(comparable(column) for column in rows.columns), strict=True))
    order = sorted(range(rows.num_rows), key=functools.cmp_to_key(lambda a, b: compared(items, values[a], values[b])))
    assert sorted_by(keys, rows).tolist() == order  # both are stable
    found = ranges.cells_of(rows)
    assert (np.diff(found[order]) >= 0).all()
    for place, other in itertools.pairwise(order):
        if compared(items, values[place], values[other]) == 0:
            assert found[place] == found[other]
    cuts = list(zip(*(comparable(of_key) for of_key in ranges.cuts), strict=True))
    begins = list(zip(cuts, ranges.behind or [False] * len(cuts), strict=True))
    of_rows = [sum(compared(items, cut, value) < (not behind) for cut, behind in begins) for value in values]
    assert found.tolist() == of_rows
    for cell in filter(ranges.are_alike, range(ranges.cells)):
        assert {values[row] for row in np.flatnonzero(found == cell)} <= {cuts[cell]}
    assert sum(leaf.files for leaf in ranges.leaves) == files
    again = layout_from_json(json.dumps(layout_document(ranges, "t")), "t")
    assert again.cells_of(rows).tolist() == found.tolist()


def squares_along(curve):
    """Of 16 files of a grid of 32 x 32 rows, in their order, the squares of 8 x 8 rows that they are."""
    places = np.random.default_rng(5).permutation(32 * 32)
    rows = pa.table({"a": places // 32, "b": places % 32})
    files = cut_ranges(rows, keys_of(rows, sort_items("", f"{curve}(a, b)")), np.ones(len(places)), 16).cells_of(rows)
    held = [np.unique(np.column_stack([places // 32, places % 32])[files == file] // 8, axis=0) for file in range(16)]
    assert all(len(square) == 1 for square in held)
    return [tuple(square[0].tolist()) for square in held]


def test_files_follow_the_curve_that_was_asked_for():
    """Hilbert's goes from neighbour to neighbour; Z-order takes the quarters of each quarter in turn. None is both."""
    path = np.array(squares_along("hilbert"))
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()
    quarters = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert squares_along("zorder") == [(2 * a + c, 2 * b + d) for a, b in quarters for c, d in quarters]


@pytest.mark.parametrize("nulls", [0, 250])
def test_a_rank_of_a_curve_is_the_share_of_rows_below(nulls):
    """Half of the rows have one value. If it had one rank, all others would lie in the lower quarter of the grid."""
    column = pa.chunked_array([pa.array([None] * nulls + [3] * 500 + list(range(4, 504 - nulls)))])
    (key,) = keys_of(pa.table({"a": column}), sort_items("", "hilbert(a)"))
    below = np.concatenate([[0] * nulls, [nulls] * 500, np.arange(500 + nulls, 1000)])
    assert np.abs(key.columns[0].ranks(column) - below * 1024 / 1000).max() <= 1


def test_a_curve_is_cut_where_its_neighbours_are_far_apart():
    draw = np.random.default_rng(3)
    rows = pa.table({name: draw.random(20_000) for name in "ab"})
    keys = keys_of(rows, sort_items("sort-order", "hilbert(a, b)"))
    ranges = cut_ranges(rows, keys, np.ones(20_000), 60, 4)
    cells = ranges.cells_of(rows)
    files = np.searchsorted(np.cumsum([leaf.cells for leaf in ranges.leaves]), cells, side="right")
    sizes = np.bincount(files)
    assert len(sizes) == 60 and sizes.min() > 0.5 * 20_000 / 60 and sizes.max() < 1.5 * 20_000 / 60
    evenly = np.empty(20_000, np.int64)
    evenly[sorted_by(keys, rows)] = np.arange(20_000) * 60 // 20_000
    assert area(rows, files) < 0.85 * area(rows, evenly)
    again = layout_from_json(json.dumps(layout_document(ranges, "t")), "t")
    assert again.cells_of(rows).tolist() == cells.tolist()


def area(rows, files):
    """What share of the square the boxes of all files have, added up."""
    a, b = (np.asarray(rows[name]) for name in "ab")
    return sum(np.ptp(a[files == file]) * np.ptp(b[files == file]) for file in range(files.max() + 1))


def test_equal_keys_larger_than_a_file_become_a_leaf_of_several():
    rows = pa.table({"a": [1.0] * 90 + [2.0] * 10})
    ranges = cut_ranges(rows, keys_of(rows, sort_items("sort-order", "a")), np.ones(100), 10, 2)
    assert ranges.leaves == (Leaf(3, 9), Leaf(2, 1)) and ranges.cuts[0].to_pylist() == [1, 1, 2, 2]
    assert [cell for cell in range(ranges.cells) if ranges.are_alike(cell)] == [1, 3]
    assert ranges.cells_of(pa.table({"a": [0, 1, 1.5, 2, 3]})).tolist() == [*range(5)]
    few = cut_ranges(rows, keys_of(rows, sort_items("sort-order", "a")), np.ones(100), 1)
    assert few.cells == 1 and not few.are_alike(0)


def test_orders_are_read_as_people_write_them():
    read = functools.partial(sort_items, "option sort-order")
    assert read("a") == (OrderedColumn("a"),)
    assert read("a desc, b ASC nulls Last") == (OrderedColumn("a", True, False), OrderedColumn("b", False, False))
    assert read("desc DESC NULLS FIRST") == (OrderedColumn("desc", True, True),)
    assert read("Bucket(4, a), a, truncate(b, 7)") == (
        OrderedColumn("a", transform="bucket[4]"),
        OrderedColumn("a"),
        OrderedColumn("b", transform="truncate[7]"),
    )
    assert read('date("a b") DESC, "days(c)"') == (OrderedColumn("a b", True, False, "day"), OrderedColumn("days(c)"))
    assert read("r, ZOrder( a ,b )") == (OrderedColumn("r"), CurveThrough(Curve.ZORDER, ("a", "b")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,,b", "'' cannot be read"),
        ("zorder()", "needs one to 4 columns"),
        ("hilbert(a,b,c,d,e)", "needs one to 4 columns"),
        ("bucket(a)", "cannot be read"),
        ("truncate(0, a)", "cannot be read"),
        (f"bucket({1 << 31}, a)", "cannot be read"),
        (f"bucket({'9' * 5000}, a)", "cannot be read"),
        ("days(a, b)", "cannot be read"),
        ("days(a), days(a) DESC", "has 'a' twice"),
        ("a, hilbert(b, a)", "has 'a' twice"),
    ],
)
def test_orders_that_cannot_be_read_are_refused_in_a_line(text, why):
    with pytest.raises(InputError, match=f"^option sort-order.*{why}") as error:
        sort_items("option sort-order", text)
    assert "\n" not in str(error.value)


@given(st.sampled_from(list(TYPES)), st.data())
def test_ranks_are_those_of_python(type_, data):
    pool = data.draw(st.lists(TYPES[type_], min_size=1, max_size=12))
    array = array_of(type_, data.draw(st.lists(st.sampled_from(pool), max_size=60)))
    values = comparable(array)
    distinct = sorted(set(values))
    ranks, first = dense_ranks(values_of(array).of)
    assert ranks.tolist() == [distinct.index(value) for value in values]
    assert first.tolist() == [values.index(value) for value in distinct]
    plain = values_of(array).of
    if isinstance(plain, np.ndarray):
        for times in (1, 30):  # a few sorted runs are merged, many are not
            many = np.tile(plain, times)
            assert stable_order(many).tolist() == sorted(range(len(many)), key=(times * values).__getitem__)


NAMES = st.text(st.sampled_from('ab ,"()*'), min_size=1, max_size=6).filter(lambda name: name == name.strip())
TRANSFORMS = st.sampled_from(["identity", "day", "bucket[4]", "truncate[12]"])
ITEMS = st.builds(OrderedColumn, NAMES, st.booleans(), st.booleans(), TRANSFORMS) | st.builds(
    CurveThrough, st.sampled_from(Curve), st.lists(NAMES, min_size=1, max_size=2, unique=True).map(tuple)
)


@given(ITEMS)
def test_an_order_in_one_spelling_is_the_same_order(item):
    assert sort_items("an order", str(item)) == (item,)
    assert in_one_spelling(str(item)) == str(item)
