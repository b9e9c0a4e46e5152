"""Lays out the rows that a session writes, after the ranks of its survivors are known and before the index is written.

    ranks      rank 7: the eighth of all live rows to write      the live bitmaps are stored
    sample     20,000 rows of all                                a task for some of the rows
    plant      a split tree of 4 leaves                          one task
    route      the rows sorted by cell                           a task for some rows of a source group
    arrange    how many rows each cell has -> 4 outputs          here: pure (planning/arrangement.py)
    move       rank 7 -> output 2, row 11                        a task for each source group
    outputs    4 files, each from the blocks of all tasks        beside the index, whose tasks have the new pointers

So neither the fold nor the commit knows of the layout. Blocks stay in memory (on Ray: in its object store) if the plan
says so; otherwise they go through runs in the table's store. The tree is a record of the session: all attempts send
rows to the same cells, where rows have the order of their ranks. The last round records the arrangement. An attempt
that resumes the session writes the same files from the recorded runs, or routes the rows again.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError
from deltacompact.base.events import logger
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import Clustered
from deltacompact.base.numbers import Ordinal
from deltacompact.executors.executor import Handle, SubmittedTask
from deltacompact.index.index_files import session_object
from deltacompact.index.remap import Moves
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.document import layout_document, layout_from_document
from deltacompact.layout.extents import Extents, weighed
from deltacompact.layout.order import has_order
from deltacompact.layout.split_tree import SplitTree
from deltacompact.layout.value_ranges import ValueRanges
from deltacompact.planning import sizing
from deltacompact.planning.arrangement import Arrangement, first_of_cells, outputs_of, parts_of, parts_of_leaves
from deltacompact.planning.decisions import FileAction, decide_files, live_bytes
from deltacompact.planning.outputs import Output, OutputPlan, arranged
from deltacompact.planning.overlapping import WrittenRanges, columns_of, extents_in_log, known_ranges
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.pointer_map import SourceGroup
from deltacompact.session.output_tasks import MasksOf, submit_outputs
from deltacompact.session.records import TREE, UnresumableError
from deltacompact.session.workbench import Workbench
from deltacompact.steps.arrange import ArrangedFile, ArrangedFiles, RoutedPart, arrange_each
from deltacompact.steps.file_ranges import file_ranges
from deltacompact.steps.live_ranges import LiveRanges, in_tasks
from deltacompact.steps.materialize import LiveRange
from deltacompact.steps.move import MovedGroup, OutputPlaces, move, move_in_files
from deltacompact.steps.plant import GrownTree, TreeTask, plant
from deltacompact.steps.route import RoutedRows, RouteTerms, route, route_held
from deltacompact.steps.routed_runs import CellRun
from deltacompact.steps.sample import sample, sample_tasks
from deltacompact.steps.shuffle import stored
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.tabular import key_values
from deltacompact.tabular.formats import UNTYPED, suffix_of
from deltacompact.tabular.row_groups import cells_of

STAGE = "lay_out"
TASK_SHARE = 0.25
"""The share of a task's memory for the rows that it keeps."""

_BLOCK = ("int64", "int64", "int64")
"""The types of a block's record: its first byte, its bytes and its rows."""


def written_ranges(bench: Workbench, live: npt.NDArray[np.int64]) -> WrittenRanges | None:
    """The ranges, in the columns to cluster by, of files that must be rewritten and of delta files that may stay.

    None: rows keep their order.
    """
    plan = bench.plan
    if not plan.clusters:
        return None
    decided = decide_files(plan, live)
    if all(decision.action in (FileAction.REWRITE, FileAction.DROP) for decision in decided):
        return {}  # nothing stays that could overlap them
    sources = [plan.sources[decision.ordinal] for decision in decided]
    return ranges_of_sources(
        bench,
        [
            source
            for decision, source in zip(decided, sources, strict=True)
            if decision.action is FileAction.REWRITE or (decision.action is FileAction.KEEP and not source.in_base)
        ],
    )


def ranges_of_sources(bench: Workbench, sources: Sequence[SourceFile]) -> WrittenRanges:
    """The ranges of these files, by the log if it has them, else by footers or rows."""
    plan = bench.plan
    found = {source.ordinal: known_ranges(source.file, plan.cluster_by, plan.stored_schema) for source in sources}
    unknown = [source for source in sources if found[source.ordinal] is None]
    measured = dict(zip([source.ordinal for source in unknown], _measured(bench, unknown), strict=True))
    return {ordinal: measured[ordinal] if known is None else known for ordinal, known in found.items()}


