"""How long an upsert is expected to take: dead rows are found, the others are digested and folded.

plan       12 files with 40 M rows of one key space       on 8 slots
expected   40 M rows to digest and to fold; marks are few
"""

from __future__ import annotations

from deltacompact.iceberg_modes.expected import Expected, asked_rows, deleted_keys, deletes_of, hashed_s, spread
from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
from deltacompact.planning.plan import Capacity


def expected(plan: UpsertPlan, capacity: Capacity) -> Expected:
    """Each key space folds its rows. Deletes are shared work."""
    deletes = deletes_of(plan.inputs)
    folded_s = [hashed_s(group.rows) for group in plan.groups]
    shared_s = hashed_s(deleted_keys(deletes) + asked_rows(plan.inputs))
    return spread(folded_s, shared_s, len(deletes) + 2 * len(plan.inputs), capacity)
