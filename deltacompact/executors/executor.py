"""The protocol of an executor. The steps are the same on every executor.

hashed = executor.submit(hash_bucket, store, …, returns=4)      handles of four values
merged = executor.submit(dedupe, store, …, *hashed.values)      starts when the four values are there
for number, stats in executor.finish([merged]): …               one at a time, as tasks end
executor.get(merged.values[0])
executor.share(pointers)                                        one value for many tasks: handed over once
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace

Handle = Any
"""Stands for a value that a task will return. Pass it to `submit` as an argument of its own, not inside a list."""


@dataclass(frozen=True, slots=True)
class TaskStats:
    """The seconds of one task, the peak of its process's unshared memory in bytes, and its node's name.

    `node` None: there is one node. `cpu_seconds` are those of a process that ran nothing else meanwhile; 0: the task
    ran in the session's own process, whose CPU time is measured as a whole.
    """

    seconds: float
    peak_bytes: int
    node: str | None = None
    cpu_seconds: float = 0.0


@dataclass(slots=True)
class SubmittedTask:
    """A task under way: the handles of its values and of its statistics.

    `size` is the task's amount of work, in any unit. `again` submits the task once more, to the named node, if any.
    `again` None: the task must not run twice.
    """

    values: list[Handle]
    stats: Handle
    size: float | None = None
    again: Callable[[str | None], SubmittedTask] | None = None


class Executor(Protocol):
    """Runs tasks. A task with several values is a generator that yields them.

    `spread` distributes tasks over the nodes; `node` chooses one of the capacity's nodes by its number. A slow task
    with a `size` may run twice at the same time: it writes under names of its own, and nobody uses its handles before
    `finish` has yielded it.
    """

    name: str
    tasks_per_process: int
    """How many tasks run in one process and share its measured memory."""
    pace: Pace
    """The rate limits of each process on the store."""
    stopped: threading.Event
    """Set by `stop`."""

    @property
    def capacity(self) -> Capacity: ...

    def submit(
        self,
        task: Callable[..., Any],
        *inputs: Any,
        returns: int = 1,
        spread: bool = False,
        node: int | None = None,
        size: float | None = None,
    ) -> SubmittedTask: ...

    def finish(self, tasks: Sequence[SubmittedTask]) -> Iterator[tuple[int, TaskStats]]:
        """Wait for all tasks; as each ends, yields (its number in `tasks`, its statistics). Raises the first error."""

    def get(self, handle: Handle) -> Any: ...

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Begin none of the tasks with these handles. Those that have begun may go on: what they write is garbage."""

    def share(self, value: Any) -> Handle:
        """A handle of a value that many tasks get, each as an argument of its own: it is sent once.

        Keep the handle as long as the tasks' results are wanted: if a node is lost, its tasks run again.
        """

    def stop(self) -> None:
        """End the sessions that use this executor, from another thread: their next wait raises KeyboardInterrupt."""

    def spilled_bytes(self) -> int | None:
        """Bytes that the object store has written to disk since it started; None: unknown."""
