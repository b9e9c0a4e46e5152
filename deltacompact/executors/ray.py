"""Tasks on a Ray cluster: the only file that imports ray.

Tasks return values and never put them: when a node is lost, Ray rebuilds by lineage only values that the driver owns.
Values that the driver shares stay with the driver. Hash bucket and materialize tasks are spread; the tasks between them
run on the node of their parcels (shuffle.py).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil

from deltacompact.base.children import environment_of_children
from deltacompact.base.errors import DeltaCompactError, InputError, StoreError
from deltacompact.base.limits import Limits
from deltacompact.base.missing import importing
from deltacompact.base.one_heap import ARROW_CHOSEN_BY
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.executors.claims import RayNode, TaskClaim
from deltacompact.executors.executor import Handle, SubmittedTask, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.executors.runs import ended
from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace
from deltacompact.tabular import allocator as arrow_memory

with importing("grpc", "ray"):
    import grpc
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_LOG = logging.getLogger("deltacompact")
_LOG_EVERY_S = 10.0

_OBJECT_STORE_SHARE = 0.3
"""The share of the free memory that Ray takes for its object store by default."""

_KEPT_BYTES = 256 << 20
WORKER_ENVIRONMENT = {
    ARROW_CHOSEN_BY: "system",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
    f":glibc.malloc.trim_threshold={_KEPT_BYTES}:glibc.malloc.mmap_threshold={_KEPT_BYTES}",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Tasks touch hundreds of MiB of fresh memory. Huge pages saved a third of the CPU time of all stages; one heap
(base/one_heap.py) saved another twentieth, and of rows of 1 KB a quarter of the memory."""


class RayExecutor:
    """Joins the running cluster, or starts one on this machine that lives as long as the process. Claims: claims.py."""

    name = "ray"
    tasks_per_process = 1

    def __init__(self, settings: Settings, beside: bool = False) -> None:
        """`beside`: tasks also run in this process meanwhile, and take their share of the rate limits."""
        self._settings = settings
        started_here = _connect(settings)
        self._claim = _claim(settings, _nodes_awaited(settings.ray_cpus, settings.ray_wait_s))
        self._capacity = _capacity(settings, self._claim, ray.cluster_resources())
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
            "retry_exceptions": [StoreError],
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
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):  # keep its class and message; the worker's traceback is the cause
                raise error.cause from error
            raise DeltaCompactError(f"a task failed: {str(error).strip().splitlines()[-1]}") from error
        except ray.exceptions.OutOfMemoryError as error:
            raise DeltaCompactError("a task ran out of memory: plan smaller ones (memory_per_task_bytes)") from error
        except ray.exceptions.RayError as error:
            reason = text_of(error)[:200]
            raise StoreError(f"the Ray cluster lost a task for good ({type(error).__name__}): {reason}") from error

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


def foreseen_capacity(settings: Settings) -> tuple[Capacity, str | None]:
    """The capacity that a RayExecutor would have, and why it is a guess (None: the cluster is running).

    Joins a named cluster. Starts no cluster, and makes none grow.
    """
    if not ray.is_initialized() and _address(settings) is None:
        found = _resources_here()
        here = RayNode("here", os.cpu_count() or 1, int(found["memory"]))
        return _capacity(settings, _claim(settings, [here]), found), "no Ray cluster runs yet"
    _connect(settings)
    nodes, wanted = _nodes(), settings.ray_cpus or 1
    cpus = _cpus(nodes)
    assumed = None if cpus >= wanted else f"{cpus} of {wanted} CPUs are there"
    claim = _claim(settings, nodes or [RayNode("to come", wanted)])
    return _capacity(settings, claim, ray.cluster_resources()), assumed


def _claim(settings: Settings, nodes: Sequence[RayNode]) -> TaskClaim:
    return TaskClaim.of(nodes, settings.concurrent_tasks, settings.memory_per_task_bytes)


def _capacity(settings: Settings, claim: TaskClaim, resources: dict[str, float]) -> Capacity:
    return claim.capacity(settings.object_store_bytes or int(resources.get("object_store_memory", 1 << 30)))


def _resources_here() -> dict[str, float]:
    """About the resources that Ray would find on this machine: free memory for tasks and for the object store."""
    free = psutil.virtual_memory().available
    return {"memory": free * (1 - _OBJECT_STORE_SHARE), "object_store_memory": free * _OBJECT_STORE_SHARE}


def _nodes_awaited(cpus_wanted: int | None, wait_s: float) -> list[RayNode]:
    """The nodes, as soon as `cpus_wanted` (None: any) are there, and after `wait_s` seconds in any case.

    Asks Ray for the CPUs so that the autoscaler adds nodes, then polls. The request ends with this call or this
    process; the autoscaler removes idle nodes later.
    """
    nodes, wanted = _nodes(), cpus_wanted or 1
    if _cpus(nodes) >= wanted:
        return nodes
    request = ray.util.placement_group([{"CPU": 1}] * wanted, strategy="PACK")
    try:
        deadline_s, logged_s = time.monotonic() + wait_s, time.monotonic()
        while (cpus := _cpus(nodes)) < wanted and time.monotonic() < deadline_s:
            if time.monotonic() - logged_s > _LOG_EVERY_S:
                logged_s = time.monotonic()
                _LOG.warning("waiting for the Ray cluster: %d of %d CPUs are there", cpus, wanted)
            time.sleep(min(1.0, wait_s))
            nodes = _nodes()
    finally:
        ray.util.remove_placement_group(request)
    if not nodes:
        raise InputError(f"the Ray cluster has no CPU for tasks, and none came within {wait_s:g} s (ray_wait_s)")
    return nodes


