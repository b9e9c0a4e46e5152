"""How long a session takes on a cluster: arithmetic over measured rates and over the sizes that sizing.py plans.

    rates      seconds of one core: for each row by stage, and for each byte that is written
    work       1.2 M rows in the deltas, 40 M rows of 60 bytes to write, 1 round
    capacity   one node of 8 CPUs and 64 GiB
    predict    -> 2.8 s: writing 2.0, pointers 0.3, the driver …; 1 hash bucket, 1 round, 13 tasks

The rates come from runs on machines of the kind that is asked about: `rates_of` takes their medians. FIRST_RATES serve
until there are some. What is left out: waiting for S3 where the measured runs did not, and stragglers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.model import OperationType
from deltacompact.index.keys import DIGEST_BYTES, POINTER_BYTES
from deltacompact.planning import sizing
from deltacompact.planning.plan import Capacity, CompactionPlan

DECODED = 4
"""A file is taken to be so many times its size at rest when it is decoded, where nobody has measured it."""

READ_BYTES = 128 << 20
"""Of row groups that a task decodes, four of 32 MiB."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A full compaction that was measured: input rows of so many decoded bytes each, wall-clock seconds by stage.

    `stages_s` has the names of SessionResult.seconds. `hash_buckets` 0: as many as sizing.py recommends.
    """

    name: str
    rows: int
    row_bytes: float
    cores: int
    seconds: float
    stages_s: Mapping[str, float]
    hash_buckets: int = 0

    def core_s_per_row(self, *stages: str) -> float:
        """Seconds of one core for each input row in these stages together."""
        return sum(self.stages_s.get(stage, 0.0) for stage in stages) * self.cores / self.rows


@dataclass(frozen=True, slots=True)
class Rates:
    """What rows and bytes cost, in seconds of one core.

    hash_row_s       a delta row in step 1
    dedupe_row_s     an entry that is folded, each time
    pointer_row_s    a written row in pointer assignment
    write_row_s      a written row, with its entry in the index,
    write_byte_s     and each of its decoded bytes
    session_s        wall-clock seconds of the driver between stages, for each session
    """

    hash_row_s: float
    dedupe_row_s: float
    pointer_row_s: float
    write_row_s: float
    write_byte_s: float
    session_s: float = 0.0


FIRST_RATES = Rates(1.5e-7, 2.4e-7, 5e-8, 3e-7, 1.6e-9, 0.5)
"""Where nothing was measured yet: rounded, of a machine of 2 cores with a local disk. A start, not a promise."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a session has to do.

    delta_rows       rows of the deltas
    merged_entries   entries of the base's index that are folded with them: none where the index gets a run
    written_rows     rows of the files that are written anew,
    written_bytes    and their bytes, decoded
    rounds           0: as many as the object store makes necessary, and no more than there are
    files            files in the deltas
    hash_buckets     0: as many as sizing.py recommends
    entry_bytes      of a row in the index: 32 without a sort key
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
    def full(cls, rows: int, row_bytes: float, files: int = 10, hash_buckets: int = 0) -> Work:
        """The first compaction of a table: all rows come in deltas, of so many decoded bytes each."""
        return cls(rows, 0, rows, rows * row_bytes, files=files, hash_buckets=hash_buckets)

    @classmethod
    def of(cls, plan: CompactionPlan) -> Work:
        """The most that a plan may come to: before rows are folded, any base file may have to be written anew."""
        files = [source.file for source in plan.sources if source.operation is OperationType.UPSERT]
        deltas = [source.file.rows for source in plan.sources if not source.in_base]
        decoded = sum(DECODED * file.bytes if file.decoded_bytes is None else file.decoded_bytes for file in files)
        return cls(
            sum(deltas),
            0 if plan.changes_only else plan.base_rows,
            sum(file.rows for file in files),
            decoded,
            len(plan.rounds),
            len(deltas),
            plan.hash_bucket_count,
            plan.encoding.entry_bytes,
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Wall-clock seconds of a session, and what they are made of.

    `stages_s` are those of the tasks, `driver_s` those of the driver for tasks and objects; `task_bytes` is the planned
    memory of the largest task.
    """

    seconds: float
    stages_s: Mapping[str, float]
    driver_s: float
    hash_buckets: int
    rounds: int
    tasks: int
    objects: int
    task_bytes: int


def capacity_of(nodes: int, cpus: int, memory_bytes: int) -> Capacity:
    """Of a cluster of so many workers, of so many CPUs and bytes of memory each."""
    heap, store = sizing.node_memory(memory_bytes)
    return Capacity(nodes * cpus, heap // cpus, store * nodes, (cpus,) * nodes)


def rates_of(runs: Sequence[MeasuredRun]) -> Rates:
    """The medians of full runs; of writing a line through them: so much a row, and so much a byte.

    Raises ValueError where all rows are of one width: no line goes through one point.
    """
    if len({run.row_bytes for run in runs}) < 2:
        raise ValueError("the model needs full runs of deltacompact on Ray with narrow and with wide rows")

    def per_row(*stages: str) -> float:
        return median(run.core_s_per_row(*stages) for run in runs)

    writes = [run.core_s_per_row("write_index", "materialize") for run in runs]
    at = np.array([[1.0, run.row_bytes] for run in runs])
    row_s, byte_s = np.linalg.lstsq(at, np.array(writes), rcond=None)[0]
    return Rates(
        per_row("hash_bucket"),
        per_row("dedupe"),
        per_row("assign_pointers"),
        max(0.0, float(row_s)),
        max(0.0, float(byte_s)),
        median(max(0.0, run.seconds - sum(run.stages_s.values())) for run in runs),
    )


def predict(work: Work, capacity: Capacity, rates: Rates, limits: Limits = LIMITS) -> Prediction:
    """Seconds of a session: its tasks spread evenly over the slots, and the driver's time for them."""
    rows, entry_bytes, memory = work.delta_rows, work.entry_bytes, capacity.memory_per_task_bytes
    nodes, slots = len(capacity.node_slots), capacity.slots
    entries = rows + work.merged_entries
    buckets = work.hash_buckets or sizing.hash_bucket_count(entries, entry_bytes, memory, limits)
    rounds = work.rounds or _rounds(work, capacity)
    round_rows = rows // rounds
    task_rows = sizing.task_rows(round_rows, slots, nodes, buckets, entry_bytes, memory, limits)
    hash_tasks = math.ceil(round_rows / task_rows)
    groups = sizing.bucket_groups(buckets, round_rows, slots, nodes, hash_tasks, limits)
    last_groups = min(buckets, max(groups, sizing.pointer_groups(entries, buckets, memory)))
    source_groups = sizing.source_groups(work.written_rows, slots, nodes, last_groups, memory, limits)
    # A parcel for each node; and every task of the next stage is told of one from every task of the stage before.
    objects = nodes * (rounds * hash_tasks + last_groups + source_groups)
    told = rounds * hash_tasks * groups + 2 * last_groups * source_groups
    tasks = rounds * (hash_tasks + groups) + 2 * last_groups + source_groups
    driver_s = tasks * sizing.DRIVER_TASK_S + objects * sizing.DRIVER_OBJECT_S + told * sizing.DRIVER_ARGUMENT_S
    # Runs of rounds are merged after 1, 3, 7, … rounds: so many times is an entry folded and written.
    folded = entries * (1 + math.log2(rounds))
    stages_s = {
        "hash_bucket": rows * rates.hash_row_s / slots,
        "dedupe": folded * rates.dedupe_row_s / slots,
        "assign_pointers": work.written_rows * rates.pointer_row_s / slots,
        "write": (work.written_rows * rates.write_row_s + work.written_bytes * rates.write_byte_s) / slots,
    }
    seconds = rates.session_s + sum(stages_s.values()) + driver_s
    bucket_rows = math.ceil(round_rows / buckets)
    peak = sizing.peak_task_bytes(task_rows, bucket_rows, entry_bytes, limits.chunk_entries, READ_BYTES)
    return Prediction(seconds, stages_s, driver_s, buckets, rounds, tasks, objects, peak)


def _rounds(work: Work, capacity: Capacity) -> int:
    """As many as the object store makes necessary; a round has a whole file at least."""
    per_round = sizing.round_rows_max(capacity.object_store_bytes, work.entry_bytes)
    return max(1, min(work.files, math.ceil(work.delta_rows / per_round)))
