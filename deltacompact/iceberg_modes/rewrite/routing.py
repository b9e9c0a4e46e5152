"""Task: live rows of data files, sent to the cells of a split tree or to ranges of a sort order, into runs.

    a.parquet    day 1 · day 9 · day 2      run 0    part 0: a 0, a 2, c 0    part 1: a 1
    c.parquet    day 3 · day 8              run 1    part 0: -                part 1: c 1

Rows are written twice: sorted by cell into runs as large as memory allows, then by those who write a file. A file has
one or more parts, which are cells that follow each other; a run has a block for each, which is read by one request for
its bytes. Blocks are Arrow's streams, because they are read once. Each says how many rows of each cell it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.wording import text_of
from deltacompact.iceberg_modes.rewrite.arrangement import Arrangement
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, loads
from deltacompact.layout.document import Layout
from deltacompact.storage.fetched_file import begun_ahead
from deltacompact.storage.objects import Fetches, ObjectStore

_CELLS = b"deltacompact.cells"
_AHEAD = 4
"""Blocks that are under way while others are used."""


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Sends live rows to the cells of a layout. `starts`: the first cell of each part, and the end of the last.

    Run 3 goes to `{path}-3.arrows`.
    """

    live: LiveSlices
    by: Arrangement
    layout: Layout
    starts: tuple[int, ...]
    path: str
    run_bytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of a part in a run: where its bytes are, and how many rows it has."""

    path: str
    first: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class RoutedRun:
    """A run, of shape (parts, 3): the first byte of each part's block, its bytes and its rows."""

    path: str
    blocks: npt.NDArray[np.int64]

    def block(self, part: int) -> Block:
        return Block(self.path, *self.blocks[part].tolist())


def route(store: ObjectStore, task: RouteTask) -> list[RoutedRun]:
    """Write the runs, in the order of the rows that they have."""
    of_runs = enumerate(loads(store, task.live, task.run_bytes))
    return [_written(store, task, f"{task.path}-{number}.arrows", rows) for number, rows in of_runs]


def _written(store: ObjectStore, task: RouteTask, path: str, rows: pa.Table) -> RoutedRun:
    cells = task.layout.cells_of(task.by.prepared(rows))
    counts = np.bincount(cells, minlength=task.layout.cells)
    small = cells.astype(np.uint16) if task.layout.cells <= 1 << 16 else cells  # sorted in one pass
    order = np.argsort(small, kind="stable")
    blocks, first = [], 0
    with store.writer(path) as sink:
        for (low, high), of_part in zip(pairwise(task.starts), _of_parts(order, counts, task.starts), strict=True):
            block = _block(rows.take(pa.array(of_part)), counts[low:high]) if len(of_part) else pa.py_buffer(b"")
            sink.write(block)
            blocks.append((first, block.size, len(of_part)))
            first += block.size
    return RoutedRun(path, np.array(blocks, np.int64).reshape(-1, 3))


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


def read_blocks(store: ObjectStore, blocks: Sequence[Block]) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
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


def _fetched(store: ObjectStore, blocks: Sequence[Block]) -> Iterator[tuple[Block, pa.Buffer]]:
    if isinstance(store, Fetches):
        asked = begun_ahead(blocks, lambda block: (block, store.fetch(block.path, block.first, block.bytes)), _AHEAD)
        for block, answer in asked:
            yield block, answer.result().data
        return
    for block in blocks:
        with store.open(block.path) as source:
            yield block, source.read_at(block.bytes, block.first)
