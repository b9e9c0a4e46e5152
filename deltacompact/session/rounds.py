"""Rounds: each folds one share of the deltas into the index of the session.

    before     the table's index      10 rows live
    round 1    10 rows of deltas       8 superseded     12 live      sessions/<id>/round-00001.json
    round 2     6 rows of deltas       1 deleted        17 live      sessions/<id>/round-00002.json

A recorded round is not folded again. Its index has session ordinals instead of file numbers, so it is never published.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import CorruptionError
from deltacompact.executors.executor import Handle, SubmittedTask
from deltacompact.index.index_files import IndexFile
from deltacompact.index.primary_key_index import IndexManifest, Run, empty_manifest
from deltacompact.planning.fold_method import FoldMethod, KnownIndex, fold_method
from deltacompact.planning.plan import CompactionPlan, Round
from deltacompact.planning.sizing import driver_time
from deltacompact.session.all_to_all import Relays, Sent, gather, scatter
from deltacompact.session.records import completion, round_name, understood
from deltacompact.session.rehash import rehash
from deltacompact.session.workbench import Workbench
from deltacompact.steps.dedupe import (
    BaseIndex,
    DedupeResult,
    DedupeTask,
    FoldCounts,
    added_up,
    dedupe,
    dedupe_changes,
    dedupe_held,
    dedupe_run,
)
from deltacompact.steps.hash_bucket import SourceSlice, hash_bucket, slices
from deltacompact.steps.shuffle import ParcelLayout


@dataclass(frozen=True, slots=True)
class BetweenRounds:
    """A session between rounds: its index, the counts so far, and the number of live rows by ordinal."""

    index: BaseIndex
    counts: FoldCounts
    live: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deduped:
    """A round after dedupe, before it is recorded.

    index     the index after the round; None: the round did not write it
    entries   by bucket group, the folded entries; None: the task wrote them to the index
    died      by bucket group, the rows of base files that died; None: the method does not return them
    """

    layout: ParcelLayout
    counts: FoldCounts
    live: npt.NDArray[np.int64]
    index: IndexManifest | None
    entries: tuple[Handle | None, ...]
    died: tuple[Handle | None, ...]

    def without_died(self) -> Deduped:
        return replace(self, died=())


def before_the_rounds(bench: Workbench) -> BetweenRounds:
    """The table's index and its counts, rehashed if the plan says so."""
    plan, manifest = bench.plan, bench.plan.base_manifest
    live = np.array([source.file.live_rows if source.in_base else 0 for source in plan.sources], np.int64)
    if manifest is None:
        return BetweenRounds(BaseIndex(empty_manifest(plan.encoding, plan.hash_bucket_count)), FoldCounts(), live)
    if plan.rehash and bench.records.earlier(round_name(1)) is None:
        manifest = _rehashed(bench, manifest)
    return BetweenRounds(
        BaseIndex(manifest, plan.base_ordinals), FoldCounts(live=manifest.rows, tombstones=manifest.tombstones), live
    )


def fold_round(bench: Workbench, round_: Round, before: BetweenRounds) -> BetweenRounds:
    """Fold the deltas of one round, and record the index with session ordinals."""
    deduped = dedupe_round(bench, round_, before)
    assert deduped.index is not None, "only the last round hands its entries over"
    ref = bench.put_manifest(deduped.index)
    folded = {"counts": asdict(deduped.counts), "live": deduped.live.tolist()}
    record = {**completion(bench.plan, round_, ref), **folded}
    stored = bench.records.put(round_name(round_.number), record)
    if stored == record:
        return BetweenRounds(BaseIndex(deduped.index), deduped.counts, deduped.live)
    return _recorded(bench, round_, stored)


def resumed_round(bench: Workbench, round_: Round) -> BetweenRounds | None:
    """A round of an earlier attempt, if recorded. Raises UnresumableError if an object of its index is gone."""
    record = bench.records.earlier(round_name(round_.number))
    if record is None:
        return None
    folding = _recorded(bench, round_, record)
    bench.records.check_there(dict.fromkeys(folding.index.manifest.paths))
    return folding


def dedupe_round(bench: Workbench, round_: Round, before: BetweenRounds) -> Deduped:
    """Steps 1 and 2: hash the round's files, and fold their entries into the index."""
    plan, manifest = bench.plan, before.index.manifest
    method = fold_method(plan, round_, KnownIndex.of(manifest))
    layout = ParcelLayout.of(plan.hash_bucket_count, plan.bucket_groups(round_), plan.capacity.node_slots)
    tasks = _submit_dedupe(bench, round_, method, layout, before)
    bench.stages.wait("dedupe", tasks, plan.rows_of(round_))
    run, counts, live = _folded(bench, method, before, tasks)
    _check_conserved(plan, round_, counts, live)
    runs = (*manifest.runs, run) if method is FoldMethod.ADD_RUN else (run,)
    index = IndexManifest(plan.encoding, runs, counts.live, counts.tombstones, publishable=False)
    return Deduped(
        layout,
        counts,
        live,
        None if method.hands_over else index,
        tuple(task.values[1] if method.hands_over else None for task in tasks),
        tuple(task.values[2] if method is FoldMethod.CHANGES else None for task in tasks),
    )


