"""Decides which tasks run a second time: those that take far longer than other tasks of their stage. Pure.

    stage        8 tasks of 1 M rows; six took 2.0 to 2.4 s, so p95 is 2.4 s
    running      task 6 for 3 s, task 7 for 30 s
    idle slots   3                                  ->  task 7 runs again, and the first result counts

Idle slots show that the stage is near its end: no task waits for a slot. The second run helps if the node of the first
is slow or hangs. A task that is larger than the others gets the time that its size needs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TIMES_EXPECTED = 2.0
"""A task is slow when it takes this many times the p95 of its stage, scaled by its size."""

DONE_MIN = 3
"""Two tasks of a stage do not tell how long a third takes."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A task of a stage: its number, its size in any unit, and the seconds that it took, or has run so far."""

    number: int
    size: float
    seconds: float


def to_repeat(done: Sequence[Timed], running: Sequence[Timed], idle_slots: int, seconds_min: float) -> list[int]:
    """The numbers of the running tasks to run once more, the most overdue first; at most one for each idle slot.

    `running` has the tasks that run once so far. Nothing is repeated before half of the stage is done, or before a task
    has run for `seconds_min`.
    """
    if len(done) < max(DONE_MIN, len(running)):
        return []
    typical = statistics.median(task.size for task in done)
    p95 = _percentile_95([task.seconds / _times(task, typical) for task in done])
    overdue = {task.number: task.seconds / max(p95 * _times(task, typical), 1e-9) for task in running}
    slow = [task for task in running if task.seconds >= seconds_min and overdue[task.number] >= TIMES_EXPECTED]
    slow.sort(key=lambda task: overdue[task.number], reverse=True)
    return [task.number for task in slow[: max(0, idle_slots)]]


def _times(task: Timed, typical: float) -> float:
    """How many times the typical time a task may take. A small task costs about as much as a typical one."""
    return max(1.0, task.size / typical) if typical > 0 else 1.0


def _percentile_95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]
