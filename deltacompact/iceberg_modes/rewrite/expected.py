"""How long a rewrite is expected to take, and what it makes of the branch: dead rows are found, live rows are written.

plan       40 M rows, 3 GB, 2 M deleted keys       on 8 slots
expected   6 s: keys 1.2 core-seconds, dead rows 24, writing 19; at 0.05 USD for a core and hour: 0.0006 USD
"""

from __future__ import annotations

import functools
from dataclasses import replace

from deltacompact.base.expected import Expected
from deltacompact.iceberg.deletes.matching import dangling
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes import expected as of_modes
from deltacompact.iceberg_modes.rewrite.choosing import deleted_share
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan
from deltacompact.iceberg_modes.totals import BranchTotals, totals_of
from deltacompact.planning.expected import arranged_s, written_s
from deltacompact.planning.plan import Capacity


def expected(plan: RewritePlan, capacity: Capacity) -> Expected:
    """Tasks spread over the slots, but no output is divided, so the largest one is a lower bound."""
    written = functools.partial(_written_s, arranges=plan.options.arranges)
    evenly = of_modes.expected(plan, capacity, written)
    groups_s = [written(group) for group in plan.groups]
    largest_s = max(
        (seconds / group.output_files for seconds, group in zip(groups_s, plan.groups, strict=True)), default=0.0
    )
    return replace(evenly, seconds=evenly.seconds + max(0.0, largest_s - sum(groups_s) / capacity.slots))


def _written_s(group: FileGroup, arranges: bool) -> float:
    """Core-seconds to write a group. Rows that go to several partitions are written twice."""
    each_s = (arranged_s if arranges else written_s)(group.rows, group.bytes)
    return each_s + (group.partition is None) * written_s(group.rows, group.bytes)


def totals_after(plan: RewritePlan, state: TableState) -> BranchTotals:
    """About the totals afterwards. Only deletes of a single file tell how many rows they hit; others count for none."""
    before = totals_of(state)
    written = sum(
        source.entry.file.file_bytes * (1 - deleted_share(source.entry, source.deletes)) for source in plan.inputs
    )
    gone = dangling(state, (source.entry for source in plan.inputs), ()) if plan.inputs else ()
    return BranchTotals(
        before.data_files - len(plan.inputs) + sum(group.output_files for group in plan.groups),
        before.data_bytes - plan.bytes + round(written),
        before.delete_files - len({entry.file.key for entry in gone}),
    )
