"""Joins a Ray cluster, or starts one on this machine: with `ray.py`, the only file that imports ray.

ray_address, or RAY_ADDRESS      joined
"auto"                           the cluster that runs on this machine
"local", or neither              started here, for as long as the process lives
nobody answers there             an error after seconds: Ray alone would wait for minutes
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from deltacompact.base.children import environment_of_children
from deltacompact.base.errors import ClusterError, DeltaCompactError, InputError, StoreError
from deltacompact.base.limits import Limits
from deltacompact.base.missing import importing
from deltacompact.base.one_heap import ARROW_CHOSEN_BY
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.executors.ray_address import address_of
from deltacompact.executors.ray_messages import in_one_line

with importing("grpc", "ray"):
    import grpc
    import ray

_LOG = logging.getLogger("deltacompact")

_OTHER_VERSION = "Version mismatch"
"""How Ray's RuntimeError begins if the cluster runs another version of Ray or Python."""
_OOM_RETRIES = "task_oom_retries"
"""By default, Ray restarts a task that runs out of memory again and again, without end."""
_ERRORS_ARE_RAISED = "RAY_IGNORE_UNHANDLED_ERRORS"
_KEPT_BYTES = 256 << 20
WORKER_ENVIRONMENT = {
    ARROW_CHOSEN_BY: "system",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
    f":glibc.malloc.trim_threshold={_KEPT_BYTES}:glibc.malloc.mmap_threshold={_KEPT_BYTES}",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Tasks touch hundreds of MiB of fresh memory. Huge pages saved a third of the CPU time of all stages; one heap
(base/one_heap.py) saved another twentieth, and of rows of 1 KB a quarter of the memory."""


def connect(settings: Settings) -> bool:
    """Join or start a cluster. True: this call started it."""
    if ray.is_initialized():
        return False
    address = address_of(settings)
    if address is not None:
        _await_answer(address, settings.limits)
        started: dict[str, Any] = {"address": address, "runtime_env": {"env_vars": WORKER_ENVIRONMENT}}
    else:
        # Without "local", Ray would join the cluster that was last started on this machine, even if it has ended.
        started = {
            "address": "local",
            "include_dashboard": False,
            "_system_config": {_OOM_RETRIES: settings.task_retries},
        }
        if settings.object_store_bytes:
            started["object_store_memory"] = settings.object_store_bytes
    joins = started["address"] != "local"
    # who joins a cluster cannot configure it, but the driver counts the retries, and Ray reads its variable once
    environment = {f"RAY_{_OOM_RETRIES}": str(settings.task_retries)} if joins else WORKER_ENVIRONMENT
    log_what_ray_says()
    try:
        with environment_of_children(environment), _same_end():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **started)
    except Exception as error:  # of a node that was too slow to start, Ray raises Exception itself
        where = f"at {address}" if joins else "on this machine"
        raise _refused(error, joins)(f"no Ray cluster {where}: {text_of(error)[:200]}") from error
    return not joins


def _refused(error: Exception, joins: bool) -> type[DeltaCompactError]:
    """The class for an error of ray.init. A head that has just begun to answer raises a RuntimeError, too."""
    if isinstance(error, ValueError) or text_of(error).startswith(_OTHER_VERSION):
        return InputError
    if isinstance(error, ConnectionError | RuntimeError):
        return ClusterError if joins else InputError
    return StoreError


def log_what_ray_says() -> None:
    """Log what Ray says of its cluster, a worker's death for instance: Ray prints it to stdout, among our results.

    `log_to_driver` does not stop that. Only a private function of Ray can; if it has gone, Ray prints as before.

    A task's error is raised where its result is wanted. Ray would also print it, in many lines, for each value of the
    task, and for each other task that failed or was cancelled: it takes errors that nobody asks for as unhandled.
    """
    os.environ.setdefault(_ERRORS_ARE_RAISED, "1")
    from ray._private import worker

    printed = getattr(worker, "print_to_stdstream", None)
    if printed is None or printed.__module__ == __name__:  # the second: it was done before
        return
    last: str | None = None

    def log(data: dict[str, Any], *options: Any, **named: Any) -> None:
        nonlocal last
        if data.get("pid") != "raylet":
            printed(data, *options, **named)
            return
        for line in map(in_one_line, data["lines"]):
            if line and line != last:  # each task of a node that dies tells it
                _LOG.warning(line)
                last = line

    worker.print_to_stdstream = log


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
    """Wait until a Ray cluster answers. Raises ClusterError after `ray_answer_s`: ray.init would wait for minutes.

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
        raise ClusterError(
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
            raise ClusterError("Ray address 'auto': no cluster runs on this machine (start one: ray start --head)")
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
