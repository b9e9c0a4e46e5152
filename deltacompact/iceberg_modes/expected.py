"""How long a plan is expected to take: pure, by the rates of planning/work.py.

    plan       40 M rows to search, 2 M deleted keys    on 8 slots
    expected   25 core-seconds

An estimate, no promise: the rates are those of one machine, and do not include waiting for a store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from deltacompact.base.expected import Expected
from deltacompact.iceberg.deletes.matching import FileScanTask, each_delete
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg_modes.plan import ModePlan
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing.driver_time import DRIVER_TASK_S
from deltacompact.planning.work import FIRST_RATES


def expected(
    plan: ModePlan, capacity: Capacity, group_s: Callable[[Any], float] = lambda group: 0.0, shared_s: float = 0.0
) -> Expected:
    """Seconds to digest deleted keys and to search rows for them, and what else the mode does.

    `group_s`: core-seconds that the mode adds for a group; `shared_s`: for all groups together. The work is divided
    over all slots.
    """
    inputs = [source for group in plan.groups for source in group.inputs]
    deletes = _deletes_of(inputs)
    groups_s = tuple(hashed_s(_asked_rows(group.inputs)) + group_s(group) for group in plan.groups)
    if not groups_s:
        return Expected(0.0, 0.0, (), capacity.slots)
    keys = sum(file.rows for file in deletes if file.is_equality_delete)
    core_seconds = hashed_s(keys) + shared_s + math.fsum(groups_s)
    tasks = len(deletes) + 2 * len(inputs)
    seconds = FIRST_RATES["session"] + core_seconds / capacity.slots + tasks * DRIVER_TASK_S
    return Expected(seconds, core_seconds, groups_s, capacity.slots)


def hashed_s(rows: int) -> float:
    """Core-seconds to digest the keys of rows, and to look them up or fold them."""
    return rows * FIRST_RATES["delta_row"]


def _deletes_of(sources: Iterable[FileScanTask]) -> list[ContentFile]:
    """The delete files that may apply to data files, each once."""
    return list({entry.file.key: entry.file for entry in each_delete(source.deletes for source in sources)}.values())


def _asked_rows(sources: Iterable[FileScanTask]) -> int:
    """Rows whose keys are looked up among the deleted ones."""
    return sum(source.entry.file.rows for source in sources if source.deletes.equality)
