"""Task: an output with the rows of one leaf of a split tree, in the order of its cells.

    part 0    cells 0 to 2: the blocks of all runs are joined, and sorted by cell       one part at a time
    part 1    cell 3: the blocks are written as they come                               one block at a time

So a file takes no more memory than a part of it. Rows of a partition that makes one small file are read where they are:
the task grows a tree of its own, and nothing is written twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import DataFile
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, live_tables
from deltacompact.iceberg_modes.rewrite.planting import SAMPLE_ROWS
from deltacompact.iceberg_modes.rewrite.routing import Block, read_blocks
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.growing import grow
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
    by: tuple[ClusterColumn, ...]
    cells: int


@dataclass(frozen=True, slots=True)
class ArrangeTask:
    """Writes one output of so many rows."""

    source: Routed | Unrouted
    rows: int
    columns: pa.Schema
    options: WriteOptions
    limits: Limits


def arrange(store: ObjectStore, task: ArrangeTask, paths: Callable[[], str]) -> Materialized:
    """Write the rows to a new path. Raises CorruptionError if they are more or fewer than they should be."""
    path, source = paths(), task.source
    made = _routed(store, source) if isinstance(source, Routed) else _unrouted(store, source)
    with contextlib.ExitStack() as opened:
        tables = opened.enter_context(prefetch.ahead(made, DECODED_AHEAD))
        out = opened.enter_context(writing.writer(store, path, task.columns, task.options))
        for table in tables:
            out.write(table.replace_schema_metadata(task.columns.metadata))
        if out.rows != task.rows:
            raise CorruptionError(f"{path} got {out.rows} rows, {task.rows} were sent to it")
    file = DataFile(UNNUMBERED, path, task.options.content_type, task.rows, out.bytes, task.columns, decodes=True)
    return Materialized(file, 0)


def _routed(store: ObjectStore, source: Routed) -> Generator[pa.Table]:
    rank = 0
    for part in source.parts:
        rows = part.rows
        low, high = max(source.start - rank, 0), min(source.stop - rank, rows)
        if low < high:
            yield from _within(_of_part(store, part), low, high)
        rank += rows


def _of_part(store: ObjectStore, part: LeafPart) -> Iterator[pa.Table]:
    blocks = read_blocks(store, part.blocks)
    if part.cells == 1:
        for rows, _ in blocks:
            yield rows
        return
    tables, cells = zip(*blocks, strict=True)
    yield from _sorted(pa.concat_tables([table.replace_schema_metadata() for table in tables]), np.concatenate(cells))


def _unrouted(store: ObjectStore, source: Unrouted) -> Generator[pa.Table]:
    rows = pa.concat_tables([source.live.columns.empty_table(), *live_tables(store, source.live)])
    sample = rows.take(pa.array(np.arange(0, rows.num_rows, -(-rows.num_rows // SAMPLE_ROWS) or 1)))
    tree = grow(sample, source.by, np.ones(sample.num_rows), 1, source.cells)
    yield from _sorted(rows, tree.cells_of(rows))


def _sorted(rows: pa.Table, cells: npt.NDArray[np.integer], rows_at_once: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    """The rows in the order of their cells, some at a time. Those of a cell keep their order."""
    rows, order = rows.combine_chunks(), np.argsort(cells, kind="stable")
    for start in range(0, len(order), rows_at_once):
        yield rows.take(pa.array(order[start : start + rows_at_once]))


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
