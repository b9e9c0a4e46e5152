"""Tasks on a Ray cluster: the only file that imports ray.

Values are returned, never put from inside a task: what the driver owns is rebuilt by lineage when a node is lost. Hash
bucket and materialize tasks are spread; those between them go to the node that their parcels are for (shuffle.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deltacompact.base.errors import DeltaCompactError, InputError, StoreError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.executors.executor import Handle, Submitted, TaskStats
from deltacompact.executors.measure import run_measured
from deltacompact.planning.plan import Capacity
from deltacompact.storage.throttle import Pace
from deltacompact.tabular import allocator as arrow_memory

_LOG = logging.getLogger("deltacompact")
_TELL_EVERY_S = 10.0

_HEAP_SHARE = 0.7
"""Of a node's memory, what is left for tasks beside object store and system."""

_OBJECT_STORE_SHARE = 0.3
"""Of the memory that is free, what Ray takes for its object store where nobody says."""

WORKER_ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Tasks touch hundreds of MiB of fresh memory: in huge pages that took a third less CPU time, all stages together."""


class RayExecutor:
    """One CPU a task. Joins the running cluster, or starts one on this machine that lives as long as the process."""

    name = "ray"
    tasks_per_process = 1

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        started_here = _connect(settings)
        nodes = _nodes_awaited(settings.ray_cpus, settings.ray_wait_s)
        self._cpus_per_task = _cpus_per_task(settings, nodes)
        self._capacity = _capacity(settings, nodes, ray.cluster_resources())
        self._nodes = list(nodes)
        slots = self._capacity.slots
        self.pace = Pace.of(settings, slots)
        if started_here:
            # Not waited for: new workers import what tasks need while the driver reads logs and plans.
            self._warmed = [_warm.remote() for _ in range(slots)]

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    def submit(
        self, task: Callable[..., Any], *inputs: Any, returns: int = 1, spread: bool = False, node: int | None = None
    ) -> Submitted:
        options = {
            "name": task.__name__,
            "num_returns": returns + 1,
            "num_cpus": self._cpus_per_task,
            "scheduling_strategy": self._strategy(spread, node),
            "max_retries": self._settings.task_retries,
            "retry_exceptions": [StoreError],
        }
        *values, stats = _run.options(**options).remote(task, returns, *inputs)
        return Submitted(values, stats)

    def _strategy(self, spread: bool, node: int | None) -> Any:
        """Softly: where a node is lost, its tasks run elsewhere, and have their inputs brought there."""
        if node is None or len(self._nodes) == 1:
            return "SPREAD" if spread else "DEFAULT"
        return NodeAffinitySchedulingStrategy(self._nodes[node % len(self._nodes)], soft=True)

    def finish(self, tasks: Sequence[Submitted]) -> Iterator[tuple[int, TaskStats]]:
        places = {task.stats: place for place, task in enumerate(tasks)}
        waiting = list(places)
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, num_returns=1, timeout=None)
                more, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
                for stats in [*ready, *more]:
                    yield places[stats], self.get(stats)
        except BaseException:
            for stats in waiting:
                with contextlib.suppress(Exception):
                    ray.cancel(stats)
            raise

    def get(self, handle: Handle) -> Any:
        try:
            return ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):  # with its own class and message, and the worker's traceback behind
                raise error.cause from error
            raise DeltaCompactError(f"a task failed: {str(error).strip().splitlines()[-1]}") from error
        except ray.exceptions.OutOfMemoryError as error:
            raise DeltaCompactError("a task ran out of memory: plan smaller ones (memory_per_task_bytes)") from error
        except ray.exceptions.RayError as error:
            reason = text_of(error)[:200]
            raise StoreError(f"the Ray cluster lost a task for good ({type(error).__name__}): {reason}") from error

    def spilled_bytes(self) -> int | None:
        """Of all nodes. Ray tells it by gRPC alone, and by a call that it does not promise to keep."""
        try:
            from ray._private.internal_api import get_memory_info_reply, get_state_from_address

            address = ray.get_runtime_context().gcs_address
            return int(get_memory_info_reply(get_state_from_address(address)).store_stats.spilled_bytes_total)
        except Exception:
            return None


@ray.remote(num_cpus=1)
def _run(task: Callable[..., Any], returns: int, *inputs: Any) -> Iterator[Any]:
    arrow_memory.choose()
    yield from run_measured(task, inputs, returns)


@ray.remote(num_cpus=1)
def _warm() -> None:
    import pyarrow as pa

    pa.array([0])  # the first one looks for pandas


def foreseen_capacity(settings: Settings) -> tuple[Capacity, str | None]:
    """The capacity that a RayExecutor would have, and why it is assumed (None: it is that of the running cluster).

    Joins a cluster where one is named, but starts none and asks none to grow.
    """
    if not ray.is_initialized() and _address(settings) is None:
        return _capacity(settings, {"here": os.cpu_count() or 1}, _resources_here()), "no Ray cluster runs yet"
    _connect(settings)
    nodes, wanted = _nodes(), settings.ray_cpus or 1
    there = sum(nodes.values())
    assumed = None if there >= wanted else f"{there} of {wanted} CPUs are there"
    return _capacity(settings, nodes or {"to come": wanted}, ray.cluster_resources()), assumed


def _cpus_per_task(settings: Settings, nodes: dict[str, int]) -> int:
    """Fewer tasks at a time are larger ones to Ray, wherever it puts them."""
    cpus = sum(nodes.values())
    return math.ceil(cpus / min(cpus, settings.concurrent_tasks or cpus))


def _capacity(settings: Settings, nodes: dict[str, int], resources: dict[str, float]) -> Capacity:
    slots = sum(nodes.values()) // _cpus_per_task(settings, nodes)
    memory = resources.get("memory", 0.0) or 4 << 30
    return Capacity(
        slots,
        settings.memory_per_task_bytes or int(memory * _HEAP_SHARE / slots),
        settings.object_store_bytes or int(resources.get("object_store_memory", 1 << 30)),
        tuple(nodes.values()),
    )


def _resources_here() -> dict[str, float]:
    """About what Ray would take of this machine: its free memory, for tasks and object store."""
    free = psutil.virtual_memory().available
    return {"memory": free * (1 - _OBJECT_STORE_SHARE), "object_store_memory": free * _OBJECT_STORE_SHARE}


def _nodes_awaited(cpus_wanted: int | None, wait_s: float) -> dict[str, int]:
    """CPUs by node, once so many are there (None: any), or what is there after so many seconds.

    Ask Ray for the CPUs so that the autoscaler adds nodes, then poll. The wish ends with this call, or with this
    process: nodes that nothing runs on go when they have been idle.
    """
    nodes = _nodes()
    if nodes and sum(nodes.values()) >= (cpus_wanted or 1):
        return nodes
    wanted = cpus_wanted or 1
    wish = ray.util.placement_group([{"CPU": 1}] * wanted, strategy="PACK")
    try:
        deadline_s, told_s = time.monotonic() + wait_s, time.monotonic()
        while sum(nodes.values()) < wanted and time.monotonic() < deadline_s:
            if time.monotonic() - told_s > _TELL_EVERY_S:
                told_s = time.monotonic()
                _LOG.warning("waiting for the Ray cluster: %d of %d CPUs are there", sum(nodes.values()), wanted)
            time.sleep(min(1.0, wait_s))
            nodes = _nodes()
    finally:
        ray.util.remove_placement_group(wish)
    if not nodes:
        raise InputError(f"the Ray cluster has no CPU for tasks, and none came within {wait_s:g} s (ray_wait_s)")
    return nodes


def _nodes() -> dict[str, int]:
    found = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    return {node: cpus for node, cpus in sorted(found.items()) if cpus}


def _address(settings: Settings) -> str | None:
    """Of the cluster to join; None where one is to be started here."""
    address = settings.ray_address or os.environ.get("RAY_ADDRESS")
    return address if address and address != "local" else None


def _connect(settings: Settings) -> bool:
    """Whether a cluster was started."""
    if ray.is_initialized():
        return False
    address = _address(settings)
    if address is not None:
        _await_answer(address, settings.limits)
        started: dict[str, Any] = {"address": address, "runtime_env": {"env_vars": WORKER_ENVIRONMENT}}
    else:
        # "local", or Ray would join whatever cluster was last started here, even one that is no more.
        # A task that runs out of memory is started again for ever by default.
        started = {
            "address": "local",
            "include_dashboard": False,
            "_system_config": {"task_oom_retries": settings.task_retries},
        }
        if settings.object_store_bytes:
            started["object_store_memory"] = settings.object_store_bytes
    joins = started["address"] != "local"
    try:
        with _environment({} if joins else WORKER_ENVIRONMENT):
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **started)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"at {address}" if joins else "on this machine"
        raise InputError(f"no Ray cluster {where}: {text_of(error)[:200]}") from error
    return not joins


def _await_answer(address: str, limits: Limits) -> None:
    """Wait until a Ray cluster answers there. Raises InputError after 30 seconds: ray.init would wait for minutes.

    A cluster that answers at once is not worth a line.
    """
    target = _host_and_port(address)
    where = f"{address} ({target})" if address == "auto" else address
    told = threading.Timer(limits.ray_silent_s, _LOG.warning, [f"connecting to the Ray cluster at {where} ..."])
    told.daemon = True
    told.start()
    try:
        found = _answers(target, address.startswith("ray://"), limits.ray_answer_s)
    finally:
        told.cancel()
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
            f"Ray address {address!r} is none: write host:port, ray://host:port, 'auto', or 'local' for a new one"
        )
    return target


def _answers(target: str, ray_client: bool, within_s: float) -> bool:
    """Whether a Ray head (or its client server) answers there in time. Something else that listens does not count."""
    deadline_s = time.monotonic() + within_s
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
        return _is_open(target, deadline_s)  # certificates are Ray's own business
    channel = grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 2000)])
    try:
        grpc.channel_ready_future(channel).result(timeout=within_s)
        if not ray_client:
            method = "/ray.rpc.NodeInfoGcsService/CheckAlive"
            channel.unary_unary(method)(b"", timeout=max(1.0, deadline_s - time.monotonic()))
    except grpc.FutureTimeoutError:
        return False
    except grpc.RpcError as error:
        nobody = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
        return error.code() not in nobody  # a head that wants a token from us is one
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


@contextlib.contextmanager
def _environment(added: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that are started inside the block; what is set already stays."""
    mine = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]
