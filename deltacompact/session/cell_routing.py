"""Sends the rows that a session writes to the cells of a split tree.

    sample     20,000 rows of all                                a task for some of the rows
    plant      a split tree of 4 leaves                          one task; it is a record of the session
    route      the rows sorted by cell                           a task for some rows of a source group
    arrange    how many rows each cell has -> 4 outputs          here: pure (planning/arrangement.py)

Blocks of rows stay in memory (on Ray: in its object store) if the plan says so; otherwise they go through runs in the
table's store. Since the tree is a record, all attempts send rows to the same cells, where rows have the order of their
ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.numbers import Ordinal
from deltacompact.executors.executor import Handle, SubmittedTask
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.document import layout_document, layout_from_document
from deltacompact.layout.order import has_order
from deltacompact.layout.split_tree import SplitTree
from deltacompact.planning.arrangement import Arrangement, outputs_of, parts_of, parts_of_leaves
from deltacompact.planning.decisions import live_bytes
from deltacompact.planning.needs import Needs
from deltacompact.planning.outputs import OutputPlan
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.pointer_map import SourceGroup
from deltacompact.planning.sizing import layout_sizes
from deltacompact.session.output_tasks import MasksOf
from deltacompact.session.records import TREE, UnresumableError
from deltacompact.session.workbench import Workbench
from deltacompact.steps.live_ranges import LiveRanges, in_tasks
from deltacompact.steps.materialize import LiveRange
from deltacompact.steps.plant import GrownTree, TreeTask, plant
from deltacompact.steps.route import RoutedRows, RouteTerms, route, route_held
from deltacompact.steps.routed_runs import CellRun
from deltacompact.steps.sample import sample, sample_tasks
from deltacompact.steps.shuffle import stored
from deltacompact.tabular.row_groups import cells_of

_BLOCK = ("int64", "int64", "int64")
"""The types of a block's record: its first byte, its bytes and its rows."""


def ranges_of(groups: Sequence[SourceGroup], outputs: OutputPlan) -> list[list[LiveRange]]:
    """The live rows of each group, in the order of their ranks."""
    files = {source.ordinal: source.file for source, _ in outputs.rewritten}
    return [
        [
            LiveRange(files[Ordinal(ordinal)], Ordinal(ordinal), 0, int(outputs.live[ordinal]))
            for ordinal in group.ordinals.tolist()
            if outputs.live[ordinal]
        ]
        for group in groups
    ]


def rows_of(ranges: Sequence[LiveRange]) -> int:
    return sum(range_.stop - range_.start for range_ in ranges)


def _decoded_bytes(ranges: Sequence[LiveRange]) -> float:
    """About the decoded bytes of the live rows of these ranges."""
    return sum(range_.row_bytes * rows_of([range_]) for range_ in ranges)


@dataclass(frozen=True, slots=True)
class RoutedGroups:
    """The routed rows of each source group, in the order of their ranks.

    leaves    the number of parts of each leaf
    held      for each leaf, a handle of each task's blocks, in the order of the tasks; empty if rows are in runs
    """

    rows: list[list[RoutedRows]]
    leaves: tuple[int, ...]
    held: list[tuple[Handle, ...]]

    @property
    def each(self) -> list[RoutedRows]:
        return [routed for of_group in self.rows for routed in of_group]

    @property
    def runs(self) -> list[CellRun]:
        return [run for routed in self.each for run in routed.runs]


