"""Runs: files of rows that are sorted by the cell of a layout, with a block for each part of an output.

    run 0    part 0, cells 0 to 2: 5 rows      part 1, cell 3: 2 rows       each is read by one request for its bytes
    run 1    part 0: 1 row                     part 1: no bytes

Blocks are Arrow's streams, because they are read once. Each says how many rows of each cell it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.wording import text_of
from deltacompact.layout.order import Numbers
from deltacompact.storage.fetched_file import begun_ahead
from deltacompact.storage.objects import Fetches, ObjectStore

_CELLS = b"deltacompact.cells"
ROWS_AT_ONCE = 128 << 10
_AHEAD = 4
"""Blocks that are under way while others are used."""


@dataclass(frozen=True, slots=True)
class CellBlock:
    """The rows of a part in a run: where its bytes are, and how many rows it has."""

    path: str
    first: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class CellRun:
    """A run, of shape (parts, 3): the first byte of each part's block, its bytes and its rows."""

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
) -> CellRun:
    """Write a run. `counts`: the rows of each cell; `starts`: the first cell of each part, and the end of the last."""
    small = cells.astype(np.uint16) if len(counts) <= 1 << 16 else cells  # sorted in one pass
    order = np.argsort(small, kind="stable")
    blocks, first = [], 0
    with store.writer(path) as sink:
        for (low, high), of_part in zip(pairwise(starts), _of_parts(order, counts, starts), strict=True):
            block = _block(rows.take(pa.array(of_part)), counts[low:high]) if len(of_part) else pa.py_buffer(b"")
            sink.write(block)
            blocks.append((first, block.size, len(of_part)))
            first += block.size
    return CellRun(path, np.array(blocks, np.int64).reshape(-1, 3))


def _of_parts(
    order: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], starts: Sequence[int]
) -> Iterator[npt.NDArray[np.int64]]:
    """The rows of each part, in the order of cells."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    for low, high in pairwise(starts):
        yield order[ends[low] : ends[high]]


def _block(rows: pa.Table, counts: npt.NDArray[np.int64]) -> pa.Buffer:
    rows = rows.replace_schema_metadata({_CELLS: counts.astype("<u8").tobytes()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(rows)
    return sink.getvalue()


def read_blocks(store: ObjectStore, blocks: Sequence[CellBlock]) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """The rows of each block, and of each row the number of its cell in the part. The next ones are fetched ahead."""
    for block, found in _fetched(store, blocks):
        try:
            rows = pa.ipc.open_stream(found).read_all()
        except (pa.ArrowException, OSError) as error:
            raise CorruptionError(f"{block.path} has a damaged block: {text_of(error)}") from error
        counts = np.frombuffer(rows.schema.metadata[_CELLS], "<u8").astype(np.int64)
        if not rows.num_rows == counts.sum() == block.rows:
            raise CorruptionError(f"{block.path} has {rows.num_rows} rows in a block of {block.rows}")
        yield rows, np.repeat(np.arange(len(counts)), counts)


def in_order_of_cells(store: ObjectStore, blocks: Sequence[CellBlock], cells: int) -> Iterator[pa.Table]:
    """The rows of a part of so many cells: by cell, those of each in the order of their runs, some at a time."""
    each = read_blocks(store, blocks)
    if cells == 1:
        for rows, _ in each:
            yield rows
        return
    rows, of_rows = _whole(each)
    order = np.argsort(of_rows, kind="stable")
    for start in range(0, len(order), ROWS_AT_ONCE):
        yield rows.take(pa.array(order[start : start + ROWS_AT_ONCE]))


def _whole(blocks: Iterable[tuple[pa.Table, Numbers]]) -> tuple[pa.Table, Numbers]:
    """The rows of all blocks in one chunk, and their cells; the blocks themselves are let go."""
    tables, cells = zip(*blocks, strict=True)
    rows = pa.concat_tables([table.replace_schema_metadata() for table in tables]).combine_chunks()
    return rows, np.concatenate(cells)


def within(tables: Iterator[pa.Table], low: int, high: int) -> Iterator[pa.Table]:
    """Those of the rows that have these numbers."""
    first = 0
    for table in tables:
        start, stop = max(low - first, 0), min(high - first, table.num_rows)
        if start < stop:
            yield table.slice(start, stop - start)
        first += table.num_rows
        if first >= high:
            return


def _fetched(store: ObjectStore, blocks: Sequence[CellBlock]) -> Iterator[tuple[CellBlock, pa.Buffer]]:
    if isinstance(store, Fetches):
        asked = begun_ahead(blocks, lambda block: (block, store.fetch(block.path, block.first, block.bytes)), _AHEAD)
        for block, answer in asked:
            yield block, answer.result().data
        return
    for block in blocks:
        with store.open(block.path) as source:
            yield block, source.read_at(block.bytes, block.first)
