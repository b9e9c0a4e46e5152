"""Task: sends live rows of data files to the cells of a split tree, or to the ranges of a sort order.

    a.parquet    day 1 · day 9 · day 2      run 0    part 0: a 0, a 2, c 0    part 1: a 1
    c.parquet    day 3 · day 8              run 1    part 0: -                part 1: c 1

A file has one or more parts, which are consecutive cells. A task sorts some rows at a time by cell, which gives one
block for each part. If memory allows, blocks stay there until the task that writes the file takes them. Otherwise rows
are written twice: first into runs as large as memory allows, from which one request reads a block (cell_blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, loads
from deltacompact.iceberg_modes.rewrite.row_order import RowOrder
from deltacompact.layout.document import Layout
from deltacompact.steps import cell_blocks
from deltacompact.steps.cell_blocks import CellBlock, HeldBlock, HeldParts, HeldRows
from deltacompact.steps.routed_runs import CellRun, write_run
from deltacompact.storage.objects import ObjectStore

CELLS_OF_A_BATCH = 2_000
"""Up to so many cells, rows are divided batch by batch: a batch still has about 60 rows of each cell."""


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Sends live rows to the cells of a layout. `starts`: the first cell of each part, and the end of the last.

    Run 3 goes to `{path}-3.arrows`.
    """

    live: LiveSlices
    by: RowOrder
    layout: Layout
    starts: tuple[int, ...]
    path: str
    run_bytes: int


def route(store: ObjectStore, task: RouteTask) -> list[CellRun]:
    """Write the runs, in the order of the rows that they have."""
    of_runs = enumerate(loads(store, task.live, task.run_bytes))
    return [written_run(store, task, f"{task.path}-{number}.arrows", rows) for number, rows in of_runs]


def route_held(
    store: ObjectStore, task: RouteTask, of_leaves: Sequence[int]
) -> Iterator[HeldParts | npt.NDArray[np.int64]]:
    """Yields the blocks of each leaf, then the number of rows of each part. `of_leaves`: the parts of each leaf."""
    held = HeldRows(task.starts)
    at_once = 1 if task.layout.cells <= CELLS_OF_A_BATCH else task.run_bytes
    for rows in loads(store, task.live, at_once):
        held.add(rows, *_cells(task, rows))
    yield from held.of_leaves(of_leaves)
    yield held.rows


def written_run(store: ObjectStore, task: RouteTask, path: str, rows: pa.Table) -> CellRun:
    """Write rows as a run."""
    return write_run(store, path, rows, *_cells(task, rows), task.starts, "lz4")


def _cells(task: RouteTask, rows: pa.Table) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.int64]]:
    """The cell of each row, and how many rows each cell has."""
    cells = task.layout.cells_of(task.by.prepared(rows))
    return cells, np.bincount(cells, minlength=task.layout.cells)


def read_blocks(store: ObjectStore, blocks: Sequence[CellBlock | HeldBlock]) -> Iterator[HeldBlock]:
    """The blocks in memory. The next ones are fetched ahead."""
    stored = cell_blocks.read(store, [block for block in blocks if isinstance(block, CellBlock)])
    for block in blocks:
        yield block if isinstance(block, HeldBlock) else HeldBlock(*next(stored))