def _measured(bench: Workbench, unknown: Sequence[SourceFile]) -> list[ValueRanges]:
    """The ranges of these files, by tasks that read their footers or rows."""
    plan = bench.plan
    columns, reading = _columns(plan, columns_of(plan.cluster_by, plan.stored_schema)), plan.options.limits.reading
    batches = list(batched(unknown, lambda source: source.file.rows, plan.task_rows, 64))
    tasks = [
        bench.executor.submit(
            file_ranges,
            bench.paced,
            [source.file for source in batch],
            columns,
            plan.input.partition,
            reading,
            spread=True,
        )
        for batch in batches
    ]
    bench.stages.wait(STAGE, tasks, sum(source.file.rows for source in unknown))
    return [ranges for task in tasks for ranges in bench.executor.get(task.values[0])]


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The outputs, the tasks that return destinations in place of ranks, and the stored destinations."""

    outputs: OutputPlan
    moved: list[SubmittedTask]
    moves: tuple[Moves, ...]
    routed: RoutedGroups


def lay_out(
    bench: Workbench,
    outputs: OutputPlan,
    masks_of: MasksOf,
    ranked: Sequence[SubmittedTask],
    written: WrittenRanges,
) -> LaidOut | None:
    """Route the rows, and plan the outputs by the rows of each cell. None: too many outputs; rows keep their order.

    `ranked` has a task for each source group; all have ended. `written` comes from `written_ranges`.
    """
    plan, groups = bench.plan, outputs.groups[: outputs.pointers.marked_from]
    ranges = _ranges_of(groups, outputs)
    by = weighed(columns_of(plan.cluster_by, plan.stored_schema), _extents(plan, outputs, written))
    routing = _CellRouting.of(bench, outputs, masks_of, [range_ for of_group in ranges for range_ in of_group], by)
    routed = routing.routed(ranges)
    try:
        arrangement = routing.arrangement(routed)
    except ValueError as why:
        logger.warning("%s: rows keep their order: %s", plan.input.partition, why)
        return None
    laid_out = arranged(outputs, plan, arrangement)
    moves = [_moves(bench, group) for group in groups]
    moved = _submit_moves(bench, laid_out, groups, routed.rows, moves, ranked)
    bench.stages.wait(STAGE, moved, outputs.rows_rewritten)
    stored_moves = tuple(
        Moves(path, _rows(of_group)) for path, of_group in zip(moves, ranges, strict=True) if path is not None
    )
    return LaidOut(laid_out, [*moved, *ranked[len(groups) :]], stored_moves, routed)


def _extents(plan: CompactionPlan, outputs: OutputPlan, written: WrittenRanges) -> Extents:
    """The extents of the rewritten rows among the rows of files that stay, in the columns to cluster by."""
    stay = [source.file for source in (*outputs.kept, *outputs.marked)]
    new = [
        (written.get(source.ordinal) or known_ranges(source.file, plan.cluster_by, plan.stored_schema) or {}, live)
        for source, live in ((source, int(outputs.live[source.ordinal])) for source, _ in outputs.rewritten)
    ]
    return extents_in_log(stay, new, plan.cluster_by, plan.stored_schema) if stay else {}


def _ranges_of(groups: Sequence[SourceGroup], outputs: OutputPlan) -> list[list[LiveRange]]:
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


def _rows(ranges: Sequence[LiveRange]) -> int:
    return sum(range_.stop - range_.start for range_ in ranges)


def _decoded_rows(ranges: Sequence[LiveRange]) -> float:
    """About the decoded bytes of the live rows of these ranges."""
    return sum(range_.row_bytes * _rows([range_]) for range_ in ranges)


def _columns(plan: CompactionPlan, columns: Sequence[ClusterColumn]) -> pa.Schema:
    return pa.schema([plan.stored_schema.field(column.name) for column in columns])


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
class _CellRouting:
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
    ) -> _CellRouting:
        """Grow the tree."""
        plan, options = bench.plan, bench.plan.options
        sources, rows = [source for source, _ in outputs.rewritten], _rows(ranges)
        files = plan.laid_out_files(rows, int(live_bytes(sources, outputs.live)))
        by = _with_keys(plan, columns)
        live = _live(bench, masks_of, ranges, _columns(plan, by))
        decoded = _decoded_rows(ranges)
        cells = cells_of(rows / files, decoded / max(1, rows), options.row_group_rows)
        planted = _planted(bench, live, TreeTask(by, files, cells))
        parts = parts_of(planted.tree, rows, plan.run_bytes * rows / max(1.0, decoded))
        return cls(bench, masks_of, planted, parts, rows, decoded)

    @classmethod
    def again(
        cls, bench: Workbench, masks_of: MasksOf, parts: tuple[int, ...], ranges: Sequence[LiveRange]
    ) -> _CellRouting:
        """The routing that an earlier attempt recorded. Raises UnresumableError if its tree is gone or damaged."""
        if (recorded := bench.records.stored(TREE)) is None:
            raise UnresumableError(f"its record {TREE} is gone")
        planted = _from_record(bench, recorded)
        if sum(parts) != planted.tree.cells:
            raise UnresumableError(f"its record {TREE} has another number of cells")
        return cls(bench, masks_of, planted, parts, _rows(ranges), _decoded_rows(ranges))

    def routed(self, ranges: Sequence[Sequence[LiveRange]]) -> RoutedGroups:
        """Send the rows of each group to their cells. They stay in memory if the plan says so and they fit."""
        bench, plan, leaves = self.bench, self.bench.plan, parts_of_leaves(self.planted.tree, self.parts)
        per_task = max(plan.options.limits.task_rows_min, math.ceil(self.rows / (2 * bench.executor.capacity.slots)))
        fitting = int(plan.capacity.memory_per_task_bytes * TASK_SHARE * self.rows / max(1.0, self.decoded_bytes))
        held_each = max(1, min(per_task, fitting))
        values = (math.ceil(self.rows / held_each) + len(ranges)) * len(leaves)
        is_held = self.decoded_bytes <= plan.routed_bytes and values <= sizing.HELD_VALUES_MAX
        each = [list(in_tasks(of_group, held_each if is_held else per_task)) for of_group in ranges]
        starts = tuple(accumulate(self.parts, initial=0))
        terms = RouteTerms(self.planted.tree, starts, plan.run_bytes, plan.options.certify, leaves)
        shared = bench.share(replace(terms, load_bytes=self._load_bytes) if is_held else terms)
        submit = self._submit_held if is_held else self._submit
        tasks = [submit(shared, _live(bench, self.masks_of, share, plan.stored_schema)) for of in each for share in of]
        bench.stages.wait(STAGE, tasks, self.rows)
        found = [bench.executor.get(task.values[-1]) for task in tasks]
        ends = accumulate(map(len, each), initial=0)
        held = [tuple(task.values[leaf] for task in tasks) for leaf in range(len(leaves) if is_held else 0)]
        routed = RoutedGroups([found[low:high] for low, high in pairwise(ends)], leaves, held)
        bench.on_their_way.extend([*(run.path for run in routed.runs), *(part.cells.path for part in found)])
        return routed

    @property
    def _load_bytes(self) -> int:
        """The bytes of a load whose rows stay in memory."""
        row_bytes = self.decoded_bytes / max(1, self.rows)
        return sizing.load_bytes(self.planted.tree.cells, row_bytes, self.bench.plan.run_bytes)

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
        bench.stages.wait(STAGE, [*sampling, planting], 0)
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


# Where rows went


def _moves(bench: Workbench, group: SourceGroup) -> str | None:
    """A path for a group's destinations, if older entries of the index point into its files; else None."""
    return bench.paths("index", ".moves.arrow")() if group.whole else None


