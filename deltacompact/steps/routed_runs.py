"""Runs: files of rows, sorted by the cell of a layout, with a block (cell_blocks.py) for each part.

run 0    part 0, cells 0 to 2: 5 rows      part 1, cell 3: 2 rows       one request reads a block
run 1    part 0: 1 row                     part 1: no bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.layout.order import Numbers
from deltacompact.steps import cell_blocks
from deltacompact.steps.cell_blocks import CellBlock, CellRows, HeldBlock
from deltacompact.storage.objects import ObjectStore

ROWS_AT_ONCE = 128 << 10


@dataclass(frozen=True, slots=True)
class CellRun:
    """A run. `blocks` has a line for each part's block: first byte, bytes, rows, decoded bytes.

    The record of a session leaves out the decoded bytes.
    """

    path: str
    blocks: npt.NDArray[np.int64]

    def block(self, part: int) -> CellBlock:
        return CellBlock(self.path, *self.blocks[part].tolist())


def write_run(
    store: ObjectStore,
    path: str,
    rows: pa.Table,
    cells: npt.NDArray[np.integer],
    counts: Numbers,
    starts: Sequence[int],
    codec: str,
) -> CellRun:
    """Write a run. `counts`: the rows of each cell; `starts`: the first cell of each part, and the end of the last."""
    blocks, first = [], 0
    with store.writer(path) as sink:
        for part, of_cells in cell_blocks.by_part(rows, cells, counts, starts):
            if part is None:
                blocks.append((first, 0, 0, 0))
                continue
            block = cell_blocks.stream_of(part, of_cells, codec)
            sink.write(block)
            blocks.append((first, block.size, part.num_rows, part.nbytes))
            first += block.size
    return CellRun(path, np.array(blocks, np.int64).reshape(-1, 4))


def in_order_of_cells(store: ObjectStore, blocks: Sequence[CellBlock], cells: int) -> Iterator[CellRows]:
    """The rows of a part with `cells` cells: by cell, within a cell in the order of the runs, a few at a time.

    Blocks of one cell are dropped once their rows were yielded.
    """
    each = (HeldBlock(rows, counts) for rows, counts in cell_blocks.read(store, blocks))
    if cells == 1:
        for block in each:
            yield block.table
        return
    yield from cell_blocks.in_cells(list(each), cells, ROWS_AT_ONCE)
