"""Stages of a session: wait for submitted tasks, emit their events, and measure them.

dedupe    8 tasks on 2 CPUs    5.1 s from first to last, 9.4 s in all tasks, 1.3 s in the longest task
          perfectly spread     max(1.3, 9.4 / 2) = 4.7 s        so scheduling took 0.4 s
          CPU                  8.8 s since the stage before     of this process; on a cluster, of the stage's tasks
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltacompact.base.events import StageFinished, StageStarted, TaskFinished
from deltacompact.executors.executor import Executor, SubmittedTask


@dataclass(slots=True)
class SessionMeasures:
    """Time, memory and copied rows of a session, collected as tasks end. Seconds by stage; memory in bytes.

    CPU seconds are those of the processes that run tasks. So sessions that run side by side in one process count each
    other's CPU seconds, and a stage counts those of stages that overlap it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    scheduling_seconds: float = 0.0
    peak_task_bytes: int = 0
    rows_copied: int = 0


@dataclass(slots=True)
class _Wave:
    """Stages whose tasks run side by side: elapsed seconds, seconds of the longest task, and of all tasks."""

    seconds: float = 0.0
    longest: float = 0.0
    total: float = 0.0

    def add(self, seconds: float, longest: float, total: float) -> None:
        self.seconds += seconds
        self.longest = max(self.longest, longest)
        self.total += total

    def scheduling_seconds(self, slots: int) -> float:
        """The elapsed time beyond what perfectly spread tasks would take."""
        return max(0.0, self.seconds - max(self.longest, self.total / slots))


class Stages:
    """Waits for stages. `tell` takes the class of an event and the event's values."""

    def __init__(self, executor: Executor, tell: Callable[..., None]) -> None:
        self.measured = SessionMeasures()
        self._executor = executor
        self._tell = tell
        self._wave = _Wave()
        self._cpu_s = time.process_time()

    def wait(
        self,
        stage: str,
        tasks: Sequence[SubmittedTask],
        rows: int,
        done_one: Callable[[int, float], None] | None = None,
        overlapping: bool = False,
    ) -> None:
        """Wait for a stage. As a task ends, `done_one` gets its number in `tasks` and its seconds.

        `overlapping`: tasks of the next stage are running already.
        """
        began = time.perf_counter()
        self._tell(StageStarted, stage, len(tasks), rows)
        rows_done, longest, total, elsewhere_cpu_s = 0, 0.0, 0.0, 0.0
        for count, (number, stats) in enumerate(self._executor.finish(tasks), 1):
            if done_one:
                done_one(number, stats.seconds)
            rows_done_now = rows * count // max(1, len(tasks))
            self._tell(TaskFinished, stage, rows_done_now - rows_done)
            rows_done = rows_done_now
            longest, total = max(longest, stats.seconds), total + stats.seconds
            elsewhere_cpu_s += stats.cpu_seconds
            self.measured.peak_task_bytes = max(self.measured.peak_task_bytes, stats.peak_bytes)
        seconds = time.perf_counter() - began
        self.took(stage, seconds, elsewhere_cpu_s)
        self._wave.add(seconds, longest, total)
        if not overlapping:
            self.measured.scheduling_seconds += self._wave.scheduling_seconds(self._executor.capacity.slots)
            self._wave = _Wave()
        self._tell(StageFinished, stage, seconds)

    def took(self, stage: str, seconds: float, elsewhere_cpu_s: float = 0.0) -> None:
        """Add to a stage's seconds and CPU seconds: `elsewhere_cpu_s`, or (0) this process's since the last call."""
        here_cpu_s = time.process_time()
        cpu_s = elsewhere_cpu_s or here_cpu_s - self._cpu_s
        self._cpu_s = here_cpu_s
        for measured, more in ((self.measured.seconds, seconds), (self.measured.cpu_seconds, cpu_s)):
            measured[stage] = measured.get(stage, 0.0) + more