@dataclass(frozen=True, slots=True)
class CellRouting:
    """How rows are sent to cells. `decoded_bytes`: about the memory of all rows."""

    bench: Workbench
    masks_of: MasksOf
    planted: GrownTree
    parts: tuple[int, ...]
    rows: int
    decoded_bytes: float

    @classmethod
    def of(
        cls,
        bench: Workbench,
        outputs: OutputPlan,
        masks_of: MasksOf,
        ranges: Sequence[LiveRange],
        columns: Sequence[ClusterColumn],
    ) -> CellRouting:
        """Grow the tree."""
        plan, options = bench.plan, bench.plan.options
        sources, rows = [source for source, _ in outputs.rewritten], rows_of(ranges)
        files = plan.laid_out_files(rows, int(live_bytes(sources, outputs.live)))
        by = _with_keys(plan, columns)
        live = _live(bench, masks_of, ranges, plan.stored_fields(by))
        decoded = _decoded_bytes(ranges)
        cells = cells_of(rows / files, decoded / max(1, rows), options.row_group_rows)
        planted = _planted(bench, live, TreeTask(by, files, cells))
        parts = parts_of(planted.tree, rows, Needs(plan).run_bytes * rows / max(1.0, decoded))
        return cls(bench, masks_of, planted, parts, rows, decoded)

    @classmethod
    def again(
        cls, bench: Workbench, masks_of: MasksOf, parts: tuple[int, ...], ranges: Sequence[LiveRange]
    ) -> CellRouting:
        """The routing that an earlier attempt recorded. Raises UnresumableError if its tree is gone or damaged."""
        if (recorded := bench.records.stored(TREE)) is None:
            raise UnresumableError(f"its record {TREE} is gone")
        planted = _from_record(bench, recorded)
        if sum(parts) != planted.tree.cells:
            raise UnresumableError(f"its record {TREE} has another number of cells")
        return cls(bench, masks_of, planted, parts, rows_of(ranges), _decoded_bytes(ranges))

    def routed(self, ranges: Sequence[Sequence[LiveRange]]) -> RoutedGroups:
        """Send the rows of each group to their cells. They stay in memory if the plan says so and they fit."""
        bench, plan, leaves = self.bench, self.bench.plan, parts_of_leaves(self.planted.tree, self.parts)
        needs = Needs(plan)
        slots, memory, limits = bench.executor.capacity.slots, plan.capacity.memory_per_task_bytes, plan.options.limits
        held_each = layout_sizes.held_rows(self.rows, self._row_bytes, slots, memory, limits)
        values = (math.ceil(self.rows / held_each) + len(ranges)) * len(leaves)
        is_held = self.decoded_bytes <= needs.routed_bytes and values <= layout_sizes.HELD_VALUES_MAX
        rows_each = held_each if is_held else layout_sizes.routed_rows(self.rows, self._row_bytes, slots, limits)
        each = [list(in_tasks(of_group, rows_each)) for of_group in ranges]
        starts = tuple(accumulate(self.parts, initial=0))
        load_bytes = needs.run_bytes
        if is_held:
            load_bytes = layout_sizes.load_bytes(self.planted.tree.cells, self._row_bytes, needs.run_bytes)
        shared = bench.share(RouteTerms(self.planted.tree, starts, load_bytes, plan.options.certify, leaves))
        submit = self._submit_held if is_held else self._submit
        tasks = [submit(shared, _live(bench, self.masks_of, share, plan.stored_schema)) for of in each for share in of]
        bench.stages.wait("lay_out", tasks, self.rows)
        found = [bench.executor.get(task.values[-1]) for task in tasks]
        ends = accumulate(map(len, each), initial=0)
        held = [tuple(task.values[leaf] for task in tasks) for leaf in range(len(leaves) if is_held else 0)]
        routed = RoutedGroups([found[low:high] for low, high in pairwise(ends)], leaves, held)
        bench.on_their_way.extend([*(run.path for run in routed.runs), *(part.cells.path for part in found)])
        return routed

    @property
    def _row_bytes(self) -> float:
        return self.decoded_bytes / max(1, self.rows)

    def _submit(self, shared: Handle, live: LiveRanges) -> SubmittedTask:
        bench, paths = self.bench, self.bench.paths("index", ".exchange.arrow")
        return bench.executor.submit(route, bench.paced, shared, live, paths, spread=True, size=live.rows)

    def _submit_held(self, shared: Handle, live: LiveRanges) -> SubmittedTask:
        bench, paths = self.bench, self.bench.paths("index", ".exchange.arrow")
        returns = len(self.planted.tree.leaves) + 1
        return bench.executor.submit(route_held, bench.paced, shared, live, paths, returns=returns, spread=True)

    def arrangement(self, routed: RoutedGroups) -> Arrangement:
        """The outputs, planned by the number of rows in each cell. Raises ValueError if they are too many."""
        bench, plan, runs = self.bench, self.bench.plan, routed.runs
        counts = [of_load for part in routed.each for of_load in part.counts]
        rows = np.sum(counts, axis=0)
        outputs = outputs_of(self.planted.tree, rows, self.parts, plan.options.rows_per_compacted_file)
        path = "" if routed.held else bench.paths("index", ".exchange.arrow")()
        if path:
            blocks = (tuple(np.ascontiguousarray(run.blocks.T[: len(_BLOCK)])) for run in runs)
            stored(bench.store, path, blocks, _BLOCK)
        certified = sum((part.fingerprint for part in routed.each if part.fingerprint is not None), Fingerprint())
        names = tuple(run.path for run in runs)
        certificate = certified if plan.options.certify else None
        return Arrangement(plan.cluster_by, self.parts, outputs, names, path, self.planted.codec, certificate)


def _planted(bench: Workbench, live: LiveRanges, task: TreeTask) -> GrownTree:
    """The tree that an attempt has recorded, else a new one. Raises UnresumableError if the recorded one is damaged."""
    table, executor = bench.plan.input.destination_table_id, bench.executor
    if (recorded := bench.records.earlier(TREE)) is None:
        rows_min = bench.plan.options.limits.task_rows_min
        sampling = [
            executor.submit(sample, bench.paced, of_task, spread=True)
            for of_task in sample_tasks(live, task.files, executor.capacity.slots, rows_min)
        ]
        planting = executor.submit(plant, task, *(submitted.values[0] for submitted in sampling))
        bench.stages.wait("lay_out", [*sampling, planting], 0)
        grown: GrownTree = executor.get(planting.values[0])
        document = {**layout_document(grown.tree, table), "codec": grown.codec}
        if (recorded := bench.records.put(TREE, document)) is document:
            return grown
    return _from_record(bench, recorded)


def _from_record(bench: Workbench, recorded: Mapping[str, Any]) -> GrownTree:
    """The recorded tree. Raises UnresumableError if the record is damaged."""
    try:
        tree = layout_from_document(recorded, bench.plan.input.destination_table_id)
    except InputError as error:
        raise UnresumableError(f"its record {TREE}: {error}") from None
    if not isinstance(tree, SplitTree):
        raise UnresumableError(f"its record {TREE} has no split tree")
    return GrownTree(tree, recorded.get("codec"))


def _with_keys(plan: CompactionPlan, columns: Sequence[ClusterColumn]) -> tuple[ClusterColumn, ...]:
    """The columns to cluster by, and the key columns: they can divide rows that the others cannot."""
    named = {column.name for column in columns}
    keys = (name for name in plan.keys.primary if name in plan.stored_schema.names and name not in named)
    return (*columns, *(ClusterColumn(name, 0.0) for name in keys if has_order(plan.stored_schema.field(name).type)))


def _live(bench: Workbench, masks_of: MasksOf, ranges: Sequence[LiveRange], columns: pa.Schema) -> LiveRanges:
    paths = tuple(dict.fromkeys(masks_of[range_.ordinal] for range_ in ranges))
    return LiveRanges(tuple(ranges), paths, columns, bench.plan.input.partition, bench.plan.options.limits.reading)
