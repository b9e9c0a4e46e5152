"""Task: an output with the rows of one leaf, in the order of its cells, or of its keys where rows are sorted.

    part 0    cells 0 to 2 of a tree       cell by cell, from the blocks of all runs       one part at a time
    part 1    cell 3, or rows of one key   the blocks are written as they come             one block at a time
    part 2    a range of a sort order      the blocks are sorted by the keys               one part at a time
    part 3    a range larger than memory   its blocks are divided into ranges again, and those are sorted

So writing a file takes no more memory than one of its parts, even if the sample that divided the rows was wrong. A
partition that makes one small file has no runs: a task reads its rows from the data files and makes its own layout. It
writes rows twice only if they are too large for memory once decoded.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, live_tables, numbers_writer
from deltacompact.iceberg_modes.rewrite.planting import PlantTask, grown, look
from deltacompact.iceberg_modes.rewrite.routing import RouteTask, read_blocks, route, written_run
from deltacompact.iceberg_modes.rewrite.row_order import RowOrder, SortBy
from deltacompact.layout.cutting_ranges import cut_ranges
from deltacompact.layout.document import Layout
from deltacompact.layout.order import Numbers
from deltacompact.layout.ranges import Key
from deltacompact.layout.spread import SAMPLE_ROWS, spread
from deltacompact.steps.cell_blocks import (
    CELL_ENDS,
    CellBlock,
    CellRows,
    HeldBlock,
    HeldParts,
    by_cell,
    within,
    write_cells,
)
from deltacompact.steps.materialize import DECODED_AHEAD, Materialized
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import prefetch, writing
from deltacompact.tabular.row_groups import WriteOptions, cells_of

SAMPLE_PER_RANGE = 16


@dataclass(frozen=True, slots=True)
class LeafPart:
    """Some cells of a leaf: their blocks in all runs. `are_alike`: rows of a cell need no order among themselves."""

    cells: int
    are_alike: bool
    blocks: tuple[CellBlock | HeldBlock, ...] = ()

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def decoded_bytes(self) -> int:
        return sum(block.decoded_bytes for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Routed:
    """The rows [start, stop) of a leaf, counted in the order of its parts.

    A part that has to be sorted, and takes more than `part_bytes`, is divided again, into runs below `path`.
    """

    parts: tuple[LeafPart, ...]
    start: int
    stop: int
    part_bytes: int
    path: str

    def with_blocks(self, held: Sequence[HeldParts]) -> Routed:
        """The same, with the blocks of its parts that tasks held in memory, in the order of the rows."""
        blocks = [tuple(block for of_task in of_tasks for block in of_task) for of_tasks in zip(*held, strict=True)]
        return replace(
            self, parts=tuple(replace(part, blocks=own) for part, own in zip(self.parts, blocks, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Live rows that make one file, read from the data files. If they take more than `part_bytes`, they go through
    runs."""

    live: LiveSlices
    part_bytes: int
    path: str


@dataclass(frozen=True, slots=True)
class ArrangeTask:
    """Writes one output of so many rows. `keys`: the sort keys of routed rows, if they are sorted.

    `numbers_path`: where to write the numbers of its rows in their new order, to follow deletes of others (row_map.py).
    """

    source: Routed | Unrouted
    numbers_path: str | None
    by: RowOrder
    keys: tuple[Key, ...]
    rows: int
    columns: pa.Schema
    options: WriteOptions
    limits: Limits


def arrange(
    store: ObjectStore, task: ArrangeTask, paths: Callable[[], str], *held: HeldParts
) -> tuple[Materialized, int | None]:
    """Write the rows to a new path. Returns them and the checksum of their numbers, if they have some.

    `held`: of each task that routed rows, the blocks that stayed in memory.

    Raises CorruptionError if there are more or fewer rows than there should be.
    """
    path, source = paths(), task.source
    if isinstance(source, Routed):
        made = _routed(store, task, source.with_blocks(held) if held else source)
    else:
        made = _unrouted(store, task, source)
    with contextlib.ExitStack() as opened:
        tables = opened.enter_context(prefetch.ahead(made, DECODED_AHEAD))
        without_numbers = opened.enter_context(numbers_writer(store, task.numbers_path))
        out = opened.enter_context(writing.writer(store, path, task.columns, task.options))
        metadata = task.columns.metadata
        write_cells(out, tables, lambda table: without_numbers(table).replace_schema_metadata(metadata))
        if out.rows != task.rows:
            raise CorruptionError(f"{path} got {out.rows} rows, {task.rows} were sent to it")
    file = DataFile(UNNUMBERED, path, task.options.content_type, task.rows, out.bytes, task.columns, decodes=True)
    return Materialized(file, 0), without_numbers.crc32


