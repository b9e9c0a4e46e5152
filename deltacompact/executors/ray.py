"""Tasks on a Ray cluster. With ray_connection.py, the only file that imports ray.

Tasks return values and never put them: when a node is lost, Ray rebuilds by lineage only values that the driver owns.
Values that the driver shares stay with the driver. Hash bucket and materialize tasks are spread; the tasks between them
run on the node of their parcels (shuffle.py).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil

from deltacompact.base import machine
from deltacompact.base.errors import ClusterError, DeltaCompactError, StoreError
from deltacompact.base.missing import importing
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.executors.claims import RayNode, TaskClaim
from deltacompact.executors.executor import Handle, SubmittedTask, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.executors.ray_address import address_of
from deltacompact.executors.ray_connection import connect
from deltacompact.executors.runs import ended
from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace
from deltacompact.tabular import allocator as arrow_memory

with importing("ray"):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_LOG = logging.getLogger("deltacompact")
_LOG_EVERY_S = 10.0

_OBJECT_STORE_SHARE = 0.3
"""The share of the free memory that Ray takes for its object store by default."""

_IN_VAIN_FOR_S = 3600.0
"""After a wait in vain this process does not wait for as many CPUs again for this time."""


class RayExecutor:
    """Joins the running cluster, or starts one on this machine that lives as long as the process. Claims: claims.py."""

    name = "ray"
    tasks_per_process = 1

    def __init__(self, settings: Settings, beside: bool = False, waits: bool = False) -> None:
        """`beside`: tasks also run in this process meanwhile, and take their share of the rate limits.

        `waits`: the store is remote.
        """
        self._settings = settings
        started_here = connect(settings)
        self._claim = _claim(settings, _nodes_awaited(settings.ray_cpus, settings.ray_wait_s))
        self._capacity = _capacity(settings, self._claim, ray.cluster_resources(), waits)
        self._turns = itertools.count()
        slots = self._capacity.slots
        self.pace = Pace.of(settings, slots + beside)
        self.stopped = threading.Event()
        if started_here:
            # Do not wait: new workers import what tasks need while the driver reads logs and plans.
            self._warmed = [_warm.remote() for _ in range(slots)]

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def submit(
        self,
        task: Callable[..., Any],
        *inputs: Any,
        returns: int = 1,
        spread: bool = False,
        node: int | None = None,
        size: float | None = None,
    ) -> SubmittedTask:
        return self._submit(self._strategy(spread, node), task, inputs, returns, size)

    def _submit(
        self, strategy: Any, task: Callable[..., Any], inputs: tuple[Any, ...], returns: int, size: float | None
    ) -> SubmittedTask:
        options = {
            "name": task.__name__,
            "num_returns": returns + 1,
            "num_cpus": self._claim.cpus,
            "memory": self._claim.memory_bytes,
            "scheduling_strategy": strategy,
            "max_retries": self._settings.task_retries,
        }
        *values, stats = _run.options(**options).remote(task, returns, *inputs)
        if size is None:
            return SubmittedTask(values, stats)
        return SubmittedTask(
            values, stats, size, lambda node: self._submit(self._elsewhere(node), task, inputs, returns, size)
        )

    def _strategy(self, spread: bool, node: int | None) -> Any:
        """Affinity is soft: when a node is lost, its tasks run elsewhere and fetch their inputs."""
        nodes = self._claim.nodes
        if self._claim.everywhere and (node is None or len(nodes) == 1):
            return "SPREAD" if spread else "DEFAULT"
        number = next(self._turns) if node is None else node
        return NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)

    def _elsewhere(self, node: str | None) -> Any:
        """A strategy that prefers a node, and takes others while it is busy or gone."""
        if not self._claim.everywhere:
            return self._strategy(True, None)
        if node is None or len(self._claim.nodes) == 1:
            return "SPREAD"
        return NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)

    def finish(self, tasks: Sequence[SubmittedTask]) -> Iterator[tuple[int, TaskStats]]:
        return ended(tasks, self._capacity.slots, self, self._settings.limits.slow_task_s)

    def now_s(self) -> float:
        return time.monotonic()

    def wait(self, handles: Sequence[Handle], count: int, timeout_s: float) -> Sequence[Handle]:
        """As `Cluster.wait`. Raises KeyboardInterrupt once the sessions have been told to end."""
        ready: list[Handle]
        ready, rest = ray.wait(handles, num_returns=count, timeout=timeout_s)
        if self.stopped.is_set():
            raise KeyboardInterrupt
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return ready

    def idle_slots(self) -> int:
        return int(ray.available_resources().get("CPU", 0)) // self._claim.cpus

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Tell tasks to end. A vacuum deletes what they have written by then."""
        for handle in handles:
            with contextlib.suppress(Exception):
                ray.cancel(handle)

    def get(self, handle: Handle) -> Any:
        try:
            return ray.get(handle)
        except ray.exceptions.RayError as error:
            raise _told(error) from error  # the worker's traceback is in the cause

    def share(self, value: Any) -> Handle:
        return ray.put(value)

    def stop(self) -> None:
        self.stopped.set()

    def spilled_bytes(self) -> int | None:
        """Bytes spilled on all nodes; None: Ray does not say. Only a private call of Ray tells it."""
        try:
            from ray._private.internal_api import get_memory_info_reply, get_state_from_address

            address = ray.get_runtime_context().gcs_address
            return int(get_memory_info_reply(get_state_from_address(address)).store_stats.spilled_bytes_total)
        except Exception:
            return None


