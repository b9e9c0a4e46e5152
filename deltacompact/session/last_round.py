"""The last round: fold the rest, decide what becomes of each file, assign pointers, write the table's next index.

    dedupe            the last deltas are folded: now it is known which rows live
    decide            keep 14, rewrite 15 and the deltas into outputs 17 and 18
    assign pointers   each live row of a rewritten file gets its rank; the rank gives its output and row
    lay out           in a clustered table, a split tree gives each rank another output and row (arranging.py)
    write index       with the pointers that readers will follow
    record            counts, live rows, decision, masks and index: sessions/<id>/round-00002.json

Outputs and index are written at the same time, because the ranks tell both where every row goes. An attempt that
resumes the session after this record follows the recorded decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import CorruptionError
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.executors.executor import Handle, SubmittedTask
from deltacompact.index.primary_key_index import IndexManifest, read_manifest
from deltacompact.index.remap import Moves, RelocatedFile, Relocation
from deltacompact.planning.outputs import OutputDecision, OutputPlan, follow, plan_outputs
from deltacompact.session.all_to_all import Inputs, files_of, gather, scatter
from deltacompact.session.arranged_outputs import missing_outputs
from deltacompact.session.arranging import lay_out
from deltacompact.session.cell_routing import RoutedGroups
from deltacompact.session.output_tasks import MasksOf, OutputTasks
from deltacompact.session.records import completion, round_name, understood
from deltacompact.session.rounds import BetweenRounds, Deduped, dedupe_round
from deltacompact.session.workbench import Workbench
from deltacompact.session.written_ranges import written_ranges
from deltacompact.steps.assign_pointers import (
    IndexResult,
    LastIndex,
    assign,
    assign_in_files,
    survivors,
    survivors_in_files,
    write_index,
)
from deltacompact.steps.dedupe import FoldCounts
from deltacompact.steps.shuffle import ParcelLayout


@dataclass(frozen=True, slots=True)
class LastRound:
    """The state after the last round: the index is written, only outputs may be missing.

    `under_way` are the output tasks that this attempt has submitted already.
    """

    index: ObjectRef
    counts: FoldCounts
    outputs: OutputPlan
    masks_of: MasksOf
    under_way: OutputTasks = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """The tasks that ranked survivors. Their values are parcels of ranks, unless `files` names files."""

    tasks: list[SubmittedTask]
    files: Handle | None = None


def fold_last_round(bench: Workbench, before: BetweenRounds) -> LastRound:
    """Fold the remaining deltas, decide about each file, write the index, and record all of it."""
    round_ = bench.plan.rounds[-1]
    deduped = dedupe_round(bench, round_, before)
    written = written_ranges(bench, deduped.live)
    outputs = plan_outputs(bench.plan, deduped.live, written)
    masks = [(bench.paths("index", ".masks.arrow")(), group.ordinals.tolist()) for group in outputs.groups]
    masks_of = _by_ordinal(masks)
    shared = bench.share(_last_index(bench, outputs, deduped))
    ranked = _assign_pointers(bench, outputs, deduped, shared, [path for path, _ in masks])
    deduped = deduped.without_died()
    moves: tuple[Moves, ...] = ()
    routed: RoutedGroups | None = None
    if (
        written is not None
        and outputs.outputs
        and (laid_out := lay_out(bench, outputs, masks_of, ranked.tasks, written))
    ):
        outputs, moves, routed = laid_out.outputs, laid_out.moves, laid_out.routed
        ranked = _handed(bench, laid_out.moved)
        shared = bench.share(_last_index(bench, outputs, deduped))
    writing = _submit_index(bench, shared, deduped, ranked)
    under_way = missing_outputs(bench, outputs.outputs, outputs, masks_of, routed)
    is_ours = False
    try:
        index = bench.put_manifest(_index_written(bench, writing, outputs, deduped.counts, masks_of, moves))
        decided = {
            "counts": asdict(deduped.counts),
            "live": deduped.live.tolist(),
            "masks": masks,
            "outputs": outputs.decision.to_json(),
        }
        record = {**completion(bench.plan, round_, index), **decided}
        stored = bench.records.put(round_name(round_.number), record)
        is_ours = stored is record
    finally:
        if not is_ours:  # it failed, or another attempt's record counts: nobody will wait for these tasks
            bench.executor.cancel([task.stats for task in under_way])
    if is_ours:
        return LastRound(index, deduped.counts, outputs, masks_of, under_way)
    return _recorded(bench, stored)


def resumed_last_round(bench: Workbench) -> LastRound | None:
    """The last round of an earlier attempt, if recorded. Raises UnresumableError if one of its objects is gone."""
    record = bench.records.earlier(round_name(len(bench.plan.rounds)))
    if record is None:
        return None
    last = _recorded(bench, record)
    routed = last.outputs.decision.arranged.objects if last.outputs.decision.arranged else ()
    bench.records.check_there(dict.fromkeys([last.index.path, *last.masks_of.values(), *routed]))
    bench.records.check_there(dict.fromkeys(read_manifest(bench.store, last.index).paths))
    return last


def _recorded(bench: Workbench, record: Mapping[str, Any]) -> LastRound:
    """The recorded last round. Its decision counts, even if this release would decide otherwise."""
    with understood(len(bench.plan.rounds)):
        counts, live = FoldCounts(**record["counts"]), np.array(record["live"], np.int64)
        outputs = follow(OutputDecision.from_json(record["outputs"]), bench.plan, live)
        index = ObjectRef(**record["index_version"])
        return LastRound(index, counts, outputs, _by_ordinal(record["masks"]))


def _by_ordinal(masks: Sequence[tuple[str, Sequence[int]]]) -> MasksOf:
    return {Ordinal(ordinal): path for path, ordinals in masks for ordinal in ordinals}


# Pointer assignment


def _last_index(bench: Workbench, outputs: OutputPlan, deduped: Deduped) -> LastIndex:
    plan, limits = bench.plan, bench.plan.options.limits
    rows_per_file = plan.options.rows_per_primary_key_index_file
    sizes = rows_per_file, plan.expired_position, limits.chunk_entries
    return LastIndex(plan.encoding, deduped.index, outputs.pointers, *sizes, limits.reading)


def _assign_pointers(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, last: Handle, masks_paths: Sequence[str]
) -> Ranked:
    """Step 3: a task for each group of source files returns the ranks as parcels and stores the files' masks."""
    if not outputs.groups:
        return Ranked([])
    handed = zip(deduped.layout.tasks, deduped.entries, deduped.died, strict=True)
    senders = [(bench.paced, last, buckets, entries, died) for buckets, entries, died in handed]
    receivers = [
        (bench.paced, number, group, path, bench.plan.options.limits.reading)
        for number, (group, path) in enumerate(zip(outputs.groups, masks_paths, strict=True))
    ]
    by = _by_files if bench.plan.exchanges_in_files else _by_parcels
    return by(bench, outputs, deduped, senders, receivers)


