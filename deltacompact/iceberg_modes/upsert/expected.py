"""How long an upsert is expected to take: dead rows are found, the others are digested and folded.

plan       12 files with 40 M rows of one key space       on 8 slots
expected   40 M rows to digest and to fold; marks are few
"""

from __future__ import annotations

from deltacompact.iceberg_modes.expected import Expected, asked_rows, deleted_keys, deletes_of, finding_s, spread
from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
from deltacompact.planning.plan import Capacity
from deltacompact.planning.throughput import FIRST_RATES, Rates


def expected(plan: UpsertPlan, capacity: Capacity, rates: Rates = FIRST_RATES) -> Expected:
    """Each key space folds its rows. Deletes are shared work."""
    deletes = deletes_of(plan.inputs)
    folded_s = [group.rows * (rates.hash_row_s + rates.dedupe_row_s) for group in plan.groups]
    shared_s = finding_s(deleted_keys(deletes), asked_rows(plan.inputs), rates)
    return spread(folded_s, shared_s, len(deletes) + 2 * len(plan.inputs), capacity, rates)