def _routed(store: ObjectStore, task: ArrangeTask, source: Routed) -> Generator[CellRows]:
    rank = 0
    for part in source.parts:
        low, high = max(source.start - rank, 0), min(source.stop - rank, part.rows)
        rank += part.rows
        if low < high:
            if part.are_alike and part.cells == 1:
                part, low, high = _with_rows(part, low, high)
            yield from within(_of_part(store, task, source, part), low, high)


def _with_rows(part: LeafPart, low: int, high: int) -> tuple[LeafPart, int, int]:
    """The blocks with these rows alone, and where among theirs they are."""
    ends = np.cumsum([block.rows for block in part.blocks])
    first, last = np.searchsorted(ends, [low, high - 1], side="right").tolist()
    before = int(ends[first - 1]) if first else 0
    return replace(part, blocks=part.blocks[first : last + 1]), low - before, high - before


def _of_part(
    store: ObjectStore, task: ArrangeTask, source: Routed, part: LeafPart, may_divide: bool = True
) -> Iterator[CellRows]:
    if part.are_alike and part.cells == 1:
        yield from (block.table for block in read_blocks(store, part.blocks))
    elif part.are_alike:
        yield from _cell_by_cell(store, part, part.decoded_bytes <= source.part_bytes)
    elif may_divide and part.decoded_bytes > source.part_bytes:
        yield from _divided(store, task, source, part)
    else:
        rows = pa.concat_tables(block.table for block in read_blocks(store, part.blocks))
        yield from _in_order(rows, _sort_by(task).order_of(task.keys, rows), task.limits)


def _cell_by_cell(store: ObjectStore, part: LeafPart, fits: bool) -> Iterator[CellRows]:
    """The rows of each cell, block by block: nothing is copied. Blocks that do not fit are read for each cell again."""
    held = list(read_blocks(store, part.blocks)) if fits else None
    for cell in range(part.cells):
        for block in held or read_blocks(store, part.blocks):
            if count := int(block.counts[cell]):
                yield block.table.slice(int(block.counts[:cell].sum()), count)
        yield CELL_ENDS


