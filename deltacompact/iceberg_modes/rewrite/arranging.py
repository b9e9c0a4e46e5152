"""Task: an output with the rows of one leaf, in the order of its cells, or of its keys where rows are sorted.

    part 0    cells 0 to 2: the blocks of all runs are joined, and sorted by cell       one part at a time
    part 1    cell 3: the blocks are written as they come                               one block at a time
    sorted    the blocks of any part are joined, and sorted by the keys

So a file takes no more memory than a part of it. Rows of a partition that makes one small file are read where they are:
the task has a layout of its own, and nothing is written twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import DataFile
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.iceberg_modes.rewrite.arrangement import Arrangement, SortBy
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, live_tables
from deltacompact.iceberg_modes.rewrite.planting import SAMPLE_ROWS
from deltacompact.iceberg_modes.rewrite.routing import Block, read_blocks
from deltacompact.iceberg_modes.rewrite.row_numbers import numbers_writer
from deltacompact.layout.order import Numbers
from deltacompact.layout.ranges import Key
from deltacompact.layout.spread import spread
from deltacompact.steps.materialize import DECODED_AHEAD, Materialized
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import prefetch, writing
from deltacompact.tabular.row_groups import WriteOptions

ROWS_AT_ONCE = 128 << 10


@dataclass(frozen=True, slots=True)
class LeafPart:
    """Some cells of a leaf: their blocks in all runs."""

    cells: int
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Routed:
    """The rows [start, stop) of a leaf, counted in the order of its parts."""

    parts: tuple[LeafPart, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Live rows where they are, which make one file."""

    live: LiveSlices
    cells: int


@dataclass(frozen=True, slots=True)
class ArrangeTask:
    """Writes one output of so many rows. `keys`: by which routed rows are sorted, if they are.

    `numbers_path`: where the numbers of its rows go, in their new order, so that deletes of others can follow them.
    """

    source: Routed | Unrouted
    numbers_path: str | None
    by: Arrangement
    keys: tuple[Key, ...]
    rows: int
    columns: pa.Schema
    options: WriteOptions
    limits: Limits


def arrange(store: ObjectStore, task: ArrangeTask, paths: Callable[[], str]) -> Materialized:
    """Write the rows to a new path. Raises CorruptionError if they are more or fewer than they should be."""
    path, source = paths(), task.source
    made = _routed(store, task, source) if isinstance(source, Routed) else _unrouted(store, task.by, source)
    with contextlib.ExitStack() as opened:
        tables = opened.enter_context(prefetch.ahead(made, DECODED_AHEAD))
        without_numbers = opened.enter_context(numbers_writer(store, task.numbers_path))
        out = opened.enter_context(writing.writer(store, path, task.columns, task.options))
        for table in tables:
            out.write(without_numbers(table).replace_schema_metadata(task.columns.metadata))
        if out.rows != task.rows:
            raise CorruptionError(f"{path} got {out.rows} rows, {task.rows} were sent to it")
    file = DataFile(UNNUMBERED, path, task.options.content_type, task.rows, out.bytes, task.columns, decodes=True)
    return Materialized(file, 0)


def _routed(store: ObjectStore, task: ArrangeTask, source: Routed) -> Generator[pa.Table]:
    rank = 0
    for part in source.parts:
        rows = part.rows
        low, high = max(source.start - rank, 0), min(source.stop - rank, rows)
        if low < high:
            yield from _within(_of_part(store, task, part), low, high)
        rank += rows


def _of_part(store: ObjectStore, task: ArrangeTask, part: LeafPart) -> Iterator[pa.Table]:
    blocks = read_blocks(store, part.blocks)
    if part.cells == 1 and not task.keys:
        for rows, _ in blocks:
            yield rows
        return
    rows, cells = _joined(blocks)
    yield from _in_order(rows, _order(task.by, task.keys, rows, lambda: cells))


def _joined(blocks: Iterable[tuple[pa.Table, Numbers]]) -> tuple[pa.Table, Numbers]:
    """The rows of all blocks in one chunk; the blocks themselves are let go."""
    tables, cells = zip(*blocks, strict=True)
    rows = pa.concat_tables([table.replace_schema_metadata() for table in tables]).combine_chunks()
    return rows, np.concatenate(cells)


def _order(
    by: Arrangement, keys: Sequence[Key], rows: pa.Table, cells: Callable[[], npt.NDArray[np.integer]]
) -> Numbers:
    """Rows by their keys, which need no cells, or by their cells: those of a cell keep their order."""
    if isinstance(by, SortBy):
        return by.order_of(keys, rows)
    return np.argsort(cells(), kind="stable")


def _unrouted(store: ObjectStore, by: Arrangement, source: Unrouted) -> Generator[pa.Table]:
    rows = pa.concat_tables(live_tables(store, source.live)).combine_chunks()
    known = by.prepared(rows.select(by.names))
    sample = known.take(pa.array(spread(rows.num_rows, SAMPLE_ROWS)))
    layout = by.layout(sample, np.ones(sample.num_rows), 1, source.cells)
    yield from _in_order(rows, _order(by, layout.keys, rows, lambda: layout.cells_of(known)))


def _in_order(rows: pa.Table, order: Numbers) -> Iterator[pa.Table]:
    """The rows in this order, some at a time."""
    for start in range(0, len(order), ROWS_AT_ONCE):
        yield rows.take(pa.array(order[start : start + ROWS_AT_ONCE]))


def _within(tables: Iterator[pa.Table], low: int, high: int) -> Iterator[pa.Table]:
    """Those of the rows that have these numbers."""
    first = 0
    for table in tables:
        start, stop = max(low - first, 0), min(high - first, table.num_rows)
        if start < stop:
            yield table.slice(start, stop - start)
        first += table.num_rows
        if first >= high:
            return
