"""Where live rows went, against a dictionary.

sources    a    rows 0 1 2 3    live 1 0 1 1        b    rows 0 1    live 1 1
outputs    y: a 0, a 2, a 3     z: b 0, b 1
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.iceberg.row_map import Piece, RowMap, RowShare


def bits(lives):
    return np.packbits(np.array(lives, bool), bitorder="little")


def in_blocks(numbers):
    """Three at a time."""
    return lambda: (np.array(numbers[start : start + 3], np.uint32) for start in range(0, len(numbers), 3))


def in_order(live, outputs):
    return RowMap(live, [RowShare(outputs)] if outputs else [])


def test_rows_of_the_example():
    rows = in_order([bits([1, 0, 1, 1]), bits([1, 1])], [3, 2])
    found = {output: places.tolist() for output, places in rows.translate([np.array([1, 3]), np.array([0])])}
    assert found == {0: [2], 1: [0]}
    assert [places.tolist() for _, places in rows.translate([None, np.array([], int)])] == [[0, 1, 2]]


@st.composite
def moves(draw):
    """Live bitmaps, the rows of outputs, and which rows died, maybe several times."""
    live = draw(st.lists(st.lists(st.booleans(), max_size=70), min_size=1, max_size=5))
    outputs, left = [], sum(map(sum, live))
    while left:
        outputs.append(draw(st.integers(1, left)))
        left -= outputs[-1]
    dead = [draw(st.none() | st.lists(st.integers(0, len(rows) - 1)) if rows else st.just([])) for rows in live]
    return live, outputs, dead


@given(moves())
def test_every_row_is_where_a_dictionary_has_it(moved):
    live, outputs, dead = moved
    places = iter([(output, row) for output, rows in enumerate(outputs) for row in range(rows)])
    went = {(number, row): next(places) for number, rows in enumerate(live) for row, lives in enumerate(rows) if lives}
    died = {
        (number, row)
        for number, rows in enumerate(dead)
        for row in (range(len(live[number])) if rows is None else rows)
    }
    expected = sorted(went[row] for row in died & went.keys())
    asked = [None if rows is None else np.array(rows, np.int64) for rows in dead]
    found = in_order([bits(rows) for rows in live], outputs).translate(asked)
    assert [(output, row) for output, rows in found for row in rows.tolist()] == expected


def cut(rows, sizes):
    """Rows in lists of these sizes."""
    stops = list(itertools.accumulate(sizes))
    return [rows[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]


def went(live):
    """The number of each live row."""
    places = [(number, row) for number, rows in enumerate(live) for row, lives in enumerate(rows) if lives]
    return {place: number for number, place in enumerate(places)}


def numbers_of(live, dead):
    """The numbers of the live rows among the dead."""
    return {number for (file, row), number in went(live).items() if dead[file] is None or row in dead[file]}


def asked_of(dead):
    return [None if rows is None else np.array(rows, np.int64) for rows in dead]


@given(moves(), st.randoms(use_true_random=False))
def test_rows_in_another_order_are_where_a_dictionary_has_them(moved, random):
    live, outputs, dead = moved
    numbers = list(range(sum(outputs)))
    random.shuffle(numbers)
    of_outputs = cut(numbers, outputs)
    reads = [in_blocks(numbers) for numbers in of_outputs]
    found = RowMap([bits(rows) for rows in live], [RowShare(outputs, reads)]).translate(asked_of(dead))
    gone = numbers_of(live, dead)
    assert [(output, row) for output, rows in found for row in rows.tolist()] == [
        (output, row)
        for output, numbers in enumerate(of_outputs)
        for row, number in enumerate(numbers)
        if number in gone
    ]


@st.composite
def divided(draw):
    """The same, where rows go to several partitions: by number, the partition, and into which runs they are cut."""
    live, outputs, dead = draw(moves())
    count = sum(outputs)
    partition = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    runs, left = [], count
    while left:
        runs.append(draw(st.integers(1, left)))
        left -= runs[-1]
    return live, dead, partition, runs, draw(st.booleans()), draw(st.integers(1, 5))


@given(divided(), st.randoms(use_true_random=False))
def test_rows_that_were_divided_are_where_a_dictionary_has_them(example, random):
    """Runs are sorted by partition; each partition's rows are cut into outputs, in order or in another one."""
    live, dead, partition, run_rows, is_sorted, output_rows = example
    runs = [sorted(run, key=partition.__getitem__) for run in cut(list(range(len(partition))), run_rows)]
    shares, expected, first = [], [], 0
    for chosen in sorted(set(partition)):
        pieces, rows = [], []
        for run, numbers in enumerate(runs):
            places = [place for place, number in enumerate(numbers) if partition[number] == chosen]
            if places:
                pieces.append(Piece(run, places[0], places[-1] + 1))
                rows += [numbers[place] for place in places]
        order = list(range(len(rows)))
        if is_sorted:
            random.shuffle(order)
        sizes = [len(order[start : start + output_rows]) for start in range(0, len(order), output_rows)]
        of_outputs = cut(order, sizes)
        reads = [in_blocks(own) for own in of_outputs] if is_sorted else []
        shares.append(RowShare(sizes, reads, pieces))
        gone = numbers_of(live, dead)
        expected += [
            (first + output, row)
            for output, own in enumerate(of_outputs)
            for row, place in enumerate(own)
            if rows[place] in gone
        ]
        first += len(sizes)
    reads = [in_blocks(run) for run in runs]
    found = RowMap([bits(rows) for rows in live], shares, reads).translate(asked_of(dead))
    assert [(output, row) for output, rows in found for row in rows.tolist()] == expected
