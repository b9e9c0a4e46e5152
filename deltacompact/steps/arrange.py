"""Task: writes compacted files from the rows that a split tree sent to them, cell by cell.

    output 17    rows 0‥900 of parts 0 and 1              part 0: the blocks of all runs, joined and sorted by cell
    output 18    rows 100‥1,050 of parts 1 and 2          part 1: one cell, its blocks as they come

So a task needs memory for one part. The log gets each file's range of values in the columns that it is clustered by.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.data_file import Clustered, DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.layout.value_ranges import joined, ranges_of, stored_ranges
from deltacompact.steps.cell_blocks import CellBlock, CellRows, HeldBlock, HeldParts, in_cells, within, write_cells
from deltacompact.steps.certify import fingerprint_of_file
from deltacompact.steps.materialize import DECODED_AHEAD, Materialized
from deltacompact.steps.routed_runs import ROWS_AT_ONCE, in_order_of_cells
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import prefetch, writing
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class RoutedPart:
    """The rows of some consecutive cells: blocks in runs, or blocks that stayed in memory."""

    cells: int
    blocks: tuple[CellBlock, ...] = ()
    held: tuple[HeldBlock, ...] = ()

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.held or self.blocks)


@dataclass(frozen=True, slots=True)
class ArrangedFile:
    """One output: its file number, and the rows [start, stop) of its parts.

    `first` is the place of its first part among its leaf's parts.
    """

    number: ChainFileNumber
    parts: tuple[RoutedPart, ...]
    start: int
    stop: int
    first: int = 0

    def with_blocks(self, held: Sequence[HeldParts]) -> ArrangedFile:
        """The output with its blocks. `held` has the leaf's parts from each route task, in the order of the rows."""
        own = [
            replace(part, held=tuple(block for of_task in held for block in of_task[place]))
            for place, part in enumerate(self.parts, self.first)
        ]
        return replace(self, parts=tuple(own))


@dataclass(frozen=True, slots=True)
class ArrangedFiles:
    """The terms that all outputs share. `names` are the columns to cluster by; `clustered` is the run.

    `ranges` has the outputs' key ranges where no footer tells them: the outputs are text files.
    """

    schema: pa.Schema
    options: WriteOptions
    names: tuple[str, ...]
    clustered: Clustered
    ranges: tuple[tuple[str, object, object], ...]
    certify: bool
    reading: ReadLimits


def arrange_each(
    store: ObjectStore, task: ArrangedFiles, outputs: Sequence[ArrangedFile], paths: Callable[[], str], *held: HeldParts
) -> list[Materialized]:
    """Write several files, one after another, each to a new path.

    If blocks stayed in memory, `held` has the same number of values for each file, file after file.
    """
    each = len(held) // max(1, len(outputs))
    of_outputs = batched(held, lambda _: 1, each) if each else repeat(None)
    whole = (
        output if own is None else output.with_blocks(own) for output, own in zip(outputs, of_outputs, strict=False)
    )
    return [Materialized(_arranged(store, task, output, paths()), 0) for output in whole]


def _arranged(store: ObjectStore, task: ArrangedFiles, output: ArrangedFile, path: str) -> DataFile:
    found: dict[str, tuple[object, object]] | None = None
    with contextlib.ExitStack() as opened:
        tables = opened.enter_context(prefetch.ahead(_rows(store, output), DECODED_AHEAD))
        out = opened.enter_context(writing.writer(store, path, task.schema, task.options))

        def noted(table: pa.Table) -> pa.Table:
            nonlocal found
            ranges = ranges_of(table, task.names)
            found = ranges if found is None else joined([found, ranges])
            return table.replace_schema_metadata(task.schema.metadata)

        write_cells(out, tables, noted)
        if out.rows != output.stop - output.start:
            raise CorruptionError(
                f"compacted file {output.number} got {out.rows} rows, {output.stop - output.start} were sent to it"
            )
    rows, kind = output.stop - output.start, task.options.content_type
    file = DataFile(output.number, path, kind, rows, out.bytes, task.schema, decoded_bytes=out.decoded_bytes)
    clustered = replace(task.clustered, ranges=stored_ranges(found or {}))
    widest = out.widest_row_bytes
    whole = replace(file, decodes=True, ranges=task.ranges, clustered=clustered, widest_row_bytes=widest)
    return writing.with_group_bytes(_certified(store, task, whole), out.group_bytes)


def _certified(store: ObjectStore, task: ArrangedFiles, file: DataFile) -> DataFile:
    """The file with the fingerprint of its rows, read again, if the session certifies its files."""
    if not task.certify:
        return file
    return replace(file, fingerprint=fingerprint_of_file(store, file, task.reading))


def _rows(store: ObjectStore, output: ArrangedFile) -> Generator[CellRows]:
    rank = 0
    for part in output.parts:
        low, high = max(output.start - rank, 0), min(output.stop - rank, part.rows)
        if low < high:
            rows = (
                in_cells(part.held, part.cells, ROWS_AT_ONCE)
                if part.held
                else in_order_of_cells(store, part.blocks, part.cells)
            )
            yield from within(rows, low, high)
        rank += part.rows
