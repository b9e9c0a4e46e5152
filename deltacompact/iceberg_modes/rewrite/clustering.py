"""Divides the rows of partitions into outputs by split trees.

    share        4 M live rows of partition day 3, 2.1 GB -> 4 files
    plant        a tree of 4 leaves, from a sample             one task for each share; the tree is stored by the plan
    route        runs, with a block for each part of a leaf    one task for some rows of a share
    arrange      4 outputs, each from its blocks of all runs   one task for each output

A share that makes one small file is arranged at once. A value larger than a file is cut by the columns that identify a
row, where the table names some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from deltacompact.base.limits import Limits
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.rewrite.arrangement import Arrangement
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask, LeafPart, Routed, Unrouted
from deltacompact.iceberg_modes.rewrite.live_slices import in_slices
from deltacompact.iceberg_modes.rewrite.planting import Planted, PlantTask, plant
from deltacompact.iceberg_modes.rewrite.routing import RoutedRun, RouteTask, route
from deltacompact.iceberg_modes.rewrite.row_numbers import NUMBERED_ROWS_MAX
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare
from deltacompact.layout.document import Layout
from deltacompact.tabular.row_groups import WriteOptions

CELLS_MAX = 48
"""Cells of a file, at most: with 200 rows of the sample in each file, four tell of a cell."""
DECODED_TIMES = 8
"""A stored byte is expected to become no more than so many, before anything is read."""


@dataclass(frozen=True, slots=True)
class Clusterer:
    """Plans the outputs of shares. Trees are stored as `{trees}{share}.json`, runs below `folder`."""

    tasks: Tasks
    metadata: TableMetadata
    by: Arrangement
    options: WriteOptions
    limits: Limits
    run_bytes: int
    trees: str
    folder: str

    def outputs(self, shares: Sequence[PartitionShare]) -> list[list[ArrangeTask]]:
        """The tasks for the outputs of each share, in the order of its layout."""
        large = [number for number, share in enumerate(shares) if self._is_large(share)]
        of_large = dict(zip(large, self._routed([shares[number] for number in large]), strict=True))
        return [
            of_large[number] if number in of_large else [self._at_once(share)] for number, share in enumerate(shares)
        ]

    def _is_large(self, share: PartitionShare) -> bool:
        return share.files > 1 or share.bytes * DECODED_TIMES > self.run_bytes

    def _at_once(self, share: PartitionShare) -> ArrangeTask:
        live = share.live(share.slices, share.columns, self.limits)
        source, path = Unrouted(live, self._cells(share)), self._numbers_path(share, 0)
        return ArrangeTask(source, path, self.by, (), share.rows, share.columns, self.options, self.limits)

    def _numbers_path(self, share: PartitionShare, output: int) -> str | None:
        """Where the numbers of an output's rows go. None: they are too many."""
        return f"{self.folder}arranged-{share.name}-{output}.numbers" if share.rows <= NUMBERED_ROWS_MAX else None

    def _cells(self, share: PartitionShare) -> int:
        """Cells of a file: about a row group each."""
        per_file = share.rows / share.files / self.options.row_group_rows
        return min(CELLS_MAX, max(1, math.ceil(per_file)))

    def _routed(self, shares: Sequence[PartitionShare]) -> Iterator[list[ArrangeTask]]:
        planted = self._planted(shares)
        parts = [self._parts(share, found) for share, found in zip(shares, planted, strict=True)]
        tasks: list[RouteTask] = []
        of_share: list[range] = []
        for number, (share, found) in enumerate(zip(shares, planted, strict=True)):
            starts = tuple(accumulate((cells for leaf in parts[number] for cells in leaf), initial=0))
            own = list(self._route_tasks(share, found.layout, starts))
            of_share.append(range(len(tasks), len(tasks) + len(own)))
            tasks += own
        runs = self.tasks.run(route, tasks)
        for number, share in enumerate(shares):
            own_runs = [run for place in of_share[number] for run in runs[place]]
            yield self._arranged(share, planted[number].layout, parts[number], own_runs)

    def _planted(self, shares: Sequence[PartitionShare]) -> list[Planted]:
        names = self.by.names
        schema = self.metadata.schema
        columns = pa.schema([schema.field(name) for name in names], schema.metadata)
        tasks = [
            PlantTask(
                share.live(share.slices, columns, self.limits),
                f"{self.trees}{share.name}.json",
                self.metadata.uuid,
                self.by,
                share.files,
                self._cells(share),
            )
            for share in shares
        ]
        return self.tasks.run(plant, tasks)

    def _parts(self, share: PartitionShare, found: Planted) -> list[list[int]]:
        """Of each leaf, the cells of its parts: a part has no more decoded bytes than a run, unless it is one cell."""
        return [
            _divided(leaf.cells, share.rows / share.files * leaf.files * found.row_bytes / self.run_bytes)
            for leaf in found.layout.leaves
        ]

    def _route_tasks(self, share: PartitionShare, layout: Layout, starts: tuple[int, ...]) -> Iterator[RouteTask]:
        per_task = max(self.limits.task_rows_min, math.ceil(share.rows / max(1, self.tasks.slots * 2)))
        for task, slices in enumerate(in_slices(share.slices, per_task)):
            live = share.live(slices, share.columns, self.limits)
            yield RouteTask(live, self.by, layout, starts, f"{self.folder}routed-{share.name}-{task}", self.run_bytes)

    def _arranged(
        self, share: PartitionShare, layout: Layout, parts: Sequence[Sequence[int]], runs: Sequence[RoutedRun]
    ) -> list[ArrangeTask]:
        tasks, first = list[ArrangeTask](), 0
        for leaf, of_leaf in zip(layout.leaves, parts, strict=True):
            found = tuple(
                LeafPart(cells, tuple(block for run in runs if (block := run.block(first + place)).rows))
                for place, cells in enumerate(of_leaf)
            )
            first += len(of_leaf)
            rows = sum(part.rows for part in found)
            for start, stop in _evenly(rows, leaf.files):
                task = ArrangeTask(
                    Routed(found, start, stop),
                    self._numbers_path(share, len(tasks)),
                    self.by,
                    layout.keys,
                    stop - start,
                    share.columns,
                    self.options,
                    self.limits,
                )
                tasks.append(task)
        return tasks


def _divided(cells: int, parts: float) -> list[int]:
    """So many cells in about so many parts."""
    count = min(cells, max(1, math.ceil(parts)))
    return [cells // count + (number < cells % count) for number in range(count)]


def _evenly(rows: int, files: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, one for each file; none, if there are no rows."""
    per_file = max(1, math.ceil(rows / files))
    for start in range(0, rows, per_file):
        yield start, min(rows, start + per_file)