def _nodes() -> list[RayNode]:
    """The nodes with CPUs for tasks."""
    found = [(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    nodes = [RayNode(id_, int(has.get("CPU", 0)), int(has.get("memory", 0))) for id_, has in sorted(found)]
    return [node for node in nodes if node.cpus]


def _cpus(nodes: Sequence[RayNode]) -> int:
    return sum(node.cpus for node in nodes)


def _address(settings: Settings) -> str | None:
    """The address of the cluster to join; None: start one on this machine."""
    address = settings.ray_address or os.environ.get("RAY_ADDRESS")
    return address if address and address != "local" else None


def _connect(settings: Settings) -> bool:
    """Join or start a cluster. True: this call started it."""
    if ray.is_initialized():
        return False
    address = _address(settings)
    if address is not None:
        _await_answer(address, settings.limits)
        started: dict[str, Any] = {"address": address, "runtime_env": {"env_vars": WORKER_ENVIRONMENT}}
    else:
        # Without "local", Ray would join the cluster that was last started on this machine, even if it has ended.
        # By default, Ray restarts a task that runs out of memory again and again, without end.
        started = {
            "address": "local",
            "include_dashboard": False,
            "_system_config": {"task_oom_retries": settings.task_retries},
        }
        if settings.object_store_bytes:
            started["object_store_memory"] = settings.object_store_bytes
    joins = started["address"] != "local"
    try:
        with environment_of_children({} if joins else WORKER_ENVIRONMENT), _same_end():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **started)
    except Exception as error:  # of a node that was too slow to start, Ray raises Exception itself
        where = f"at {address}" if joins else "on this machine"
        refused = InputError if isinstance(error, (ConnectionError, ValueError, RuntimeError)) else StoreError
        raise refused(f"no Ray cluster {where}: {text_of(error)[:200]}") from error
    return not joins


@contextlib.contextmanager
def _same_end() -> Iterator[None]:
    """Let SIGTERM end this process as before: Ray sets a handler of its own, which exits with status 15.

    If nobody has a handler, Ray's stays: it ends a cluster that was started here.
    """
    former = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:  # it came meanwhile
        if callable(former):
            former(signal.SIGTERM, None)
        raise
    finally:
        if callable(former) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, former)


def _await_answer(address: str, limits: Limits) -> None:
    """Wait until a Ray cluster answers. Raises InputError after `ray_answer_s`: ray.init would wait for minutes.

    Logs a line if the cluster does not answer within `ray_silent_s`.
    """
    target = _host_and_port(address)
    where = f"{address} ({target})" if address == "auto" else address
    notice = threading.Timer(limits.ray_silent_s, _LOG.warning, [f"connecting to the Ray cluster at {where} ..."])
    notice.daemon = True
    notice.start()
    try:
        found = _answers(target, address.startswith("ray://"), limits.ray_answer_s)
    finally:
        notice.cancel()
    if not found:
        raise InputError(
            f"no Ray cluster answers at {where} within {limits.ray_answer_s:g} s: is it running, and is this its "
            "address? (ray_address or RAY_ADDRESS; unset both to start Ray on this machine)"
        )


def _host_and_port(address: str) -> str:
    if address == "auto":
        from ray._private.services import canonicalize_bootstrap_address

        try:
            found = canonicalize_bootstrap_address(address)
        except ConnectionError:
            found = None
        if found is None:
            raise InputError("Ray address 'auto': no cluster runs on this machine (start one: ray start --head)")
        return str(found)
    target = address.removeprefix("ray://").rstrip("/")
    host, colon, port = target.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536) or "/" in target:
        raise InputError(
            f"{address!r} is not a Ray address: write host:port, ray://host:port, 'auto', or 'local' for a new cluster"
        )
    return target


def _answers(target: str, ray_client: bool, within_s: float) -> bool:
    """Whether a Ray head (or its client server) answers in time. An answer of another program does not count."""
    deadline_s = time.monotonic() + within_s
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
        return _is_open(target, deadline_s)  # only Ray knows its certificates
    channel = grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 2000)])
    try:
        grpc.channel_ready_future(channel).result(timeout=within_s)
        if not ray_client:
            method = "/ray.rpc.NodeInfoGcsService/CheckAlive"
            channel.unary_unary(method)(b"", timeout=max(1.0, deadline_s - time.monotonic()))
    except grpc.FutureTimeoutError:
        return False
    except grpc.RpcError as error:
        no_head = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
        return error.code() not in no_head  # other errors come from a head, which wants a token, for instance
    finally:
        channel.close()
    return True


def _is_open(target: str, deadline_s: float) -> bool:
    host, _, port = target.rpartition(":")
    while (left_s := deadline_s - time.monotonic()) > 0:
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), left_s):
            return True
        time.sleep(min(0.5, left_s))
    return False
