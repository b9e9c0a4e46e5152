"""The last round: fold the rest, decide what becomes of each file, assign pointers, write the table's next index.

    dedupe            the last deltas are folded: now it is known which rows live
    decide            keep 14, rewrite 15 and the deltas into outputs 17 and 18
    assign pointers   each live row of a rewritten file gets its rank; the rank gives its output and row
    write index       with the pointers that readers will follow
    record            counts, live rows, decision, masks and index: sessions/<id>/round-00002.json

Outputs and index are written at the same time, because the ranks tell both where every row goes. An attempt that
resumes the session after the record follows the recorded decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from deltacompact.base.errors import CorruptionError
from deltacompact.base.model import ObjectRef
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.executors.executor import SubmittedTask
from deltacompact.index.primary_key_index import IndexManifest, read_manifest
from deltacompact.index.remap import RelocatedFile, Relocation
from deltacompact.planning.outputs import OutputDecision, OutputPlan, follow, plan_outputs
from deltacompact.planning.sizing import fits_exchange
from deltacompact.session.all_to_all import gather, scatter
from deltacompact.session.output_tasks import MasksOf, submit_output
from deltacompact.session.records import completion, round_name, understood
from deltacompact.session.rounds import BetweenRounds, Deduped, dedupe_round
from deltacompact.session.workbench import Workbench
from deltacompact.steps.assign_pointers import FoldedBuckets, IndexResult, IndexTask, assign, survivors, write_index
from deltacompact.steps.dedupe import FoldCounts
from deltacompact.steps.shuffle import ParcelLayout


@dataclass(frozen=True, slots=True)
class LastRound:
    """The state after the last round: the index is written, only outputs may be missing.

    `under_way` has the tasks of outputs that this attempt has submitted already.
    """

    index: ObjectRef
    counts: FoldCounts
    outputs: OutputPlan
    masks_of: MasksOf
    under_way: Mapping[ChainFileNumber, SubmittedTask] = field(default_factory=dict)


def fold_last_round(bench: Workbench, before: BetweenRounds) -> LastRound:
    """Fold the remaining deltas, decide about each file, write the index, and record all of it."""
    round_ = bench.plan.rounds[-1]
    deduped = dedupe_round(bench, round_, before)
    outputs = plan_outputs(bench.plan, deduped.live)
    masks = [(bench.paths("index", ".masks.arrow")(), group.ordinals.tolist()) for group in outputs.groups]
    masks_of = _by_ordinal(masks)
    ranked = _assign_pointers(bench, outputs, deduped, [path for path, _ in masks])
    deduped = deduped.without_died()
    writing = _submit_index(bench, outputs, deduped, ranked)
    under_way = {output.number: submit_output(bench, output, outputs, masks_of) for output in outputs.outputs}
    index = bench.put_manifest(_index_written(bench, writing, outputs, deduped.counts, masks_of))
    decided = {
        "counts": asdict(deduped.counts),
        "live": deduped.live.tolist(),
        "masks": masks,
        "outputs": outputs.decision.to_json(),
    }
    record = bench.records.put(round_name(round_.number), {**completion(bench.plan, round_, index), **decided})
    return replace(_recorded(bench, record), under_way=under_way)


def resumed_last_round(bench: Workbench) -> LastRound | None:
    """The last round of an earlier attempt, if recorded. Raises UnresumableError where one of its objects is gone."""
    record = bench.records.earlier(round_name(len(bench.plan.rounds)))
    if record is None:
        return None
    last = _recorded(bench, record)
    bench.records.check_there(dict.fromkeys([last.index.path, *last.masks_of.values()]))
    bench.records.check_there(dict.fromkeys(read_manifest(bench.store, last.index).paths))
    return last


def _recorded(bench: Workbench, record: Mapping[str, Any]) -> LastRound:
    """The recorded last round. The recorded decision counts, even if we would decide otherwise today."""
    with understood(len(bench.plan.rounds)):
        counts, live = FoldCounts(**record["counts"]), np.array(record["live"], np.int64)
        outputs = follow(OutputDecision.from_json(record["outputs"]), bench.plan, live)
        index = ObjectRef(**record["index_version"])
        return LastRound(index, counts, outputs, _by_ordinal(record["masks"]))


def _by_ordinal(masks: Sequence[tuple[str, Sequence[int]]]) -> MasksOf:
    return {Ordinal(ordinal): path for path, ordinals in masks for ordinal in ordinals}


# Pointer assignment


def _assign_pointers(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, masks_paths: Sequence[str]
) -> list[SubmittedTask]:
    """Step 3: a task for each group of source files returns the ranks as parcels and stores the files' masks."""
    if not outputs.groups:
        return []
    sources = ParcelLayout.of(len(outputs.groups), len(outputs.groups), bench.plan.capacity.node_slots)
    exchange = _exchange(bench, outputs)
    survivors_sent = _send_survivors(bench, outputs, deduped, sources, exchange)
    receivers = (
        (bench.paced, number, group, path, deduped.layout.parcels, exchange, bench.plan.options.limits.reading)
        for number, (group, path) in enumerate(zip(outputs.groups, masks_paths, strict=True))
    )
    ranked = gather(bench.executor, sources, assign, receivers, survivors_sent, returns=deduped.layout.parcel_count)
    bench.stages.wait("assign_pointers", [*survivors_sent, *ranked], outputs.rows_rewritten)
    return ranked


