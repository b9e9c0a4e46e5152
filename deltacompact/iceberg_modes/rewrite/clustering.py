"""Divides the rows of partitions into outputs by split trees.

    share        4 M live rows of partition day 3, 2.1 GB -> 4 files
    look         20,000 rows of it                             tasks for some rows of a share, if shares are few
    plant        a tree of 4 leaves, from the sample           one task for each share; the tree is stored by the plan
    route        blocks, one for each part of a leaf           one task for some rows of a share
    arrange      4 outputs, each from its blocks of all tasks  one task for each output

Blocks stay in memory (on Ray: in its object store) as long as shares fit there. Blocks of other shares go through runs
in the table's store. A share that makes one small file is arranged at once. If one value has more rows than a file,
they are cut by the table's identifier fields, if there are some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from deltacompact.base.limits import Limits
from deltacompact.executors.executor import Handle
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask, LeafPart, Routed, Unrouted, parts_of_leaf
from deltacompact.iceberg_modes.rewrite.live_slices import in_slices
from deltacompact.iceberg_modes.rewrite.planting import Planted, PlantTask, look, plant
from deltacompact.iceberg_modes.rewrite.routing import RouteTask, route, route_held
from deltacompact.iceberg_modes.rewrite.row_order import RowOrder
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare
from deltacompact.index.number_blocks import NUMBERED_ROWS_MAX
from deltacompact.layout.document import Layout
from deltacompact.planning.sizing import layout_sizes
from deltacompact.steps.materialize import MaterializeTask
from deltacompact.steps.routed_runs import CellRun
from deltacompact.tabular.row_groups import WriteOptions

DECODED_TIMES_MAX = 8
"""Before anything is read, a stored byte is expected to become at most so many decoded ones."""


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A task for an output, and the blocks that stay in memory for it."""

    task: MaterializeTask | ArrangeTask
    held: tuple[Handle, ...] = ()


