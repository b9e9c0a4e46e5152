"""Runs one step for many tasks, in process or on Ray, and gives the results in the tasks' order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deltacompact.executors.executor import Executor
from deltacompact.storage.objects import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Tasks:
    """Steps take the table's store first."""

    store: ObjectStore
    executor: Executor

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return self.executor.capacity.slots

    def run(self, step: Callable[[ObjectStore, T], R], tasks: Sequence[T]) -> list[R]:
        return self.run_each(step, [(task,) for task in tasks])

    def run_each(self, step: Callable[..., R], inputs: Sequence[tuple[Any, ...]]) -> list[R]:
        """The results of a step that takes several values besides the store."""
        submitted = [self.executor.submit(step, self.store, *of_task, spread=True) for of_task in inputs]
        for _ in self.executor.finish(submitted):
            pass
        return [self.executor.get(task.values[0]) for task in submitted]
