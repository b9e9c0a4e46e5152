"""Split trees against an oracle that sends one row after another down the tree, with Python's own comparisons."""

from __future__ import annotations

import dataclasses
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from value_columns import TYPES, array_of, comparable

from deltacompact.base.errors import InputError
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.document import layout_document, layout_from_json
from deltacompact.layout.growing import grow
from deltacompact.layout.order import has_order
from deltacompact.layout.quoting import quoted
from deltacompact.layout.sort_order import sort_items
from deltacompact.layout.split_tree import Leaf, SplitTree


@st.composite
def columns_of_rows(draw):
    """A table of one to three columns with ties and nulls, and how each is to be split."""
    count = draw(st.integers(0, 60))
    arrays, columns = [], []
    for number in range(draw(st.integers(1, 3))):
        type_ = draw(st.sampled_from(list(TYPES)))
        pool = draw(st.lists(st.one_of(st.none(), TYPES[type_]), min_size=1, max_size=12))
        arrays.append(array_of(type_, draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))))
        columns.append(ClusterColumn(f"c{number}", draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])), draw(st.booleans())))
    return pa.table({column.name: array for column, array in zip(columns, arrays, strict=True)}), columns


@st.composite
def trees(draw):
    """A tree, and rows of which it has seen some."""
    rows, columns = draw(columns_of_rows())
    seen = rows.slice(0, draw(st.integers(0, rows.num_rows)))
    sizes = np.array(draw(st.lists(st.floats(0, 9), min_size=seen.num_rows, max_size=seen.num_rows)))
    return grow(seen, columns, sizes, draw(st.integers(1, 8)), draw(st.integers(1, 4))), rows


def is_right(column, cut, value):
    """Whether a value is not below a cut of a column."""
    if value is None or cut is None:
        return (value is None) >= (cut is None) if not column.nulls_first else value is not None
    return value >= cut


def boxes(tree):
    """Of each cell the conditions (column, cut, goes right) on its way."""
    if not tree.splits:
        return {0: []}
    found, waiting = {}, [(0, [])]
    while waiting:
        node, path = waiting.pop()
        if node < 0:
            assert ~node not in found
            found[~node] = path
            continue
        split = tree.splits[node]
        waiting += [
            (child, [*path, (split.column, split.cut, right)])
            for child, right in ((split.left, False), (split.right, True))
        ]
    return found


def rows_in_boxes(tree, rows):
    """Of each row, the cells in whose boxes it lies."""
    values = [comparable(rows[column.name]) for column in tree.columns]
    cuts = [comparable(column.cuts) for column in tree.columns]
    of_cells = boxes(tree)
    return [
        [
            cell
            for cell, box in of_cells.items()
            if all(
                is_right(tree.columns[column], cuts[column][cut], values[column][row]) is right
                for column, cut, right in box
            )
        ]
        for row in range(rows.num_rows)
    ]


@given(trees())
def test_each_row_lies_in_one_cell_and_in_its_box(case):
    tree, rows = case
    found = [[cell] for cell in tree.cells_of(rows).tolist()]
    assert found == rows_in_boxes(tree, rows)
    assert sorted(boxes(tree)) == list(range(tree.cells))
    of_key = {}  # equal values lie together, and both zeros are equal
    for key, (cell,) in zip(zip(*(comparable(rows[name]) for name in tree.names), strict=True), found, strict=True):
        assert of_key.setdefault(key, cell) == cell


@given(trees())
def test_a_tree_with_two_cells_exchanged_fails_that_test(case):
    tree, rows = case
    cells = tree.cells_of(rows).tolist()
    assume(len(set(cells)) > 1)
    one, other = ~cells[0], ~next(cell for cell in cells if cell != cells[0])
    exchanged = {one: other, other: one}
    splits = tuple(
        dataclasses.replace(
            split, left=exchanged.get(split.left, split.left), right=exchanged.get(split.right, split.right)
        )
        for split in tree.splits
    )
    wrong = dataclasses.replace(tree, splits=splits)
    assert [[cell] for cell in wrong.cells_of(rows).tolist()] != rows_in_boxes(tree, rows)


@given(trees())
def test_a_tree_is_read_back_from_its_document(case):
    tree, rows = case
    text = json.dumps(layout_document(tree, "table 8e"))
    again = layout_from_json(text, "table 8e")
    assert dataclasses.replace(again, columns=()) == dataclasses.replace(tree, columns=())
    for mine, other in zip(tree.columns, again.columns, strict=True):
        assert (mine.name, mine.nulls_first, mine.cuts.type) == (other.name, other.nulls_first, other.cuts.type)
        assert bits(mine.cuts) == bits(other.cuts)
    assert again.cells_of(rows).tolist() == tree.cells_of(rows).tolist()


def bits(cuts):
    values = comparable(cuts)
    return [struct.pack("<d", value[1]) if isinstance(value, tuple) else value for value in values]


def spread(rows, **columns):
    generator = np.random.default_rng(7)
    return pa.table({name: make(generator, rows) for name, make in columns.items()})


def uniform(generator, rows):
    return generator.permutation(rows)


def in_files(tree, rows):
    ends = np.cumsum([leaf.cells for leaf in tree.leaves])
    return np.bincount(np.searchsorted(ends, tree.cells_of(rows), side="right"), minlength=len(tree.leaves))