def _told(error: Exception) -> Exception:
    """What a task that failed says. Its own error keeps class and message.

    If Ray cannot hand a task its inputs, the task's own error is one of Ray's: that of the task that made them.
    """
    if isinstance(error, ray.exceptions.RayTaskError):
        if isinstance(error.cause, ray.exceptions.RayError):
            return _told(error.cause)
        if isinstance(error.cause, Exception):
            return error.cause
        return DeltaCompactError(f"a task failed: {str(error).strip().splitlines()[-1]}")
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return DeltaCompactError("a task ran out of memory: plan smaller ones (memory_per_task_bytes)")
    return StoreError(f"the Ray cluster lost a task for good ({type(error).__name__}): {text_of(error)[:200]}")


@ray.remote(num_cpus=1)
def _run(task: Callable[..., Any], returns: int, *inputs: Any) -> Iterator[Any]:
    began_cpu_s = time.process_time()
    arrow_memory.choose()
    for value in run_measured(task, inputs, returns):
        yield _of_this_node(value, began_cpu_s) if isinstance(value, TaskStats) else value


def _of_this_node(stats: TaskStats, began_cpu_s: float) -> TaskStats:
    node = ray.get_runtime_context().get_node_id()
    return replace(stats, node=node, cpu_seconds=time.process_time() - began_cpu_s)


@ray.remote(num_cpus=1)
def _warm() -> None:
    import pyarrow as pa

    pa.array([0])  # the first call in a process looks for pandas


def foreseen_capacity(settings: Settings, waits: bool = False) -> tuple[Capacity, str | None]:
    """The capacity that a RayExecutor would have, and why it is a guess (None: the cluster is running).

    Joins a named cluster. Starts no cluster, and makes none grow.
    """
    if not ray.is_initialized() and address_of(settings) is None:
        found = _resources_here()
        here = RayNode("here", machine.cpus(), int(found["memory"]))
        return _capacity(settings, _claim(settings, [here]), found, waits), "no Ray cluster runs yet"
    connect(settings)
    nodes, wanted = _nodes(), settings.ray_cpus or 1
    cpus = _cpus(nodes)
    assumed = None if cpus >= wanted else f"{cpus} of {wanted} CPUs are there"
    claim = _claim(settings, nodes or [RayNode("to come", wanted)])
    return _capacity(settings, claim, ray.cluster_resources(), waits), assumed


def _claim(settings: Settings, nodes: Sequence[RayNode]) -> TaskClaim:
    return TaskClaim.of(nodes, settings.concurrent_tasks, settings.memory_per_task_bytes)


def _capacity(settings: Settings, claim: TaskClaim, resources: dict[str, float], waits: bool) -> Capacity:
    object_store_bytes = settings.object_store_bytes or int(resources.get("object_store_memory", 1 << 30))
    return claim.capacity(object_store_bytes, is_near=not waits)


def _resources_here() -> dict[str, float]:
    """About the resources that Ray would find on this machine: free memory for tasks and for the object store."""
    free = min(psutil.virtual_memory().available, machine.memory_bytes())
    return {"memory": free * (1 - _OBJECT_STORE_SHARE), "object_store_memory": free * _OBJECT_STORE_SHARE}


def _nodes_awaited(cpus_wanted: int | None, wait_s: float) -> list[RayNode]:
    """The nodes, as soon as `cpus_wanted` (None: any) are there, and after `wait_s` seconds in any case.

    Asks Ray for the CPUs so that the autoscaler adds nodes, then polls. The request ends with this call or this
    process; the autoscaler removes idle nodes later. A process with many sessions waits in vain once, not in each:
    then it takes as many CPUs as came, and if some of those have gone, it asks for all and waits for as many.
    """
    nodes, wanted, cluster = _nodes(), cpus_wanted or 1, ray.get_runtime_context().gcs_address
    enough = _enough(cluster, wanted)
    if _cpus(nodes) >= enough:
        return nodes
    request = ray.util.placement_group([{"CPU": 1}] * wanted, strategy="PACK")
    try:
        deadline_s, logged_s = time.monotonic() + wait_s, time.monotonic()
        while (cpus := _cpus(nodes)) < enough and time.monotonic() < deadline_s:
            if time.monotonic() - logged_s > _LOG_EVERY_S:
                logged_s = time.monotonic()
                _LOG.warning("waiting for the Ray cluster: %d of %d CPUs are there", cpus, wanted)
            time.sleep(min(1.0, wait_s))
            nodes = _nodes()
    finally:
        ray.util.remove_placement_group(request)
    if not nodes:
        raise ClusterError(f"the Ray cluster has no CPU for tasks, and none came within {wait_s:g} s (ray_wait_s)")
    if cpus < enough:
        _in_vain[cluster] = _WaitInVain(wanted, cpus, time.monotonic() + _IN_VAIN_FOR_S)
    return nodes


@dataclass(frozen=True, slots=True)
class _WaitInVain:
    """Of so many wanted CPUs of a cluster so many came. Until `until_s` nobody waits for more."""

    wanted: int
    came: int
    until_s: float


_in_vain: dict[str, _WaitInVain] = {}
"""The last one by cluster."""


def _enough(cluster: str, wanted: int) -> int:
    """How many CPUs are worth a wait."""
    last = _in_vain.get(cluster)
    if last is None or wanted < last.wanted or time.monotonic() >= last.until_s:
        return wanted
    return last.came


def _nodes() -> list[RayNode]:
    """The nodes with CPUs for tasks."""
    found = [(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    nodes = [RayNode(id_, int(has.get("CPU", 0)), int(has.get("memory", 0))) for id_, has in sorted(found)]
    return [node for node in nodes if node.cpus]


def _cpus(nodes: Sequence[RayNode]) -> int:
    return sum(node.cpus for node in nodes)
