"""The reference executor: a for-loop in this process. Tasks run when they are waited for, in order of submission."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil

from deltacompact.executors import Handle, Submitted, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.plan import Capacity
from deltacompact.settings import Settings


class _Task:
    """A call that has not happened yet; its inputs are let go once it has."""

    def __init__(self, task: Callable[..., Any], inputs: tuple[Any, ...], returns: int) -> None:
        self._call: tuple[Callable[..., Any], tuple[Any, ...], int] | None = (task, inputs, returns)
        self._results: list[Any] = []

    def results(self) -> list[Any]:
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
    """Runs everything here, one after another; pyarrow and the kernels use the cores."""

    name = "local"

    def __init__(self, settings: Settings) -> None:
        memory = psutil.virtual_memory().total
        self._capacity = Capacity(
            1,
            settings.memory_per_task_bytes or memory // max(2, os.cpu_count() or 1),
            settings.object_store_bytes or int(memory * 0.3),
        )

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def submit(self, task: Callable[..., Any], *inputs: Any, returns: int = 1, spread: bool = False) -> Submitted:
        pending = _Task(task, inputs, returns)
        return Submitted([_Later(pending, place) for place in range(returns)], _Later(pending, returns))

    def finish(self, tasks: Sequence[Submitted]) -> Iterator[tuple[int, TaskStats]]:
        for place, task in enumerate(tasks):
            yield place, _value(task.stats)

    def get(self, handle: Handle) -> Any:
        return _value(handle)