def test_leaves_are_as_many_files_of_about_one_size():
    rows = spread(50_000, a=uniform, b=uniform, c=uniform)
    sample = rows.take(np.arange(0, 50_000, 2))
    tree = grow(sample, [ClusterColumn(name) for name in "abc"], np.ones(sample.num_rows), 100, 8)
    assert tree.leaves == (Leaf(8),) * 100
    assert in_files(tree, rows).min() > 400 and in_files(tree, rows).max() < 600
    assert len(json.dumps(layout_document(tree, "t"))) < 100 * tree.cells


def test_leaves_are_weighed_by_bytes_and_columns_by_weights():
    rows = spread(20_000, a=uniform, b=uniform)
    sizes = np.where(np.asarray(rows["a"]) < 2_000, 9.0, 1.0)  # a tenth of the rows has half of the bytes
    tree = grow(rows, [ClusterColumn("a")], sizes, 2)
    assert abs(tree.columns[0].cuts[0].as_py() - 2_000) < 20
    tree = grow(rows, [ClusterColumn("a", 3.0), ClusterColumn("b")], np.ones(20_000), 64)
    assert len(tree.columns[0].cuts) > 2 * len(tree.columns[1].cuts) > 0


def test_a_value_larger_than_a_file_is_cut_by_the_next_column_then_by_the_key_then_by_position():
    rows = spread(
        10_000, a=lambda generator, count: np.where(generator.random(count) < 0.9, 7, 8), b=uniform, k=uniform
    )
    ones = np.ones(10_000)
    both = grow(rows, [ClusterColumn("a"), ClusterColumn("b"), ClusterColumn("k", 0.0)], ones, 10)
    assert in_files(both, rows).max() < 1_200 and not len(both.columns[2].cuts)
    by_key = grow(rows, [ClusterColumn("a"), ClusterColumn("k", 0.0)], ones, 10)
    assert in_files(by_key, rows).max() < 1_200 and by_key.columns[0].cuts.to_pylist() == [8]
    assert grow(rows, [ClusterColumn("a")], ones, 10).leaves == (Leaf(1, 9), Leaf(1, 1))
    assert grow(rows, [ClusterColumn("a")], ones, 2).leaves == (Leaf(2, 2),)


def test_a_tree_of_other_columns_or_another_table_is_refused():
    rows = pa.table({"a": [1, 2, 3, 4]})
    tree = grow(rows, [ClusterColumn("a")], np.ones(4), 2)
    with pytest.raises(InputError, match="'a', which the rows lack"):
        tree.cells_of(pa.table({"b": [1]}))
    with pytest.raises(InputError, match="'a' as int64, and the rows have it as string: the tree is of another schema"):
        tree.cells_of(pa.table({"a": ["1"]}))
    assert tree.cells_of(pa.table({"a": pa.array([1, 4], pa.int32())})).tolist() == [0, 1]
    text = json.dumps(layout_document(tree, "one"))
    for bad, why in (
        ("{", "not JSON"),
        ("{}", "is no split tree"),
        (text.replace('"format": 1', '"format": 2'), "format 2, not 1: update"),
        (text.replace("[1, 1]", "[2, 1]"), "damaged"),
        (text, "of table one, and not of two"),
    ):
        with pytest.raises(InputError, match=why):
            layout_from_json(bad, "two")


def test_types_without_an_order_are_known():
    assert all(map(has_order, TYPES)) and has_order(pa.dictionary(pa.int32(), pa.string())) and has_order(pa.uuid())
    assert not any(
        map(has_order, (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.int8(), pa.int8())))
    )
    assert SplitTree((), (), (Leaf(1),)).cells_of(pa.table({"a": [1, 2]})).tolist() == [0, 0]


def test_columns_are_named_with_weights():
    expected = (ClusterColumn("day", 3.0), ClusterColumn("customer"), ClusterColumn("a*b", 0.5))
    assert cluster_columns("option cluster-by", " day*3, customer ,a*b*.5") == expected
    assert cluster_columns("option cluster-by", ["day*3", "customer", "a*b*0.5"]) == expected
    assert [str(column) for column in expected] == ["day*3", "customer", '"a*b"*0.5']
    assert cluster_columns("option cluster-by", "") == cluster_columns("option cluster-by", []) == ()


@given(st.lists(st.tuples(st.text(min_size=1), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=4))
@example([("a,b", 2.0), ('say "hi"', 1.0), (" a*2 ", 1.0), ("(", 1.0)])
def test_every_name_can_be_written_in_a_text(named):
    columns = tuple(ClusterColumn(name, weight) for name, weight in dict(named).items())
    assert cluster_columns("option cluster-by", ",".join(map(str, columns))) == columns
    order = ", ".join(f"{quoted(column.name)} NULLS FIRST" for column in columns)
    assert [item.names for item in sort_items("option sort-order", order)] == [(column.name,) for column in columns]
    curve = f'zorder({",".join(quoted(column.name) for column in columns)}) , "other, one" desc'
    expected = tuple(column.name for column in columns), ("other, one",)
    assert tuple(item.names for item in sort_items("option sort-order", curve)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"a', "names no column"),
        ('"a"b', "names no column"),
        ('""', "names no column"),
        ('"a","a"', "has 'a' twice"),
        ("a,b,c,d,e", "names 5 columns: at most 4"),
        ("a,", "'' names no column"),
        ("*3", "names no column"),
        ("a*much", "the weight 'much' of 'a\\*much' is no number above 0"),
        ("a*0", "no number above 0"),
        ("a*nan", "no number above 0"),
        ("a*inf", "no number above 0"),
        ("a,b,a*2", "has 'a' twice"),
    ],
)
def test_bad_columns_are_refused_in_a_line(text, why):
    with pytest.raises(InputError, match=f"^option cluster-by.*{why}"):
        cluster_columns("option cluster-by", text)
