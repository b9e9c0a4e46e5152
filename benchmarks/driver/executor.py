"""An executor on a cluster of virtual time: the driver's own seconds, and those that Ray would take of it, go by on it.

    submit      takes the driver 1.1 ms, as it would on Ray: a task with 4 objects of its own and 20 arguments
    wait        until 12:03:07.4 of the virtual clock, which takes no time of ours
    get         what the task would have returned
    between     the driver plans 0.8 s: the cluster works meanwhile

`used_s` are the CPU seconds of this process outside of this file, and those that pickle what tasks are told: of the
driver.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

from benchmarks.driver.cluster import Inputs, Nodes, Trouble, Work
from benchmarks.driver.tasks import SimulatedTasks
from deltacompact.base.errors import StoreError
from deltacompact.executors.executor import Handle, SubmittedTask, TaskStats
from deltacompact.executors.runs import ended
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import driver_time
from deltacompact.storage.throttle import Pace

Result = Callable[[int], Any]

HOURS_MAX = 12
"""Of virtual time. Where each lost node takes along what took longer than until the next is lost, nothing ends."""


class _Objects:
    """How many handles of values there are, and the most that there were."""

    def __init__(self) -> None:
        self.now = self.most = self.made = 0


class _Value:
    """A handle of one value."""

    __slots__ = ("_objects", "number", "result", "work")

    def __init__(self, work: Work, result: Result, number: int, objects: _Objects) -> None:
        self.work, self.result, self.number, self._objects = work, result, number, objects
        work.kept += 1
        objects.made += 1
        objects.now += 1
        objects.most = max(objects.most, objects.now)

    def __del__(self) -> None:
        self.work.kept -= 1
        self._objects.now -= 1


class _Shared:
    """A value that many tasks get."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class SimulatedExecutor:
    """`charged`: the driver's seconds and Ray's go by on the virtual clock. Without, a seed gives the same times."""

    name = "simulated"
    tasks_per_process = 1
    pace = Pace()
    stopped = threading.Event()

    def __init__(
        self, capacity: Capacity, tasks: SimulatedTasks, trouble: Trouble, seed: int = 1, charged: bool = True,
        slow_task_s: float = 5.0,
    ) -> None:  # fmt: skip
        self.nodes = Nodes(capacity.node_slots, trouble, seed)
        self.objects = _Objects()
        self.used_s = self.ray_s = 0.0
        self.submitted = self.arguments = self.handed_bytes = 0
        self._capacity = capacity
        self._tasks = tasks
        self._charged = charged
        self._slow_task_s = slow_task_s
        self._pins: dict[Work, list[Handle]] = {}
        self._shared: tuple[list[Handle], Inputs] = ([], Inputs([]))
        self._ended: dict[Work, None] = {}
        self._left = time.process_time()

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    @property
    def efficiency(self) -> float:
        """The share of the slots' time in which tasks worked. Relays do not count: without them, there is the same
        work."""
        return (self.nodes.busy_s - self._tasks.relayed_s) / (self._capacity.slots * self.nodes.now_s)

    def submit(
        self,
        task: Callable[..., Any],
        *inputs: Any,
        returns: int = 1,
        spread: bool = False,
        node: int | None = None,
        size: float | None = None,
    ) -> SubmittedTask:
        self._hand_over(tuple(value for value in inputs if type(value) not in (_Value, _Shared)))
        self._enter()
        handles = [value for value in inputs if type(value) is _Value]
        values = tuple(value.value if type(value) is _Shared else value for value in inputs)
        seconds, result = self._tasks.run(task, values)
        submitted = self._submit(seconds, result, handles, returns, node, size)
        self._leave()
        return submitted

    def share(self, value: Any) -> Handle:
        self._hand_over(value)
        return _Shared(value)

    def _hand_over(self, value: Any) -> None:
        """Pickle it, as Ray would: the driver's own time, until the next `_enter`."""
        self.handed_bytes += len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def _submit(
        self, seconds: float, result: Result, handles: list[Handle], returns: int, node: int | None, size: float | None
    ) -> SubmittedTask:
        self.submitted += 1
        self.arguments += len(handles)
        self._pass(driver_time.driver_s(returns, len(handles)), of_ray=True)
        wish = None if node is None else node % len(self._capacity.node_slots)
        work = Work(seconds, wish, self._awaited(handles))
        values = [_Value(work, result, number, self.objects) for number in range(returns)]
        if handles:
            self._pins[work] = self._shared[0] if handles is self._shared[0] else handles
        self.nodes.begin(work)
        if size is None:
            return SubmittedTask(values, work)

        def again(_node: str | None) -> SubmittedTask:
            return self._submit(seconds, result, handles, returns, None, size)

        return SubmittedTask(values, work, size, again)

    def _awaited(self, handles: list[Handle]) -> list[Inputs]:
        """The first input alone, and the others, which alike tasks share."""
        if not handles:
            return []
        first, works = Inputs([handles[0].work]), [handle.work for handle in handles[1:]]
        known = self._shared[1]
        if len(works) != len(known.works) or not all(map(is_, works, known.works)):
            self._shared = handles, Inputs(works)
        return [first, self._shared[1]] if works else [first]

    def finish(self, tasks: Sequence[SubmittedTask]) -> Iterator[tuple[int, TaskStats]]:
        return ended(tasks, self._capacity.slots, self, self._slow_task_s)

    # The cluster that `ended` waits with

    def now_s(self) -> float:
        return self.nodes.now_s

    def wait(self, handles: Sequence[Handle], count: int, timeout_s: float) -> Sequence[Handle]:
        self._enter()
        wanted, ready = set(handles), []
        for work in list(self._ended):
            if work in wanted:
                ready.append(work)
                del self._ended[work]
        until_s = self.nodes.now_s + timeout_s
        if until_s > HOURS_MAX * 3600:
            raise StoreError(f"nodes are lost faster than their work is done again: no end after {HOURS_MAX} hours")
        while len(ready) < count and self.nodes.now_s < until_s:
            for work in self.nodes.ends(until_s):
                self._pins.pop(work, None)
                if work in wanted:
                    ready.append(work)
                    if len(ready) >= count:
                        break
                else:
                    self._ended[work] = None
        self._leave()
        return ready

    def get(self, handle: Handle) -> Any:
        self._enter()
        if isinstance(handle, Work):
            value: Any = TaskStats(handle.seconds, 0, str(handle.node))
        else:
            value = handle.result(handle.number)
        self._leave()
        return value

    def idle_slots(self) -> int:
        return self.nodes.idle_slots

    def cancel(self, handles: Sequence[Handle]) -> None:
        self._enter()
        for work in handles:
            self.nodes.cancel(work)
            self._pins.pop(work, None)
        self._leave()

    def stop(self) -> None:
        """Nobody interrupts a simulation."""

    def spilled_bytes(self) -> int | None:
        return None

    # Time

    def used(self) -> None:
        """Count the driver's seconds since it last called."""
        self._enter()
        self._leave()

    def _enter(self) -> None:
        used_s = time.process_time() - self._left
        self.used_s += used_s
        self._pass(used_s)

    def _leave(self) -> None:
        self._left = time.process_time()

    def _pass(self, seconds: float, of_ray: bool = False) -> None:
        """Let time go by in which the driver works."""
        self.ray_s += seconds if of_ray else 0.0
        if self._charged:
            for work in self.nodes.ends(self.nodes.now_s + seconds):
                self._pins.pop(work, None)
                self._ended[work] = None
