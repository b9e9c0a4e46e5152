"""Blocks of rows, sorted by the cell of a layout. A *part* is some consecutive cells; each part gets a block.

    rows      cells 3 0 2 0                            parts: cells 0 to 2, cell 3
    blocks    part 0: rows 1, 3, 2 · counts 2 0 1      part 1: row 0 · counts 1

A block is an Arrow stream, because it is read once. It says how many rows of each cell it has. On the way to a file,
CELL_ENDS stands between the rows of two cells: row groups end there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.wording import text_of
from deltacompact.layout.order import Numbers
from deltacompact.storage.fetched_file import begun_ahead
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.tabular.row_groups import RowGroups

_CELLS = b"deltacompact.cells"
_AHEAD = 4
"""Blocks that are fetched ahead."""
_CHUNK_ROWS_MIN = 256
"""With fewer rows in each chunk, on average, encoding takes longer than copying them into one."""


@dataclass(frozen=True, slots=True)
class CellBlock:
    """A part's block in a run: path, first byte, bytes, rows, and the rows' decoded bytes (0: unknown)."""

    path: str
    first: int
    bytes: int
    rows: int
    decoded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A part's block in memory. `counts` has the number of rows of each cell."""

    table: pa.Table
    counts: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def decoded_bytes(self) -> int:
        return int(self.table.nbytes)


HeldParts = list[list[HeldBlock]]
"""The blocks of each part of a leaf, in the order of the rows."""


class HeldRows:
    """Rows in memory, as blocks of parts, until the tasks that write files take them.

    `starts`: the first cell of each part, and the end of the last.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self._starts = starts
        self._parts: HeldParts = [[] for _ in range(len(starts) - 1)]

    def add(self, rows: pa.Table, cells: npt.NDArray[np.integer], counts: Numbers) -> None:
        """Divide rows of these cells among the parts. `counts` has the number of rows of each cell."""
        for blocks, (table, of_cells) in zip(self._parts, by_part(rows, cells, counts, self._starts), strict=True):
            if table is not None:
                blocks.append(HeldBlock(table, of_cells))

    def of_leaves(self, parts: Sequence[int]) -> Iterator[HeldParts]:
        """The blocks of each leaf. `parts`: how many parts each leaf has."""
        for first, stop in pairwise(accumulate(parts, initial=0)):
            yield self._parts[first:stop]

    @property
    def rows(self) -> Numbers:
        """The number of rows of each part."""
        return np.array([sum(block.rows for block in blocks) for blocks in self._parts], np.int64)


def by_part(
    rows: pa.Table, cells: npt.NDArray[np.integer], counts: Numbers, starts: Sequence[int]
) -> Iterator[tuple[pa.Table | None, Numbers]]:
    """For each part: its rows in the order of its cells (None: it has no row), and the number of rows of each cell.

    `counts` has the number of rows of each cell; `starts` the first cell of each part, and the end of the last.
    """
    small = cells.astype(np.uint16) if len(counts) <= 1 << 16 else cells  # sorted in one pass
    order = np.argsort(small, kind="stable")
    ends = np.concatenate([[0], np.cumsum(counts)])
    for low, high in pairwise(starts):
        of_part = order[ends[low] : ends[high]]
        yield rows.take(pa.array(of_part)) if len(of_part) else None, counts[low:high]


def stream_of(rows: pa.Table, counts: Numbers, compression: str) -> pa.Buffer:
    """A block's stored bytes."""
    rows = rows.replace_schema_metadata({_CELLS: counts.astype("<u8").tobytes()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_table(rows)
    return sink.getvalue()


def read(store: ObjectStore, blocks: Sequence[CellBlock]) -> Iterator[tuple[pa.Table, Numbers]]:
    """The rows of each block, and the number of rows of each of its cells. The next blocks are fetched ahead."""
    for block, found in _fetched(store, blocks):
        try:
            rows = pa.ipc.open_stream(found).read_all()
        except (pa.ArrowException, OSError) as error:
            raise CorruptionError(f"{block.path} has a damaged block: {text_of(error)}") from error
        counts = np.frombuffer(rows.schema.metadata[_CELLS], "<u8").astype(np.int64)
        if not rows.num_rows == counts.sum() == block.rows:
            raise CorruptionError(f"{block.path} has {rows.num_rows} rows in a block of {block.rows}")
        yield rows.replace_schema_metadata(), counts


CELL_ENDS = None
"""Stands after the rows of a cell."""
CellRows: TypeAlias = pa.Table | None
"""Rows of a part, or CELL_ENDS."""


def by_cell(rows: pa.Table, order: Numbers, counts: Numbers, rows_at_once: int) -> Iterator[CellRows]:
    """The rows, a few at a time, with CELL_ENDS after each cell. `order` sorts by cell; cells have `counts` rows."""
    ends = np.cumsum(counts).tolist()
    for first, end in pairwise([0, *ends]):
        for start in range(first, end, rows_at_once):
            yield rows.take(pa.array(order[start : min(end, start + rows_at_once)]))
        yield CELL_ENDS


def in_cells(held: Sequence[HeldBlock], cells: int, rows_at_once: int) -> Iterator[CellRows]:
    """The rows of a part by cell, within a cell in the order of the blocks, a few at a time. Rows are only copied where
    blocks have few rows of a cell each."""
    ends = [np.cumsum(block.counts).tolist() for block in held]
    for cell in range(cells):
        own = [
            block.table.slice(stops[cell] - count, count)
            for block, stops in zip(held, ends, strict=True)
            if (count := int(block.counts[cell]))
        ]
        rows = pa.concat_tables(own) if own else held[0].table.slice(0, 0)
        if rows.num_rows < _CHUNK_ROWS_MIN * len(own):
            rows = rows.combine_chunks()
        for start in range(0, rows.num_rows, rows_at_once):
            yield rows.slice(start, rows_at_once)
        yield CELL_ENDS


def write_cells(out: RowGroups, cells: Iterator[CellRows], as_written: Callable[[pa.Table], pa.Table]) -> None:
    """Write the rows, `as_written` applied. Row groups end with cells where they are half full."""
    for rows in cells:
        if rows is CELL_ENDS:
            out.cell_ends()
        else:
            out.write(as_written(rows))


def within(tables: Iterator[CellRows], low: int, high: int) -> Iterator[CellRows]:
    """The rows [low, high) of all these rows, with CELL_ENDS after the last: the file, or its part of a cell, ends."""
    first = 0
    for table in tables:
        if table is CELL_ENDS:
            yield table
            continue
        start, stop = max(low - first, 0), min(high - first, table.num_rows)
        if start < stop:
            yield table.slice(start, stop - start)
        first += table.num_rows
        if first >= high:
            break
    yield CELL_ENDS


def _fetched(store: ObjectStore, blocks: Sequence[CellBlock]) -> Iterator[tuple[CellBlock, pa.Buffer]]:
    if isinstance(store, Fetches):
        asked = begun_ahead(blocks, lambda block: (block, store.fetch(block.path, block.first, block.bytes)), _AHEAD)
        for block, answer in asked:
            yield block, answer.result().data
        return
    for block in blocks:
        with store.open(block.path) as source:
            yield block, source.read_at(block.bytes, block.first)
