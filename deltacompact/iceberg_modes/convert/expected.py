"""How long a conversion is expected to take: deleted keys are digested, and data files are asked for theirs.

plan       4 data files with 4 M rows, 17 deleted keys       on 2 slots
expected   about 1 s; marks are as many rows as there are deleted keys, at the most
"""

from __future__ import annotations

from deltacompact.iceberg_modes.convert.plan import ConvertPlan
from deltacompact.iceberg_modes.expected import (
    Expected,
    asked_rows,
    deleted_keys,
    deletes_of,
    hashed_s,
    spread,
    written_s,
)
from deltacompact.planning.plan import Capacity


def expected(plan: ConvertPlan, capacity: Capacity) -> Expected:
    """Each group asks its data files. Keys and marks are shared work."""
    deletes = deletes_of(plan.inputs)
    keys = deleted_keys(deletes)
    asked_s = [hashed_s(asked_rows(group.inputs)) for group in plan.groups]
    shared_s = hashed_s(keys) + written_s(keys)
    return spread(asked_s, shared_s, len(deletes) + 2 * len(plan.inputs), capacity)