def _submit_moves(
    bench: Workbench,
    outputs: OutputPlan,
    groups: Sequence[SourceGroup],
    routed: Sequence[Sequence[RoutedRows]],
    paths: Sequence[str | None],
    ranked: Sequence[SubmittedTask],
) -> list[SubmittedTask]:
    firsts = first_of_cells([counts for of_group in routed for part in of_group for counts in part.counts])
    stops = np.cumsum([output.rows for output in outputs.outputs])
    places = bench.share(OutputPlaces(stops, outputs.decision.rows_per_output))
    reading, in_files = bench.plan.options.limits.reading, bench.plan.exchanges_in_files
    tasks = []
    for group, of_group, path, task in zip(groups, routed, paths, ranked, strict=False):
        own = [firsts_of_load for part in of_group for firsts_of_load in islice(firsts, len(part.counts))]
        rows = int(outputs.live[group.ordinals].sum())
        moved = MovedGroup(rows, tuple(part.cells for part in of_group), tuple(own), path)
        if in_files:
            exchange = bench.paths("index", ".exchange.arrow")
            inputs = bench.paced, places, moved, reading, exchange, task.values[0]
            tasks.append(bench.executor.submit(move_in_files, *inputs, spread=True))
        else:
            inputs_ = bench.paced, places, moved, reading, *task.values
            tasks.append(bench.executor.submit(move, *inputs_, returns=len(task.values), spread=True))
    return tasks


# Outputs


