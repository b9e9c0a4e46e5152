"""Runs one step for many tasks, in process or on Ray, and gives the results in the tasks' order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deltacompact.executors.executor import Executor, Handle
from deltacompact.storage.objects import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Tasks:
    """Runs steps on an executor. The first argument of each step is the table's store."""

    store: ObjectStore
    executor: Executor

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return self.executor.capacity.slots

    def run(self, step: Callable[[ObjectStore, T], R], tasks: Sequence[T]) -> list[R]:
        return self.run_each(step, [(task,) for task in tasks])

    def run_each(self, step: Callable[..., R], inputs: Sequence[tuple[Any, ...]]) -> list[R]:
        """The results of a step that takes several arguments after the store, in the order of `inputs`."""
        done = dict(self.finished(step, inputs))
        return [done[number] for number in range(len(inputs))]

    def kept(self, step: Callable[..., Any], inputs: Sequence[tuple[int, tuple[Any, ...]]]) -> list[list[Handle]]:
        """Handles to all values of each task, once all tasks have ended. The values stay in the executor's memory.

        An input is (number of values, arguments). A step with one value returns it, others yield theirs.
        """
        submitted = [
            self.executor.submit(step, self.store, *of_task, returns=returns, spread=True)
            for returns, of_task in inputs
        ]
        for _ in self.executor.finish(submitted):
            pass
        return [task.values for task in submitted]

    def finished(self, step: Callable[..., R], inputs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, R]]:
        """(number of the task, its result), in the order in which tasks end."""
        submitted = [self.executor.submit(step, self.store, *of_task, spread=True) for of_task in inputs]
        for number, _ in self.executor.finish(submitted):
            yield number, self.executor.get(submitted[number].values[0])