def _exchange(bench: Workbench, outputs: OutputPlan) -> Callable[[], str] | None:
    """Makes paths of files that carry survivors and ranks between tasks; None where the object store has room."""
    if fits_exchange(outputs.rows_rewritten, bench.plan.capacity.object_store_bytes, bench.plan.options.limits):
        return None
    return bench.paths("index", ".exchange.arrow")


def _send_survivors(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, sources: ParcelLayout, exchange: Callable[[], str] | None
) -> list[SubmittedTask]:
    """Each group of buckets sends every group of source files its live rows and its dead rows."""
    group_of = outputs.pointers.group_of
    senders = (
        (bench.paced, buckets, entries, died, group_of, sources.parcel_starts, exchange)
        for buckets, entries, died in zip(_folded_buckets(bench, deduped), deduped.entries, deduped.died, strict=True)
    )
    return scatter(bench.executor, sources, survivors, senders, nodes=deduped.layout)


def _folded_buckets(bench: Workbench, deduped: Deduped) -> list[FoldedBuckets]:
    encoding, limits = bench.plan.encoding, bench.plan.options.limits
    return [
        FoldedBuckets(encoding, group, buckets, deduped.index, limits.chunk_entries, limits.reading)
        for group, buckets in enumerate(deduped.layout.tasks)
    ]


# The index


def _submit_index(
    bench: Workbench, outputs: OutputPlan, deduped: Deduped, ranked: Sequence[SubmittedTask]
) -> list[SubmittedTask]:
    """Submit the tasks that write the entries with their final pointers."""
    plan = bench.plan
    rows_per_file = plan.options.rows_per_primary_key_index_file
    paths = bench.paths("index", ".arrow")
    receivers = (
        (bench.paced, IndexTask(buckets, outputs.pointers, rows_per_file, plan.expired_position), paths, entries)
        for buckets, entries in zip(_folded_buckets(bench, deduped), deduped.entries, strict=True)
    )
    return gather(bench.executor, deduped.layout, write_index, receivers, ranked)


def _index_written(
    bench: Workbench, writing: Sequence[SubmittedTask], outputs: OutputPlan, counts: FoldCounts, masks_of: MasksOf
) -> IndexManifest:
    """Wait for the index and make its manifest: one run, or the runs of the base and one more."""
    plan, base = bench.plan, bench.plan.base_manifest
    bench.stages.wait("write_index", writing, int(outputs.live.sum()), overlapping=True)
    results: list[IndexResult] = [bench.executor.get(task.values[0]) for task in writing]
    run = tuple(bucket for result in results for bucket in result.files)
    if base is not None and plan.changes_only:
        runs = (*base.runs, run) if any(run) else base.runs
        relocations = (*base.relocations, *_relocation(outputs, masks_of))
        return IndexManifest(plan.encoding, runs, counts.live, counts.tombstones, relocations=relocations)
    rows, tombstones = sum(result.rows for result in results), sum(result.tombstones for result in results)
    if rows != counts.live:
        raise CorruptionError(f"the index has {rows} live rows, the files have {counts.live}")
    return IndexManifest(plan.encoding, (run,), rows, tombstones)


def _relocation(outputs: OutputPlan, masks_of: MasksOf) -> tuple[Relocation, ...]:
    """Where the rows of rewritten base files go. Base files are ranked first."""
    files = tuple(
        RelocatedFile(ChainFileNumber(source.file.number), source.file.rows, masks_of[source.ordinal], source.ordinal)
        for source, _ in outputs.rewritten
        if source.in_base
    )
    pointers = outputs.pointers
    return (Relocation(files, pointers.first_output_number, pointers.rows_per_output),) if files else ()