def _by_parcels(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, senders: Sequence[Inputs], receivers: Sequence[Inputs]
) -> Ranked:
    """Assign pointers with parcels: the object store has room for survivors and ranks."""
    executor, layout = bench.executor, deduped.layout
    sources = ParcelLayout.of(len(receivers), len(receivers), bench.plan.capacity.node_slots)
    to_send = [(*inputs, sources.parcel_starts) for inputs in senders]
    sent = scatter(executor, sources, survivors, to_send, nodes=layout)
    to_rank = [(*inputs, layout.parcels) for inputs in receivers]
    ranked = gather(executor, sources, assign, to_rank, sent, returns=layout.parcel_count)
    bench.stages.wait("assign_pointers", [*sent, *ranked], outputs.rows_rewritten)
    return Ranked(ranked)


def _by_files(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, senders: Sequence[Inputs], receivers: Sequence[Inputs]
) -> Ranked:
    """Assign pointers through files: tasks hand over file names, so the driver's work grows with tasks alone."""
    executor, paths = bench.executor, bench.paths("index", ".exchange.arrow")
    sources = ParcelLayout.of(len(receivers), len(receivers), bench.plan.capacity.node_slots)
    to_send = [(*inputs, len(receivers), paths) for inputs in senders]
    sizes = [len(buckets) for buckets in deduped.layout.tasks]
    sent = scatter(executor, sources, survivors_in_files, to_send, nodes=deduped.layout, sizes=sizes, in_files=True)
    bench.stages.wait("assign_pointers", sent, outputs.rows_rewritten // 2)
    to_rank = [(*inputs, paths) for inputs in receivers]
    files = bench.share(files_of(executor, sent))
    ranked = gather(executor, sources, assign_in_files, to_rank, sent, files=files)
    bench.stages.wait("assign_pointers", ranked, outputs.rows_rewritten - outputs.rows_rewritten // 2)
    return _handed(bench, ranked)


def _handed(bench: Workbench, ranked: list[SubmittedTask]) -> Ranked:
    """These tasks, which have ended, and the names of their files if ranks go through files."""
    return Ranked(ranked, bench.share(files_of(bench.executor, ranked)) if bench.plan.exchanges_in_files else None)


# The index


def _submit_index(bench: Workbench, last: Handle, deduped: Deduped, ranked: Ranked) -> list[SubmittedTask]:
    """Submit the tasks that write the entries with their final pointers."""
    layout, paths = deduped.layout, bench.paths("index", ".arrow")
    handed = enumerate(zip(layout.tasks, deduped.entries, strict=True))
    receivers = [(bench.paced, last, group, buckets, paths, entries) for group, (buckets, entries) in handed]
    sizes = [len(buckets) for buckets in layout.tasks]
    return gather(bench.executor, layout, write_index, receivers, ranked.tasks, sizes=sizes, files=ranked.files)


def _index_written(
    bench: Workbench,
    writing: Sequence[SubmittedTask],
    outputs: OutputPlan,
    counts: FoldCounts,
    masks_of: MasksOf,
    moves: tuple[Moves, ...],
) -> IndexManifest:
    """Wait for the index and make its manifest: one run, or the runs of the base and one more."""
    plan, base = bench.plan, bench.plan.base_manifest
    bench.stages.wait("write_index", writing, int(outputs.live.sum()), overlapping=True)
    results: list[IndexResult] = [bench.executor.get(task.values[0]) for task in writing]
    run = tuple(bucket for result in results for bucket in result.files)
    if base is not None and plan.changes_only:
        runs = (*base.runs, run) if any(run) else base.runs
        relocations = (*base.relocations, *_relocation(outputs, masks_of, moves))
        return IndexManifest(plan.encoding, runs, counts.live, counts.tombstones, relocations=relocations)
    rows, tombstones = sum(result.rows for result in results), sum(result.tombstones for result in results)
    if rows != counts.live:
        raise CorruptionError(f"the index has {rows} live rows, the files have {counts.live}")
    return IndexManifest(plan.encoding, (run,), rows, tombstones)


def _relocation(outputs: OutputPlan, masks_of: MasksOf, moves: tuple[Moves, ...]) -> tuple[Relocation, ...]:
    """Where the rows of rewritten base files go. Base files are ranked first."""
    files = tuple(
        RelocatedFile(ChainFileNumber(source.file.number), source.file.rows, masks_of[source.ordinal], source.ordinal)
        for source, _ in outputs.rewritten
        if source.in_base
    )
    pointers = outputs.pointers
    return (Relocation(files, pointers.first_output_number, pointers.rows_per_output, moves),) if files else ()
