"""A sample of rows that are read table by table: the rows at its places, or evenly fewer where they are too wide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.layout.spread import spread
from deltacompact.tabular.loads import sample_of


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 60), st.integers(1, 2_000))
def test_a_sample_is_every_nth_of_its_places_and_fits(lengths, wanted, sample_bytes):
    ends = np.cumsum(lengths).tolist()
    tables = (pa.table({"row": np.arange(end - length, end)}) for length, end in zip(lengths, ends, strict=True))
    places = spread(sum(lengths), wanted)
    found = [row for table in sample_of(tables, places, sample_bytes) for row in table["row"].to_pylist()]
    step = 1
    while 8 * len(places[::step]) > sample_bytes and len(places[::step]) > 1:
        step *= 2
    assert found == places[::step].tolist()


def test_wide_rows_are_never_held_all_at_once():
    made, most = [], 0

    def tables():
        nonlocal most
        for number in range(200):
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.table({"row": [number], "text": ["x" * 100_000]})

    before = pa.total_allocated_bytes()
    made = sample_of(tables(), np.arange(200), 2_000_000)
    rows = [row for table in made for row in table["row"].to_pylist()]
    assert rows == list(range(0, 200, 16)) and most < 5_000_000


def test_a_large_dictionary_costs_no_rows():
    words = pa.array([f"{number:0100d}" for number in range(10_000)]).dictionary_encode()
    tables = [pa.table({"word": words.take(pa.array(range(first, first + 100)))}) for first in range(0, 1_000, 100)]
    assert sum(table.num_rows for table in sample_of(tables, np.arange(0, 1_000, 10), 20_000)) == 100
