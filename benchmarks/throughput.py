"""Predicts how long a session takes on a cluster that nobody has here, from measured rates and planned sizes.

    rates      seconds of one core: for each row by stage, and for each written byte
    work       1.2 M rows in the deltas, 40 M rows of 60 bytes to write, 1 round
    capacity   one node of 8 CPUs and 64 GiB
    predict    -> 2.8 s: writing 2.0, pointers 0.3, the driver …; 1 hash bucket, 1 round, 13 tasks

Stragglers are not in it. What `plan` and the control plane expect, planning/work.py says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from deltacompact.base.limits import LIMITS
from deltacompact.planning.driver_work import CompactionWork, handed_out
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import task_memory

READ_BYTES = 128 << 20
"""Bytes of the row groups that a task decodes: four of 32 MiB."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of one core for each row or byte.

    hash_row_s       for a delta row in step 1
    dedupe_row_s     for folding an entry once
    pointer_row_s    for a written row in pointer assignment
    write_row_s      for a written row and its index entry,
    write_byte_s     and for each of its decoded bytes
    session_s        wall-clock seconds of the driver between stages, once for a session
    """

    hash_row_s: float
    dedupe_row_s: float
    pointer_row_s: float
    write_row_s: float
    write_byte_s: float
    session_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Wall-clock seconds of a session, and their parts.

    `stages_s` are the seconds of the tasks, `driver_s` the driver's seconds for tasks and objects. `task_bytes` is the
    planned memory of the largest task.
    """

    seconds: float
    stages_s: Mapping[str, float]
    driver_s: float
    hash_buckets: int
    rounds: int
    tasks: int
    objects: int
    task_bytes: int


def predict(work: CompactionWork, capacity: Capacity, rates: Rates) -> Prediction:
    """Predict the seconds of a session. Tasks spread evenly over the slots; the driver's time for them is added."""
    handed, rows, slots = handed_out(work, capacity), work.delta_rows, capacity.slots
    # The runs of rounds are merged after 1, 3, 7, … rounds, so an entry is folded and written once more for each merge.
    folded = (rows + work.merged_entries) * (1 + math.log2(handed.rounds))
    stages_s = {
        "hash_bucket": rows * rates.hash_row_s / slots,
        "dedupe": folded * rates.dedupe_row_s / slots,
        "assign_pointers": work.written_rows * rates.pointer_row_s / slots,
        "write": (work.written_rows * rates.write_row_s + work.written_bytes * rates.write_byte_s) / slots,
    }
    seconds = rates.session_s + sum(stages_s.values()) + handed.driver_s
    bucket_rows = math.ceil(handed.round_rows / handed.hash_buckets)
    peak = task_memory.peak_task_bytes(handed.task_rows, bucket_rows, work.entry_bytes, READ_BYTES, LIMITS)
    return Prediction(
        seconds, stages_s, handed.driver_s, handed.hash_buckets, handed.rounds, handed.tasks, handed.objects, peak
    )