def missing_outputs(
    bench: Workbench,
    missing: Sequence[Output],
    outputs: OutputPlan,
    masks_of: MasksOf,
    routed: RoutedGroups | None = None,
) -> list[SubmittedTask]:
    """Submit the tasks that write these compacted files. `routed`: the rows that this attempt has sent to cells."""
    arrangement = outputs.decision.arranged
    if arrangement is None:
        return submit_outputs(bench, missing, outputs, masks_of)
    if not missing:
        return []
    if routed is None and not arrangement.blocks:
        routed = _routed_again(bench, outputs, masks_of, arrangement)
    return _submit_arranged(bench, missing, outputs, arrangement, routed)


def _routed_again(bench: Workbench, outputs: OutputPlan, masks_of: MasksOf, arrangement: Arrangement) -> RoutedGroups:
    """Route again the rows that an earlier attempt had in memory: to the same cells, in the same order."""
    ranges = _ranges_of(outputs.groups[: outputs.pointers.marked_from], outputs)
    routing = _CellRouting.again(
        bench, masks_of, arrangement.parts, [range_ for of_group in ranges for range_ in of_group]
    )
    return routing.routed(ranges)


def _submit_arranged(
    bench: Workbench,
    missing: Sequence[Output],
    outputs: OutputPlan,
    arrangement: Arrangement,
    routed: RoutedGroups | None,
) -> list[SubmittedTask]:
    """Submit the tasks that write these outputs, from the routed rows, or (None) from the recorded runs."""
    plan = bench.plan
    runs = _runs(bench, arrangement) if routed is None else routed.runs
    by, options = columns_of(arrangement.by, plan.stored_schema), plan.write_options
    clustered = Clustered(arrangement.by, outputs.decision.first_output_number)
    sources = [source.file for source, _ in outputs.rewritten]
    key_types = key_values.union(sources) if options.content_type in UNTYPED else ()
    like = ArrangedFiles(
        plan.stored_schema,
        replace(options, codec=options.codec or arrangement.codec),
        tuple(column.name for column in by),
        clustered,
        key_types,
        plan.options.certify,
        plan.options.limits.reading,
    )
    shared, paths = bench.share(like), bench.paths("data", suffix_of(options.content_type))
    first = outputs.decision.first_output_number

    leaf_starts = [0, *accumulate(routed.leaves)] if routed is not None and routed.held else [0]

    def file(output: Output) -> ArrangedFile:
        planned = arrangement.outputs[output.number - first]
        parts = tuple(
            RoutedPart(arrangement.parts[part], tuple(block for run in runs if (block := run.block(part)).rows))
            for part in range(planned.first_part, planned.stop_part)
        )
        start = leaf_starts[bisect_right(leaf_starts, planned.first_part) - 1]
        return ArrangedFile(output.number, parts, planned.start, planned.stop, planned.first_part - start)

    def held(output: Output) -> Sequence[Handle]:
        if routed is None or not routed.held:
            return ()
        planned = arrangement.outputs[output.number - first]
        return routed.held[bisect_right(leaf_starts, planned.first_part) - 1]

    def submit(together: Sequence[Output]) -> SubmittedTask:
        rows, files = sum(group.rows for group in together), [file(group) for group in together]
        inputs = bench.paced, shared, files, paths, *(handle for group in together for handle in held(group))
        return bench.executor.submit(arrange_each, *inputs, spread=True, size=rows)

    several = sizing.outputs_per_task(len(missing), plan.capacity.slots)
    return [submit(together) for together in batched(missing, lambda _: 1, several)]


def _runs(bench: Workbench, arrangement: Arrangement) -> list[CellRun]:
    with session_object(bench.store, arrangement.blocks, ReadAhead(bench.plan.options.limits.reading)) as source:
        file = pa.ipc.open_file(source)
        found = [file.get_batch(number) for number in range(file.num_record_batches)]
    blocks = [np.stack([column.to_numpy() for column in batch.columns], axis=1) for batch in found]
    return [CellRun(path, of_run) for path, of_run in zip(arrangement.runs, blocks, strict=True)]


def check_certified(arrangement: Arrangement | None, written: Sequence[Fingerprint | None]) -> None:
    """Raise CorruptionError if the outputs' rows have another fingerprint than the rows that were routed."""
    if arrangement is None or arrangement.fingerprint is None:
        return
    found = sum((fingerprint for fingerprint in written if fingerprint is not None), Fingerprint())
    if found != arrangement.fingerprint:
        raise CorruptionError(
            f"the rows that were laid out have the fingerprint {arrangement.fingerprint}, what was written {found}: "
            "nothing is committed. Run the compaction again; if it fails again, look at this machine's memory and disks"
        )


def forget_runs(bench: Workbench, arrangement: Arrangement | None) -> None:
    """Delete this session's exchange files, once its outputs are in force. A vacuum deletes what is left."""
    if arrangement is not None:
        with contextlib.suppress(DeltaCompactError):
            bench.store.delete(list({*arrangement.objects, *bench.on_their_way}))