def _hashed(bench: Workbench, round_: Round, layout: ParcelLayout) -> Sequence[Sent]:
    """Step 1 for a round's files. Raises ConflictError if the session can no longer publish."""
    plan = bench.plan
    several = layout.several(driver_time.parcels_each(layout.parcel_count, plan.options.limits))
    sources = plan.sources[round_.first : round_.stop]
    whole = [SourceSlice(source.file, source.ordinal, source.operation, (0, source.file.rows)) for source in sources]
    fixed = bench.paced, plan.encoding, plan.input.partition
    buckets = plan.hash_bucket_count, several.parcel_starts
    tasks = slices(whole, plan.task_rows)
    senders = [(*fixed, work, *buckets, plan.options.limits.reading) for work in tasks]
    sizes = [sum(stop - start for start, stop in (piece.rows for piece in work)) for work in tasks]
    hashed = scatter(bench.executor, several, hash_bucket, senders, sizes=sizes)
    bench.check_may_publish()  # the tasks work meanwhile; nothing is written before the next step
    relays = Relays(bench.executor, layout, several, hashed, plan.options.limits)
    bench.stages.wait("hash_bucket", hashed, plan.rows_of(round_), relays.ended)
    if relays.tasks:
        bench.stages.wait("hash_bucket", relays.tasks, 0)
    return relays.sent


_DEDUPE: dict[FoldMethod, tuple[Callable[..., Any], int]] = {
    FoldMethod.MERGE: (dedupe, 1),
    FoldMethod.ADD_RUN: (dedupe_run, 1),
    FoldMethod.HOLD: (dedupe_held, 2),
    FoldMethod.CHANGES: (dedupe_changes, 3),
}
"""The step of each method, and how many values it returns."""


def _submit_dedupe(
    bench: Workbench, round_: Round, method: FoldMethod, layout: ParcelLayout, before: BetweenRounds
) -> list[SubmittedTask]:
    """Submit hash bucket and dedupe tasks; wait for the hash bucket tasks only.

    Only this function refers to the parcels of hash bucket tasks, so the object store frees them as dedupe tasks end.
    """
    plan = bench.plan
    hashed = _hashed(bench, round_, layout)
    task = DedupeTask(
        plan.encoding,
        before.index,
        plan.positions,
        plan.tombstone_retention,
        plan.options.rows_per_primary_key_index_file,
        bench.paths("index", ".arrow"),
        plan.options.limits.chunk_entries,
        plan.options.limits.reading,
    )
    step, returns = _DEDUPE[method]
    shared, buckets = bench.share(task), layout.tasks
    receivers = ((bench.paced, shared, group) for group in buckets)
    return gather(bench.executor, layout, step, receivers, hashed, returns, sizes=list(map(len, buckets)))


def _folded(
    bench: Workbench, method: FoldMethod, before: BetweenRounds, tasks: Sequence[SubmittedTask]
) -> tuple[Run, FoldCounts, npt.NDArray[np.int64]]:
    """The new run of the index, the counts of the session so far, and the number of live rows by ordinal.

    Holds one result at a time: each may count the live rows of a million files, and there are hundreds of results.
    """
    run: list[tuple[IndexFile, ...]] = []
    of_round, live = FoldCounts(), np.zeros(len(bench.plan.sources), np.int64)
    for task in _few_results(bench, tasks):
        result: DedupeResult = bench.executor.get(task.values[0])
        task.values[0] = None
        run += result.files
        of_round += result.counts
        live += result.live
    if method.tells_changes:
        of_round += FoldCounts(live=before.counts.live, tombstones=before.counts.tombstones)
        live += before.live
    return tuple(run), replace(before.counts + of_round, live=of_round.live, tombstones=of_round.tombstones), live


def _few_results(bench: Workbench, tasks: Sequence[SubmittedTask]) -> Sequence[SubmittedTask]:
    """These tasks, or fewer that add up the results of several of them."""
    if len(tasks) <= bench.plan.options.limits.results_max:
        return tasks
    each, sums = math.isqrt(len(tasks)), []
    for first in range(0, len(tasks), each):
        part = tasks[first : first + each]
        sums.append(bench.executor.submit(added_up, *(task.values[0] for task in part)))
        for task in part:
            task.values[0] = None
    bench.stages.wait("dedupe", sums, 0)
    return sums


def _check_conserved(plan: CompactionPlan, round_: Round, counts: FoldCounts, live: npt.NDArray[np.int64]) -> None:
    """Check that each base row and each upsert is live, superseded or deleted, and that the counts by file agree."""
    base_rows = plan.base_manifest.rows if plan.base_manifest else 0
    live_by_file = int(live.sum())
    accounted = counts.live + counts.superseded + counts.deleted
    if live_by_file != counts.live or base_rows + counts.upserts != accounted:
        raise CorruptionError(f"round {round_.number}: {base_rows} rows before, {counts}, {live_by_file} live by file")


def _recorded(bench: Workbench, round_: Round, record: Mapping[str, Any]) -> BetweenRounds:
    """A round as another attempt recorded it."""
    with understood(round_.number):
        ref = ObjectRef(**record["index_version"])
        counts, live = FoldCounts(**record["counts"]), np.array(record["live"], np.int64)
    return BetweenRounds(BaseIndex(bench.own_manifest(ref)), counts, live)


def _rehashed(bench: Workbench, manifest: IndexManifest) -> IndexManifest:
    plan, began = bench.plan, time.perf_counter()
    paths = bench.paths("index", ".arrow")
    manifest = rehash(bench.executor, bench.paced, manifest, plan.hash_bucket_count, plan.options, paths)
    bench.stages.took("rehash", time.perf_counter() - began)
    return manifest