def _divided(store: ObjectStore, task: ArrangeTask, source: Routed, part: LeafPart) -> Iterator[CellRows]:
    """The rows of a part in the order of the keys, which are divided into ranges by a sample of the part itself."""
    by, cells = _sort_by(task), -(-2 * part.decoded_bytes // source.part_bytes)
    samples, sizes = list[pa.Table](), list[npt.NDArray[np.float64]]()
    for block in read_blocks(store, part.blocks):
        some = np.arange(0, block.rows, max(1, part.rows // max(SAMPLE_ROWS, SAMPLE_PER_RANGE * cells)))
        samples.append(by.prepared(block.table.select(by.names)).take(pa.array(some)))
        sizes.append(np.full(len(some), block.decoded_bytes / len(some)))
    layout = cut_ranges(pa.concat_tables(samples), task.keys, np.concatenate(sizes), 1, cells)
    starts, path = tuple(range(layout.cells + 1)), f"{source.path}-{uuid.uuid4().hex}"
    sending = RouteTask(LiveSlices((), (), task.columns, task.limits.reading), by, layout, starts, path, 0)
    runs = [
        written_run(store, sending, f"{path}-{number}.arrows", block.table)
        for number, block in enumerate(read_blocks(store, part.blocks))
    ]
    try:
        for cell in range(layout.cells):
            inner = LeafPart(1, layout.are_alike(cell), tuple(one for run in runs if (one := run.block(cell)).rows))
            if inner.blocks:
                yield from _of_part(store, task, source, inner, inner.rows < part.rows)
    finally:
        store.delete([run.path for run in runs])


def _sort_by(task: ArrangeTask) -> SortBy:
    assert isinstance(task.by, SortBy), "a split tree has no order inside of cells"
    return task.by


def _unrouted(store: ObjectStore, task: ArrangeTask, source: Unrouted) -> Generator[CellRows]:
    tables, size = list[pa.Table](), 0
    for table in live_tables(store, source.live):
        tables.append(table)
        size += table.nbytes
        if size > source.part_bytes:
            tables.clear()
            yield from _through_runs(store, task, source)
            return
    by, rows = task.by, pa.concat_tables(tables)
    del tables, table
    known = by.prepared(rows.select(by.names))
    sample = known.take(pa.array(spread(rows.num_rows, SAMPLE_ROWS)))
    cells = cells_of(rows.num_rows, rows.nbytes / max(1, rows.num_rows), task.options.row_group_rows)
    layout = by.layout(sample, np.ones(sample.num_rows), 1, cells)
    if isinstance(by, SortBy):
        yield from _in_order(rows, by.order_of(layout.keys, rows), task.limits)
        return
    found = layout.cells_of(known).astype(np.uint16)
    order, counts = np.argsort(found, kind="stable"), np.bincount(found, minlength=layout.cells)
    yield from by_cell(rows, order, counts, _at_once(rows, task.limits))


def _through_runs(store: ObjectStore, task: ArrangeTask, source: Unrouted) -> Generator[CellRows]:
    """The rows as those of a large file, by a layout from a sample.

    The runs have names of their own: a copy of the task that Ray started again must not lose them when this one ends.
    """
    path = f"{source.path}-{uuid.uuid4().hex}"
    by, live, part_bytes = task.by, source.live, source.part_bytes
    columns = pa.schema([live.columns.field(name) for name in by.names], live.columns.metadata)
    sample = replace(live, columns=columns)
    planting = PlantTask(sample, "", "", by, 1, task.options.row_group_rows, part_bytes // 2)
    found = grown(planting, (look(store, looking) for looking in planting.sampling()))
    layout = found.layout
    parts = parts_of_leaf(layout, 0, layout.cells, task.rows * found.row_bytes / part_bytes)
    starts = tuple(accumulate((part.cells for part in parts), initial=0))
    runs = route(store, RouteTask(live, by, layout, starts, path, part_bytes))
    blocks = (tuple(one for run in runs if (one := run.block(place)).rows) for place in range(len(parts)))
    own = tuple(replace(part, blocks=of_part) for part, of_part in zip(parts, blocks, strict=True))
    try:
        routed = Routed(own, 0, task.rows, part_bytes, path)
        yield from _routed(store, replace(task, keys=layout.keys), routed)
    finally:
        store.delete([run.path for run in runs])


def parts_of_leaf(layout: Layout, first: int, cells: int, parts: float) -> tuple[LeafPart, ...]:
    """About so many parts of a leaf with so many cells from the first on. Where rows are sorted, a cell each."""
    count = cells if layout.keys else min(cells, max(1, math.ceil(parts)))
    of_part = [cells // count + (number < cells % count) for number in range(count)]
    places = accumulate(of_part, initial=first)
    return tuple(LeafPart(own, layout.are_alike(place)) for own, place in zip(of_part, places, strict=False))


def _in_order(rows: pa.Table, order: Numbers, limits: Limits) -> Iterator[pa.Table]:
    """The rows in this order, some at a time."""
    at_once = _at_once(rows, limits)
    for start in range(0, len(order), at_once):
        yield rows.take(pa.array(order[start : start + at_once]))


def _at_once(rows: pa.Table, limits: Limits) -> int:
    """How many of the rows are taken at a time."""
    reading = limits.reading
    return max(1, min(reading.batch_rows_max, int(reading.batch_bytes * rows.num_rows // max(1, rows.nbytes))))
