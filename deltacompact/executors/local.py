"""The executor in this process. With one thread it is the reference: a task runs when its result is needed.

With more threads, tasks begin in the order of submission. A task waits for its inputs, which were submitted and begun
before it, so there is no deadlock. The kernels and pyarrow release the GIL while they work. Sessions that run side by
side share one executor, so their tasks together use no more threads than one session would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from typing import Any

from deltacompact.base import machine
from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Handle, SubmittedTask, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace


class _Task:
    """A call that drops its inputs after it has run."""

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

    def __init__(self, task: _Task, number: int) -> None:
        self.task = task
        self.number = number


def _value(argument: Any) -> Any:
    return argument.task.results()[argument.number] if isinstance(argument, _Later) else argument


TASKS_PER_SLOT = 4
"""Tasks for each CPU on a remote store: while some wait for their first bytes or last part, others use the CPU."""


def _pool_of(threads: int) -> ThreadPoolExecutor | None:
    return ThreadPoolExecutor(threads, "deltacompact") if threads > 1 else None


class LocalExecutor:
    """One thread a task, `local_threads` at a time.

    `inline` sessions (if not 0) run a task in the thread that needs its result. `processes`, this one included, share
    the rate limits of the settings. `waits`: the store is remote, so tasks may share CPUs after `share_slots`, unless
    the settings say how many run at a time.
    """

    name = "local"

    def __init__(self, settings: Settings, inline: int = 0, processes: int = 1, waits: bool = False) -> None:
        memory, cpus = machine.memory_bytes(), machine.cpus()
        threads = settings.local_threads or cpus
        threads = 1 if inline else min(threads, settings.concurrent_tasks or threads)
        self._pool = _pool_of(threads)
        self._capacity = Capacity(
            threads,
            settings.memory_per_task_bytes or memory // max(2, cpus),
            settings.object_store_bytes or int(memory * 0.3),
            settings.limits.local_nodes,
            TASKS_PER_SLOT if waits and not (inline or settings.local_threads or settings.concurrent_tasks) else 1,
            not waits,
        )
        self.tasks_per_process = inline or threads
        self.pace = Pace.of(settings, processes)
        self.stopped = threading.Event()

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def share_slots(self, places: int) -> None:
        """Run `places` tasks at a time. Call it before the first task."""
        self._pool = _pool_of(places)
        self.tasks_per_process = places

    def submit(
        self,
        task: Callable[..., Any],
        *inputs: Any,
        returns: int = 1,
        spread: bool = False,
        node: int | None = None,
        size: float | None = None,
    ) -> SubmittedTask:
        pending = _Task(task, inputs, returns)
        if self._pool is not None:
            try:
                pending.future = self._pool.submit(pending.run)
            except RuntimeError:  # the pool was shut down
                self._check_not_stopped()
                raise
        return SubmittedTask([_Later(pending, number) for number in range(returns)], _Later(pending, returns))

    def finish(self, tasks: Sequence[SubmittedTask]) -> Iterator[tuple[int, TaskStats]]:
        if self._pool is None:
            for number, task in enumerate(tasks):
                self._check_not_stopped()
                yield number, _value(task.stats)
            return
        handles = [task.stats for task in tasks]
        number_of = {handle.task.future: number for number, handle in enumerate(handles)}
        try:
            for future in as_completed(number_of):
                self._check_not_stopped()
                number = number_of[future]
                yield number, self.get(handles[number])
        except BaseException:
            self.cancel(handles)
            raise

    def get(self, handle: Handle) -> Any:
        try:
            return _value(handle)
        except CancelledError:
            self._check_not_stopped()
            raise

    def cancel(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            if handle.task.future is not None:  # without threads, a task begins when its result is needed
                handle.task.future.cancel()

    def share(self, value: Any) -> Handle:
        return value

    def stop(self) -> None:
        self.stopped.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _check_not_stopped(self) -> None:
        if self.stopped.is_set():
            raise KeyboardInterrupt

    def spilled_bytes(self) -> int | None:
        """0: there is no object store, values stay in memory."""
        return 0