@dataclass(frozen=True, slots=True)
class _RoutedShare:
    """A share whose rows are routed: its layout, about the decoded bytes of a row, and the parts of each leaf."""

    share: PartitionShare
    layout: Layout
    row_bytes: float
    leaves: tuple[tuple[LeafPart, ...], ...]

    @property
    def parts(self) -> list[LeafPart]:
        return [part for of_leaf in self.leaves for part in of_leaf]

    @property
    def decoded_bytes(self) -> float:
        return self.share.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Clusterer:
    """Plans the outputs of shares. Trees are stored as `{trees}{share}.json`, runs below `folder`."""

    tasks: Tasks
    metadata: TableMetadata
    by: RowOrder
    options: WriteOptions
    limits: Limits
    run_bytes: int
    held_bytes: int
    trees: str
    folder: str

    def outputs(self, shares: Sequence[PartitionShare]) -> list[list[PlannedOutput]]:
        """The tasks for the outputs of each share, in the order of its layout."""
        large = [number for number, share in enumerate(shares) if self._is_large(share)]
        of_large = dict(zip(large, self._routed([shares[number] for number in large]), strict=True))
        return [
            of_large[number] if number in of_large else [PlannedOutput(self._at_once(share))]
            for number, share in enumerate(shares)
        ]

    def _is_large(self, share: PartitionShare) -> bool:
        return share.files > 1 or share.bytes * DECODED_TIMES_MAX > self.run_bytes

    def _at_once(self, share: PartitionShare) -> ArrangeTask:
        live = share.live(share.slices, share.columns, self.limits)
        path = self._numbers_path(share, 0)
        by = self.by.among(share.extents)
        unrouted = Unrouted(live, self.run_bytes, f"{self.folder}unrouted-{share.name}")
        return ArrangeTask(unrouted, path, by, (), share.rows, share.columns, self.options, self.limits)

    def _numbers_path(self, share: PartitionShare, output: int) -> str | None:
        """Where to write the numbers of an output's rows. None: there are too many to follow."""
        return f"{self.folder}arranged-{share.name}-{output}.numbers" if share.rows <= NUMBERED_ROWS_MAX else None

    def _routed(self, shares: Sequence[PartitionShare]) -> Iterator[list[PlannedOutput]]:
        """The routing of all shares first, then the tasks for each one's outputs."""
        begun, left = [], float(self.held_bytes)
        for share, planted in zip(shares, self._planted(shares), strict=True):
            routing = _RoutedShare(share, planted.layout, planted.row_bytes, self._leaves(share, planted))
            tasks = list(self._route_tasks(routing))
            is_held = routing.decoded_bytes <= left and len(tasks) * len(routing.leaves) <= layout_sizes.HELD_VALUES_MAX
            left -= routing.decoded_bytes if is_held else 0.0
            begun.append((routing, is_held, tasks))
        held = iter(self._held([(routing, task) for routing, is_held, tasks in begun if is_held for task in tasks]))
        stored = iter(self.tasks.run(route, [task for _, is_held, tasks in begun if not is_held for task in tasks]))
        for routing, is_held, tasks in begun:
            if is_held:
                yield self._from_memory(routing, [next(held) for _ in tasks])
            else:
                yield self._from_runs(routing, [run for _ in tasks for run in next(stored)])

    def _held(self, routed: Sequence[tuple[_RoutedShare, RouteTask]]) -> list[list[Handle]]:
        """Handles to the values of each task: the blocks of each leaf, then the number of rows of each part."""
        inputs = [
            (1 + len(routing.leaves), (task, [len(parts) for parts in routing.leaves])) for routing, task in routed
        ]
        return self.tasks.kept(route_held, inputs)

    def _planted(self, shares: Sequence[PartitionShare]) -> list[Planted]:
        names = self.by.names
        schema = self.metadata.schema
        columns = pa.schema([schema.field(name) for name in names], schema.metadata)
        tasks = [
            PlantTask(
                share.live(share.slices, columns, self.limits),
                f"{self.trees}{share.name}.json",
                self.metadata.uuid,
                self.by.among(share.extents),
                share.files,
                self.options.row_group_rows,
                self.run_bytes // 2,
            )
            for share in shares
        ]
        each = self.tasks.slots // max(1, len(tasks))  # many shares keep all tasks busy by themselves
        sampling = [task.sampling(each) if each > 1 else [] for task in tasks]
        looks = iter(self.tasks.kept(look, [(1, (looking,)) for of_share in sampling for looking in of_share]))
        inputs = [(task, *(next(looks)[0] for _ in of_share)) for task, of_share in zip(tasks, sampling, strict=True)]
        return self.tasks.run_each(plant, inputs)

    def _leaves(self, share: PartitionShare, found: Planted) -> tuple[tuple[LeafPart, ...], ...]:
        """The parts of each leaf: one cell each if rows are sorted, else at most the decoded bytes of a run."""
        first, leaves = 0, []
        for leaf in found.layout.leaves:
            parts = share.rows / share.files * leaf.files * found.row_bytes / self.run_bytes
            leaves.append(parts_of_leaf(found.layout, first, leaf.cells, parts))
            first += leaf.cells
        return tuple(leaves)

    def _route_tasks(self, routing: _RoutedShare) -> Iterator[RouteTask]:
        share = routing.share
        memory = self.tasks.executor.capacity.memory_per_task_bytes
        each = layout_sizes.held_rows(share.rows, routing.row_bytes, self.tasks.slots, memory, self.limits)
        starts = tuple(accumulate((part.cells for part in routing.parts), initial=0))
        for task, slices in enumerate(in_slices(share.slices, each)):
            live, path = share.live(slices, share.columns, self.limits), f"{self.folder}routed-{share.name}-{task}"
            yield RouteTask(live, self.by, routing.layout, starts, path, self.run_bytes)

    def _from_memory(self, routing: _RoutedShare, values: Sequence[Sequence[Handle]]) -> list[PlannedOutput]:
        rows = np.sum([self.tasks.executor.get(of_task[-1]) for of_task in values], axis=0)
        starts = accumulate(map(len, routing.leaves), initial=0)
        found = [
            (parts, int(rows[start : start + len(parts)].sum()), tuple(of_task[leaf] for of_task in values))
            for leaf, (parts, start) in enumerate(zip(routing.leaves, starts, strict=False))
        ]
        return list(self._arranged(routing, found))

    def _from_runs(self, routing: _RoutedShare, runs: Sequence[CellRun]) -> list[PlannedOutput]:
        blocks = (
            tuple(block for run in runs if (block := run.block(place)).rows) for place in range(len(routing.parts))
        )
        of_leaves = [tuple(replace(part, blocks=next(blocks)) for part in parts) for parts in routing.leaves]
        return list(self._arranged(routing, [(parts, sum(part.rows for part in parts), ()) for parts in of_leaves]))

    def _arranged(
        self, routing: _RoutedShare, leaves: Sequence[tuple[tuple[LeafPart, ...], int, tuple[Handle, ...]]]
    ) -> Iterator[PlannedOutput]:
        """The tasks of each leaf: of its parts, its rows, and what is held for it."""
        share, output = routing.share, 0
        for leaf, (parts, rows, held) in zip(routing.layout.leaves, leaves, strict=True):
            for start, stop in _evenly(rows, leaf.files):
                path = f"{self.folder}parted-{share.name}-{output}"
                task = ArrangeTask(
                    Routed(parts, start, stop, self.run_bytes, path),
                    self._numbers_path(share, output),
                    self.by,
                    routing.layout.keys,
                    stop - start,
                    share.columns,
                    self.options,
                    self.limits,
                )
                yield PlannedOutput(task, held)
                output += 1


def _evenly(rows: int, files: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, one for each file; none, if there are no rows."""
    per_file = max(1, math.ceil(rows / files))
    for start in range(0, rows, per_file):
        yield start, min(rows, start + per_file)
