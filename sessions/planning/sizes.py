"""Hash buckets, rehash and rounds of a session on a given machine or cluster: the engine's arithmetic, with reasons.

index of 8 buckets, 2,000 M entries, 4.8 GiB a task   ->  a bucket takes 2.7 times a task's memory
                                                      ->  rehash first, to 45 buckets of about half
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deltacompact.base.limits import LIMITS
from deltacompact.base.wording import counted, size
from deltacompact.iceberg.marks.finding import KEYS_PER_BUCKET
from deltacompact.planning.sizing import index_sizes, task_counts, task_memory
from deltacompact.planning.statistics import PartitionStatistics
from sessions.base.model import Choice
from sessions.planning.reasons import PlanReason
from sessions.planning.statistics import BranchStatistics

_KEY_BYTES = 100
"""Memory of a deleted key in a task that searches data files for it."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a session has to itself.

    slots             tasks at a time
    shared_process    all tasks share one process, which may take `bound_bytes` in all
    reads_less        a task reads less at a time than usual if it would take too much memory otherwise
    """

    slots: int
    nodes: int
    node_memory_bytes: int
    memory_per_task_bytes: int
    object_store_bytes: int
    shared_process: bool
    bound_bytes: int = 0
    reads_less: bool = False


@dataclass(frozen=True, slots=True)
class SessionSizes:
    """What a session decides by the size of its input.

    adds_run      the index gets one more run, and is not merged
    peak_bytes    planned memory of the largest process
    """

    hash_buckets: int
    rehash: bool
    rounds: int
    adds_run: bool
    task_rows: int
    peak_task_bytes: int
    peak_bytes: int
    choices: tuple[Choice, ...]


def sizes_of(
    given: PartitionStatistics, on: Resources, hash_buckets: int | None = None, rows_per_round: int | None = None
) -> SessionSizes:
    """The sizes of a session. `hash_buckets` and `rows_per_round` are those of the document, if it asks for some."""
    if isinstance(given, BranchStatistics):
        return _of_branch(given, on)
    per_round = rows_per_round or index_sizes.round_rows_max(on.object_store_bytes, given.entry_bytes)
    ends = index_sizes.rounds(given.delta_file_rows, per_round) or [0]
    starts = [0, *ends[:-1]]
    round_rows = max(sum(given.delta_file_rows[start:end]) for start, end in zip(starts, ends, strict=True))
    buckets = _hash_buckets(given, on, round_rows, hash_buckets)
    rehash = _rehash(given, buckets)
    adds_run = len(ends) == 1 and not rehash.value and _adds_run(given, on)
    task_rows = task_counts.task_rows(
        round_rows, on.slots, on.nodes, int(buckets.value), given.entry_bytes, on.memory_per_task_bytes, LIMITS
    )
    peak = _within(given, on, _peak_task_bytes(given, on, int(buckets.value), round_rows, task_rows, adds_run))
    at_once = on.slots if on.shared_process else 1
    return SessionSizes(
        int(buckets.value),
        bool(rehash.value),
        len(ends),
        adds_run,
        task_rows,
        peak,
        task_memory.TASK_BASE_BYTES + at_once * (peak - task_memory.TASK_BASE_BYTES),
        (buckets, rehash, _rounds(len(ends), round_rows, rows_per_round)),
    )


def _of_branch(given: BranchStatistics, on: Resources) -> SessionSizes:
    """A branch of an Iceberg table has no index. A task holds one bucket of deleted keys, or writes row groups."""
    buckets = max(1, math.ceil(given.key_rows / KEYS_PER_BUCKET))
    keys_bytes = math.ceil(given.key_rows / buckets) * _KEY_BYTES
    reading = task_memory.peak_task_bytes(0, 0, given.entry_bytes, given.read_bytes, LIMITS)
    peak = _within(given, on, reading + keys_bytes)
    at_once = on.slots if on.shared_process else 1
    whole = task_memory.TASK_BASE_BYTES + at_once * (peak - task_memory.TASK_BASE_BYTES)
    return SessionSizes(buckets, False, 1, True, max(1, given.delta_rows), peak, whole, ())


def _within(given: PartitionStatistics, on: Resources, peak: int) -> int:
    """The peak of a task. A process that reads less keeps within its memory, unless single rows are too wide."""
    if not on.reads_less:
        return peak
    undivided = task_memory.TASK_BASE_BYTES + 4 * given.undivided_bytes
    return min(peak, max(on.memory_per_task_bytes, undivided))


def _hash_buckets(given: PartitionStatistics, on: Resources, round_rows: int, asked: int | None) -> Choice:
    memory, rows = on.memory_per_task_bytes, given.entries
    if asked is not None:
        return Choice("hash_buckets", asked, PlanReason.ASKED_FOR, f"the document asks for {asked:,}")
    foldable = _foldable(given, on, round_rows)
    if given.index and given.index.hash_buckets >= foldable:
        kept = given.index.hash_buckets
        if not index_sizes.must_rehash(rows, kept, given.entry_bytes, memory):
            return Choice("hash_buckets", kept, PlanReason.INHERITED, f"the index has {kept:,}, and each fits a task")
    recommended = index_sizes.hash_bucket_count(rows, given.entry_bytes, memory)
    count = max(recommended, foldable)
    if count > math.ceil(rows / index_sizes.rows_per_bucket(given.entry_bytes, memory)) and count == recommended:
        text = f"{rows:,} rows are few: as many buckets as keep a machine busy"
        return Choice("hash_buckets", count, PlanReason.SMALL_TABLE, text)
    text = f"a bucket of {rows // count:,} entries takes half of a task's {size(memory)}"
    return Choice("hash_buckets", count, PlanReason.HALF_OF_MEMORY, text)


def _foldable(given: PartitionStatistics, on: Resources, round_rows: int) -> int:
    """The least number of hash buckets with which a task can fold what one round brings to one bucket."""
    free = on.memory_per_task_bytes - task_memory.TASK_BASE_BYTES - 4 * LIMITS.chunk_entries * given.entry_bytes
    return math.ceil(round_rows * given.entry_bytes * task_memory.DEDUPE_COPIES / free) if free > 0 else 1


def _rehash(given: PartitionStatistics, buckets: Choice) -> Choice:
    if given.index is None:
        return Choice("rehash", False, PlanReason.NO_INDEX, "there is no index yet")
    before = given.index.hash_buckets
    if before == buckets.value:
        return Choice(
            "rehash",
            False,
            PlanReason.BUCKETS_FIT,
            f"{counted(before, 'bucket')} still {'fits' if before == 1 else 'fit'}",
        )
    if buckets.reason == PlanReason.ASKED_FOR:
        return Choice(
            "rehash", True, PlanReason.ASKED_FOR, f"from {counted(before, 'hash bucket')} to {buckets.value:,}"
        )
    text = (
        f"each of {before:,} would take more than 90 % of a task's memory: of {buckets.value:,} each takes about half"
    )
    return Choice("rehash", True, PlanReason.BUCKETS_TOO_LARGE, text)


def _rounds(count: int, rows: int, asked: int | None) -> Choice:
    if count == 1:
        return Choice("rounds", 1, PlanReason.FITS_OBJECT_STORE, f"{rows:,} delta rows fit the object store together")
    reason = PlanReason.ASKED_FOR if asked else PlanReason.EXCEEDS_OBJECT_STORE
    return Choice("rounds", count, reason, f"{rows:,} delta rows at most in a round")


def _adds_run(given: PartitionStatistics, on: Resources) -> bool:
    index = given.index
    if index is None or not index.mergeable or not index.runs:
        return False
    first, *above = index.runs
    masks = index.mask_bytes + given.base_rows // 8
    return index_sizes.adds_run(
        first, above, given.delta_rows, masks, given.entry_bytes, on.memory_per_task_bytes, LIMITS
    )


def _peak_task_bytes(
    given: PartitionStatistics, on: Resources, buckets: int, round_rows: int, task_rows: int, adds_run: bool
) -> int:
    pointed = given.delta_rows + (0 if adds_run or not given.index else given.index.entries)
    tasks = math.ceil(round_rows / task_rows)
    returns = 1 if task_counts.exchanges_in_files(pointed, on.nodes, on.object_store_bytes, LIMITS) else on.nodes
    groups = max(
        task_counts.bucket_groups(buckets, round_rows, on.slots, on.nodes, tasks, LIMITS, returns),
        task_counts.pointer_groups(pointed, buckets, on.memory_per_task_bytes),
    )
    bucket_rows, pointer_rows = math.ceil(round_rows / buckets), math.ceil(pointed / groups)
    return task_memory.peak_task_bytes(
        task_rows, bucket_rows, given.entry_bytes, given.read_bytes, LIMITS, pointer_rows
    )
