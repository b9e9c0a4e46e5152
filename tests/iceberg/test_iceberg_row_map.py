"""Where live rows went, against a dictionary.

sources    a    rows 0 1 2 3    live 1 0 1 1        b    rows 0 1    live 1 1
outputs    y: a 0, a 2, a 3     z: b 0, b 1
"""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.iceberg.row_map import MovedRows, RowMap


def bits(lives):
    return np.packbits(np.array(lives, bool), bitorder="little")


def test_rows_of_the_example():
    rows = RowMap([bits([1, 0, 1, 1]), bits([1, 1])], [3, 2])
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
    found = RowMap([bits(rows) for rows in live], outputs).translate(asked)
    assert [(output, row) for output, rows in found for row in rows.tolist()] == expected


@given(moves(), st.randoms(use_true_random=False))
def test_rows_in_another_order_are_where_a_dictionary_has_them(moved, random):
    live, outputs, dead = moved
    numbers = list(range(sum(outputs)))
    random.shuffle(numbers)
    stops = np.cumsum(outputs).tolist()
    of_outputs = [np.array(numbers[stop - rows : stop], np.int64) for stop, rows in zip(stops, outputs, strict=True)]
    asked = [None if rows is None else np.array(rows, np.int64) for rows in dead]
    went = list(RowMap([bits(rows) for rows in live], [sum(outputs)] if outputs else []).translate(asked))
    gone = {number for _, rows in went for number in rows.tolist()}
    found = MovedRows([bits(rows) for rows in live], [functools.partial(np.copy, one) for one in of_outputs])
    assert [(output, row) for output, rows in found.translate(asked) for row in rows.tolist()] == [
        (output, row) for output, one in enumerate(of_outputs) for row, number in enumerate(one) if number in gone
    ]
