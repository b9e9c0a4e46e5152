"""Where tasks run. The same steps, whichever executor runs them.

hashed = executor.submit(hash_bucket, store, …, returns=4)      four values, still to come
merged = executor.submit(dedupe, store, …, *hashed.values)      takes them when they are there
for stats in executor.finish([merged]): …                       one at a time, as tasks end
executor.get(merged.values[0])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace

Handle = Any
"""A value that is still to come. May be passed to `submit` as an argument of its own, not inside a list."""


@dataclass(frozen=True, slots=True)
class TaskStats:
    """What one task took: seconds of its own, and the peak of its process's unshared memory (USS, bytes)."""

    seconds: float
    peak_bytes: int


@dataclass(slots=True)
class Submitted:
    """A task under way: the handles of its values, and that of its statistics."""

    values: list[Handle]
    stats: Handle


class Executor(Protocol):
    """Runs tasks. One that returns several values is a generator of them.

    `spread` asks for another node each; `node` for one of the capacity's nodes, by its place.
    """

    name: str
    tasks_per_process: int
    """So many tasks share the memory that is measured."""
    pace: Pace
    """Of each process, what tasks may ask of the store."""

    @property
    def capacity(self) -> Capacity: ...

    def submit(
        self, task: Callable[..., Any], *inputs: Any, returns: int = 1, spread: bool = False, node: int | None = None
    ) -> Submitted: ...

    def finish(self, tasks: Sequence[Submitted]) -> Iterator[tuple[int, TaskStats]]:
        """Wait for all; yields (place in `tasks`, statistics) as each one ends. The first error is raised."""

    def get(self, handle: Handle) -> Any: ...

    def spilled_bytes(self) -> int | None:
        """What the object store has written to disk since it was started; None where that is not known."""
