"""Counts what the driver of a cluster does for a session, and how long it takes: tasks, objects, arguments.

work       1.2 M rows in the deltas, 40 M rows to write
capacity   one node of 8 CPUs and 64 GiB
handed     1 hash bucket, 1 round, 13 tasks, …; 0.1 s of the driver
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from deltacompact.base.limits import LIMITS
from deltacompact.index.keys import DIGEST_BYTES, POINTER_BYTES
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import driver_time, index_sizes, task_counts, task_memory


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """The work of a session.

    delta_rows       rows of the deltas
    merged_entries   entries of the base's index that are folded with them; 0 if the index gets a run
    written_rows     rows of the rewritten files,
    written_bytes    and their decoded bytes
    rounds           0: as many as the object store makes necessary, but not more than files
    files            files in the deltas
    hash_buckets     0: as many as planning.sizing plans
    entry_bytes      bytes of an index entry: 32 without a sort key
    """

    delta_rows: int
    merged_entries: int
    written_rows: int
    written_bytes: float
    rounds: int = 0
    files: int = 10
    hash_buckets: int = 0
    entry_bytes: int = DIGEST_BYTES + POINTER_BYTES

    @classmethod
    def full(cls, rows: int, row_bytes: float, files: int = 10, hash_buckets: int = 0) -> CompactionWork:
        """The first compaction of a table: all rows come in deltas. `row_bytes`: decoded bytes of a row."""
        return cls(rows, 0, rows, rows * row_bytes, files=files, hash_buckets=hash_buckets)


@dataclass(frozen=True, slots=True)
class Handed:
    """What a driver hands out, and the seconds that it takes. `objects`: those that tasks return."""

    hash_buckets: int
    rounds: int
    round_rows: int
    task_rows: int
    tasks: int
    objects: int
    driver_s: float


def capacity_of(nodes: int, cpus: int, memory_bytes: int) -> Capacity:
    """The capacity of a cluster. `cpus`, `memory_bytes`: of each node."""
    heap, store = task_memory.node_memory(memory_bytes)
    return Capacity(nodes * cpus, heap // cpus, store * nodes, (cpus,) * nodes)


def handed_out(work: CompactionWork, capacity: Capacity) -> Handed:
    """The tasks of a session, as planning.sizing plans them."""
    rows, entry_bytes, memory = work.delta_rows, work.entry_bytes, capacity.memory_per_task_bytes
    nodes, slots = len(capacity.node_slots), capacity.slots
    entries = rows + work.merged_entries
    buckets = work.hash_buckets or index_sizes.hash_bucket_count(entries, entry_bytes, memory, LIMITS)
    rounds = work.rounds or _rounds(work, capacity)
    round_rows = rows // rounds
    task_rows = task_counts.task_rows(round_rows, slots, nodes, buckets, entry_bytes, memory, LIMITS)
    hash_tasks = math.ceil(round_rows / task_rows)
    in_files = task_counts.exchanges_in_files(entries, nodes, capacity.object_store_bytes, LIMITS)
    returns = 1 if in_files else nodes
    groups, last_groups = (
        task_counts.bucket_groups(buckets, round_rows, slots, nodes, hash_tasks, LIMITS, objects)
        for objects in (1, returns)
    )
    last_groups = min(buckets, max(last_groups, task_counts.pointer_groups(entries, buckets, memory)))
    source_groups = task_counts.source_groups(work.written_rows, slots, nodes, last_groups, memory, LIMITS, in_files)
    # Each task returns a parcel for each node, or for several, and relays one for each. Each task of the next stage
    # gets one parcel from each of them. Where the last exchange goes through files, a task names one, and all tasks of
    # the next stage share the list of names.
    senders = driver_time.relayed_senders(hash_tasks, slots, nodes, LIMITS)
    parcels, batches = driver_time.parcels_each(nodes, LIMITS), math.ceil(hash_tasks / senders)
    relays = parcels * batches if senders > 1 else 0
    objects = rounds * (parcels * hash_tasks + (nodes * batches if relays else 0)) + returns * (
        last_groups + source_groups
    )
    exchanged = source_groups + last_groups if in_files else 2 * last_groups * source_groups
    arguments = rounds * (batches * groups + (parcels * hash_tasks if relays else 0)) + exchanged
    tasks = rounds * (hash_tasks + relays + groups) + 2 * last_groups + source_groups
    driver_s = driver_time.driver_s(objects, arguments, tasks)
    return Handed(buckets, rounds, round_rows, task_rows, tasks, objects, driver_s)


def _rounds(work: CompactionWork, capacity: Capacity) -> int:
    """As many rounds as the object store makes necessary. A round has at least one whole file."""
    per_round = index_sizes.round_rows_max(capacity.object_store_bytes, work.entry_bytes)
    return max(1, min(work.files, math.ceil(work.delta_rows / per_round)))


_STEP = 2**0.5


@functools.lru_cache(maxsize=65_536)
def driver_s(rows: int, capacity: Capacity) -> float:
    """The driver's seconds for a full compaction of `rows`.

    Where rows begin another wave or round, the number of tasks jumps, and may fall. Planning needs a value that never
    falls with more rows, so this is the greatest value over a ladder of sizes, up to the first step of at least `rows`.
    """
    size, most = 1_000_000.0, 0.0
    while True:
        work = CompactionWork.full(int(size), 0.0, files=1_000_000)
        most = max(most, handed_out(work, capacity).driver_s)
        if size >= rows:
            return most
        size *= _STEP
