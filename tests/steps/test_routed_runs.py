"""The rows of runs come back by cell, and in a cell in the order in which they were sent."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.steps.cell_blocks import CELL_ENDS
from deltacompact.steps.routed_runs import in_order_of_cells, write_run
from deltacompact.storage.memory import MemoryStore

CELLS = 3
loads = st.lists(st.lists(st.integers(0, CELLS - 1), min_size=1, max_size=400), min_size=1, max_size=5)


@given(loads)
def test_rows_come_back_by_cell(cells_of_loads: list[list[int]]) -> None:
    store, runs, sent, first = MemoryStore(), [], [], 0
    for number, cells in enumerate(cells_of_loads):
        own = np.array(cells)
        ids = np.arange(first, first + len(own))
        words = pa.array([f"word {number}"] * len(own)).dictionary_encode()  # each run has another dictionary
        rows = pa.table({"id": ids, "word": words})
        counts = np.bincount(own, minlength=CELLS)
        runs.append(write_run(store, f"run-{number}", rows, own, counts, (0, CELLS), "lz4"))
        sent += [(cell, id_, f"word {number}") for cell, id_ in zip(cells, ids.tolist(), strict=True)]
        first += len(own)
    found, cell = [], 0
    for rows in in_order_of_cells(store, [run.block(0) for run in runs], CELLS):
        if rows is CELL_ENDS:
            cell += 1
        else:
            found += [(cell, row["id"], row["word"]) for row in rows.to_pylist()]
    assert cell == CELLS and found == sorted(sent, key=lambda row: row[:2])


@pytest.mark.parametrize(("rows_each", "chunks"), [(10, 1), (1_000, 4)])
def test_few_rows_of_a_cell_are_joined(rows_each: int, chunks: int) -> None:
    store = MemoryStore()
    rows, cells = pa.table({"id": np.arange(2 * rows_each)}), np.repeat([0, 1], rows_each)
    counts = np.bincount(cells)
    runs = [write_run(store, f"run-{number}", rows, cells, counts, (0, 2), "lz4") for number in range(4)]
    of_cells = [rows for rows in in_order_of_cells(store, [run.block(0) for run in runs], 2) if rows is not CELL_ENDS]
    assert [(rows.num_rows, rows["id"].num_chunks) for rows in of_cells] == 2 * [(4 * rows_each, chunks)]
