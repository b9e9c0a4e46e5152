"""How long a rewrite is expected to take: its dead rows are found, its live rows are written.

plan       40 M rows, 3 GB, 2 M deleted keys       on 8 slots
expected   6 s: keys 1.2 core-seconds, dead rows 24, writing 19; at 0.05 USD for a core and hour: 0.0006 USD
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.iceberg_modes import expected as of_modes
from deltacompact.iceberg_modes.expected import Expected, written_s
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan
from deltacompact.planning.plan import Capacity


def expected(plan: RewritePlan, capacity: Capacity) -> Expected:
    """Tasks spread over the slots, but no output is divided: the largest one takes as long as it takes."""
    evenly = of_modes.expected(plan, capacity, _written_s)
    groups_s = [_written_s(group) for group in plan.groups]
    largest_s = max((one / group.output_files for one, group in zip(groups_s, plan.groups, strict=True)), default=0.0)
    return replace(evenly, seconds=evenly.seconds + max(0.0, largest_s - sum(groups_s) / capacity.slots))


def _written_s(group: FileGroup) -> float:
    """Rows that go to several partitions are written twice."""
    return (2 if group.partition is None else 1) * written_s(group.rows, group.bytes)
