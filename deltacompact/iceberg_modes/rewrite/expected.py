"""How long a rewrite is expected to take: its dead rows are found, its live rows are written.

plan       40 M rows, 3 GB, 2 M deleted keys       on 8 slots
expected   63 s: keys 0.3 core-seconds, dead rows 16, writing 32 …; at 0.05 USD for a core and hour: 0.0007 USD
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.iceberg_modes.expected import Expected, asked_rows, deleted_keys, deletes_of, finding_s, spread
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan
from deltacompact.planning.plan import Capacity
from deltacompact.planning.throughput import DECODED, FIRST_RATES, Rates


def expected(plan: RewritePlan, capacity: Capacity, rates: Rates = FIRST_RATES) -> Expected:
    """Tasks spread over the slots, but no output is divided: the largest one takes as long as it takes."""
    deletes = deletes_of(plan.inputs)
    written_s = [_written_s(group, rates) for group in plan.groups]
    tasks = len(deletes) + sum(len(group.inputs) + group.output_files for group in plan.groups)
    evenly = spread(written_s, finding_s(deleted_keys(deletes), asked_rows(plan.inputs), rates), tasks, capacity, rates)
    largest_s = max((one / group.output_files for one, group in zip(written_s, plan.groups, strict=True)), default=0.0)
    return replace(evenly, seconds=evenly.seconds + max(0.0, largest_s - sum(written_s) / capacity.slots))


def _written_s(group: FileGroup, rates: Rates) -> float:
    """Rows that go to several partitions are written twice."""
    times = 2 if group.partition is None else 1
    return times * (group.rows * rates.write_row_s + DECODED * group.bytes * rates.write_byte_s)
