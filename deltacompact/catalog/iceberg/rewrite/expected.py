"""How long a rewrite is expected to take, and what it costs: pure, by the rates of planning/throughput.py.

    plan       40 M rows, 3 GB, 2 M deleted keys       on 8 slots
    expected   63 s: keys 0.3 core-seconds, dead rows 16, writing 32 …; at 0.05 USD for a core and hour: 0.0007 USD

A start, not a promise: the rates are those of one machine, and waiting for a store is not in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, RewritePlan
from deltacompact.catalog.iceberg.table.content_files import Content
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import DRIVER_TASK_S
from deltacompact.planning.throughput import DECODED, FIRST_RATES, Rates


@dataclass(frozen=True, slots=True)
class Expected:
    """Wall-clock seconds on so many slots, and seconds of one core: of all, and of the outputs of each group."""

    seconds: float
    core_seconds: float
    group_core_seconds: tuple[float, ...]
    slots: int

    def usd(self, per_core_hour: float) -> float:
        """What the cores cost while they work."""
        return self.core_seconds / 3600 * per_core_hour


def expected(plan: RewritePlan, capacity: Capacity, rates: Rates = FIRST_RATES) -> Expected:
    """Tasks spread over the slots, but no output is divided: the largest one takes as long as it takes."""
    if not plan.groups:
        return Expected(0.0, 0.0, (), capacity.slots)
    deletes = {
        entry.file.key: entry.file for group in plan.groups for source in group.inputs for entry in source.deletes.all
    }
    keys = sum(file.rows for file in deletes.values() if file.content is Content.EQUALITY_DELETES)
    asked = sum(source.entry.file.rows for group in plan.groups for source in group.inputs if source.deletes.equality)
    finding_s = keys * rates.hash_row_s + asked * (rates.hash_row_s + rates.dedupe_row_s)
    written_s = [_written_s(group, rates) for group in plan.groups]
    largest_s = max(one / group.output_files for one, group in zip(written_s, plan.groups, strict=True))
    tasks = len(deletes) + sum(len(group.inputs) + group.output_files for group in plan.groups)
    seconds = (
        rates.session_s
        + finding_s / capacity.slots
        + max(math.fsum(written_s) / capacity.slots, largest_s)
        + tasks * DRIVER_TASK_S
    )
    return Expected(seconds, finding_s + math.fsum(written_s), tuple(written_s), capacity.slots)


def _written_s(group: FileGroup, rates: Rates) -> float:
    """Rows that go to several partitions are written twice."""
    times = 2 if group.partition is None else 1
    return times * (group.rows * rates.write_row_s + DECODED * group.bytes * rates.write_byte_s)
