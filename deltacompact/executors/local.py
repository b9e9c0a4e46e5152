"""The executor in this process. With one thread it is the reference: a for-loop, tasks run when they are waited for.

With more, tasks run on threads in order of submission. A task waits inside for its inputs, which were submitted before
it and so have begun before it: nothing can lock up. The kernels and pyarrow leave the interpreter while they work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import psutil

from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Handle, Submitted, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace


class _Task:
    """A call whose inputs are let go once it has happened."""

    def __init__(self, task: Callable[..., Any], inputs: tuple[Any, ...], returns: int) -> None:
        self._call: tuple[Callable[..., Any], tuple[Any, ...], int] | None = (task, inputs, returns)
        self._results: list[Any] = []
        self.future: Future[list[Any]] | None = None

    def results(self) -> list[Any]:
        return self.run() if self.future is None else self.future.result()

    def run(self) -> list[Any]:
        if self._call is not None:
            task, inputs, returns = self._call
            self._results = list(run_measured(task, tuple(map(_value, inputs)), returns))
            self._call = None
        return self._results


class _Later:
    """One value of a task."""

    def __init__(self, task: _Task, place: int) -> None:
        self.task = task
        self.place = place


def _value(given: Any) -> Any:
    return given.task.results()[given.place] if isinstance(given, _Later) else given


class LocalExecutor:
    """One thread a task, `local_threads` at a time."""

    name = "local"

    def __init__(self, settings: Settings) -> None:
        memory = psutil.virtual_memory().total
        threads = settings.local_threads or os.cpu_count() or 1
        threads = min(threads, settings.concurrent_tasks or threads)
        self._pool = ThreadPoolExecutor(threads, "deltacompact") if threads > 1 else None
        self._capacity = Capacity(
            threads,
            settings.memory_per_task_bytes or memory // max(2, os.cpu_count() or 1),
            settings.object_store_bytes or int(memory * 0.3),
            settings.limits.local_nodes,
        )
        self.tasks_per_process = threads
        self.pace = Pace.of(settings, 1)

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def submit(
        self, task: Callable[..., Any], *inputs: Any, returns: int = 1, spread: bool = False, node: int | None = None
    ) -> Submitted:
        pending = _Task(task, inputs, returns)
        if self._pool is not None:
            pending.future = self._pool.submit(pending.run)
        return Submitted([_Later(pending, place) for place in range(returns)], _Later(pending, returns))

    def finish(self, tasks: Sequence[Submitted]) -> Iterator[tuple[int, TaskStats]]:
        if self._pool is None:
            for place, task in enumerate(tasks):
                yield place, _value(task.stats)
            return
        places = {task.stats.task.future: place for place, task in enumerate(tasks)}
        try:
            for future in as_completed(places):
                place = places[future]
                yield place, _value(tasks[place].stats)
        except BaseException:
            for future in places:
                future.cancel()
            raise

    def get(self, handle: Handle) -> Any:
        return _value(handle)

    def spilled_bytes(self) -> int | None:
        """There is no object store: what tasks hand over stays in memory."""
        return 0
