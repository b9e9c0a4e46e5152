"""The runs of one stage's tasks: every task has one run, a slow task has two, and the first result counts.

    task 6     run 1 ends                 its result counts
    task 7     run 1, run 2               run 2 ends: its result counts, run 1 is cancelled
    task 8     run 1 fails, run 2 runs    wait for run 2
    nodes      a took 2.0 s a task, b 9.5 s, c has ended none         run 2 goes to a

The cluster does not say when a run left its queue and began. But tasks begin in order, so with n slots task i began
when the (i - n + 1)th task of the stage ended, or later if other sessions took slots. In that case task i is repeated
too early, but on a slot that nobody else needed.

Nor does the cluster say on which node a run is. But the node with the fastest tasks of a stage neither lags nor hangs.

`ended` works with any Cluster: Ray, or a simulated one.
"""

from __future__ import annotations

import logging
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from deltacompact.executors.executor import Handle, SubmittedTask, TaskStats
from deltacompact.planning.slow_tasks import Timed, to_repeat

_LOG = logging.getLogger("deltacompact")

LOOK_EVERY_S = 1.0

AWAITED_SHARE = 1 / 100
"""Wait for this share of the runs that have not ended, and for one at least. Each wait passes all their handles: one by
one, a stage of 40,000 tasks would pass 800 million."""


class Cluster(Protocol):
    """The cluster calls that waiting for runs needs. A run's handle is that of its statistics."""

    def now_s(self) -> float: ...

    def wait(self, handles: Sequence[Handle], count: int, timeout_s: float) -> Sequence[Handle]:
        """The handles of runs that have ended, as soon as there are `count` of them, or after `timeout_s`."""

    def get(self, handle: Handle) -> Any: ...

    def idle_slots(self) -> int: ...

    def cancel(self, handles: Sequence[Handle]) -> None: ...


def ended(
    tasks: Sequence[SubmittedTask], slots: int, cluster: Cluster, seconds_min: float
) -> Iterator[tuple[int, TaskStats]]:
    """Yields (number in `tasks`, statistics) as each task ends. Raises the first error, and cancels the other runs.

    Repeats slow tasks, at the earliest after `seconds_min`.
    """
    runs = Runs(tasks, slots, cluster.now_s())
    try:
        while waiting := runs.waiting:
            for handle in cluster.wait(waiting, 1 + int(len(waiting) * AWAITED_SHARE), LOOK_EVERY_S):
                yield from _taken(runs, handle, cluster)
            for number in runs.slow(cluster.now_s(), cluster.idle_slots, seconds_min):
                _LOG.info("a slow task runs a second time")
                runs.repeat(number)
    except BaseException:
        cluster.cancel(runs.waiting)
        raise


def _taken(runs: Runs, handle: Handle, cluster: Cluster) -> Iterator[tuple[int, TaskStats]]:
    """The result of a run that has ended. Nothing, if another run of its task was faster or may still succeed."""
    if (found := runs.end(handle)) is None:
        return
    number, run, others = found
    try:
        stats: TaskStats = cluster.get(run.stats)
    except Exception:
        if others:
            return
        raise
    cluster.cancel([other.stats for other in others])
    runs.take(number, run, stats, cluster.now_s())
    yield number, stats


class Runs:
    """The runs of a stage that began at `now_s`, on `slots` slots. All times are in seconds of one clock."""

    def __init__(self, tasks: Sequence[SubmittedTask], slots: int, now_s: float) -> None:
        self._tasks = tasks
        self._slots = slots
        self._number_of: dict[Handle, int] = {task.stats: number for number, task in enumerate(tasks)}
        self._runs_of = {number: [task] for number, task in enumerate(tasks)}
        self._begun_s = dict.fromkeys(range(min(slots, len(tasks))), now_s)
        self._done: list[Timed] = []
        self._seconds_on: defaultdict[str, list[float]] = defaultdict(list)
        self._repeated: set[int] = set()
        self._looked_s = now_s

    @property
    def waiting(self) -> list[Handle]:
        """The handles of the statistics of all runs that have not ended."""
        return list(self._number_of)

    def end(self, handle: Handle) -> tuple[int, SubmittedTask, list[SubmittedTask]] | None:
        """Note that a run has ended. Returns its task's number, the run, and the task's other runs.

        None: another run of the task was faster.
        """
        number = self._number_of.pop(handle, None)
        if number is None:
            return None
        (run,) = (run for run in self._runs_of[number] if run.stats == handle)
        self._runs_of[number].remove(run)
        return number, run, self._runs_of[number]

    def take(self, number: int, run: SubmittedTask, stats: TaskStats, now_s: float) -> None:
        """Make this run's result the task's values. Forget the other runs."""
        for other in self._runs_of.pop(number):
            del self._number_of[other.stats]
        task = self._tasks[number]
        task.values, task.stats, task.again = run.values, run.stats, None  # `again` holds on to the task's inputs
        ended = len(self._tasks) - len(self._runs_of)
        self._begun_s.setdefault(self._slots + ended - 1, now_s)
        self._done.append(Timed(number, task.size or 0.0, stats.seconds))
        if stats.node is not None:
            self._seconds_on[stats.node].append(stats.seconds)

    def slow(self, now_s: float, idle_slots: Callable[[], int], seconds_min: float) -> list[int]:
        """The tasks to run a second time, by number. Decides once a second; calls `idle_slots` only for slow tasks."""
        if now_s - self._looked_s < LOOK_EVERY_S or len(self._runs_of) >= self._slots:
            return []
        self._looked_s = now_s
        once = [
            Timed(number, size, now_s - self._begun_s[number])
            for number, runs in self._runs_of.items()
            if len(runs) == 1 and number not in self._repeated and (size := self._tasks[number].size) is not None
        ]
        slow = to_repeat(self._done, once, len(once), seconds_min)
        return slow[: max(0, idle_slots())] if slow else []

    def repeat(self, number: int) -> None:
        """Submit a task once more, to the node whose tasks of this stage were the fastest."""
        again = self._tasks[number].again
        assert again is not None, "a task with a size can be submitted again"
        medians = {node: statistics.median(seconds) for node, seconds in self._seconds_on.items()}
        run = again(min(medians, key=medians.__getitem__, default=None))
        self._repeated.add(number)
        self._runs_of[number].append(run)
        self._number_of[run.stats] = number
