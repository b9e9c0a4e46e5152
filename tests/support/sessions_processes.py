"""Runs dispatchers as processes, for tests that stop or kill them and look at their work.

A dispatcher runs `deltacompact-sessions dispatch` in a fork (`forks.py`), with shorter waits between its looks.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
from forks import Forks

from deltacompact import DeltaStreamCatalog
from deltacompact.delta_streams.log.state import StreamState
from sessions.cli import run

_FORKS = Forks(
    "sessions.runner.group",
    "deltacompact.executors.local",
    "deltacompact.catalog.iceberg",
    "sessions.cli.watched",
    "sessions.cli.waiting",
    "sessions.dispatch.dispatcher",
    "sessions.launchers.kuberay",
    "sessions.launchers.local",
    "sessions.launchers.ray_cluster",
    "sessions.planning.planner",
    "sessions.queues.directory",
    "sessions.queues.sqs",
)

_QUICK = {
    "sessions.dispatch.dispatcher": {"_TICK_S": 0.02, "_POLL_WHEN_DRAINING_S": 0.1, "_TROUBLED_FOR_S": 0.1},
    "sessions.dispatch.job_run_work": {"_ROUND_EVERY_S": 0.02},
    "sessions.dispatch.open_job_runs": {"_SOON_S": 0.1},
    "sessions.dispatch.looks": {"_LOOK_EVERY_S": 0.2},
    "sessions.launchers.local": {"_TERMINATED_WITHIN_S": 1.0},
    "sessions.queues.directory": {"_POLL_S": 0.02},
    "sessions.runner.branch": {"_LOOK_EVERY_S": 0.2},
    "sessions.runner.reporting": {"_WRITE_EVERY_S": 0.2},
}
"""Intervals and timeouts of dispatchers in tests: a fifth of the defaults."""


def forked(
    act: Callable[..., object],
    *arguments: object,
    log: Path,
    prepare: Callable[[], None] | None = None,
    **environment: str,
) -> ForkServerProcess:
    """Start a process as in `forks.py`, with the short intervals of `_hurry`."""
    return _FORKS.start(act, *arguments, log=log, prepare=partial(_hurry, prepare), **environment)


def _hurry(prepare: Callable[[], None] | None) -> None:
    for module, constants in _QUICK.items():
        there = vars(importlib.import_module(module))
        assert constants.keys() <= there.keys(), module
        there.update(constants)
    if prepare is not None:
        prepare()


class DispatcherProcess:
    """`deltacompact-sessions dispatch` in a process of its own; its log goes to a file."""

    def __init__(
        self,
        queue: str,
        state: str,
        log: Path,
        *options: str,
        lease_s: float = 2,
        prepare: Callable[[], None] | None = None,
        **environment: str,
    ) -> None:
        command = ["dispatch", "--queue", queue, "--state", state, "--lease", str(lease_s), "--visibility", "3"]
        self.log = log
        self.process = forked(run, [*command, *options], log=log, prepare=prepare, **environment)
        self._seen: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def runners(self) -> list[psutil.Process]:
        """The processes of its groups, which its fork server forked."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [
                forked for child in psutil.Process(self.pid).children() for forked in child.children() if _runs(forked)
            ]
        return []

    def everything(self) -> list[psutil.Process]:
        """The dispatcher and all processes that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def kill(self) -> None:
        """Send SIGKILL to the dispatcher alone. Its groups go on."""
        self._seen.update(self.everything())
        self.process.kill()
        self.process.join()

    def end(self) -> None:
        """Kill the dispatcher and all processes that it started."""
        self._seen.update(self.everything())
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.join()

    def wait(self, timeout_s: float) -> int:
        self.process.join(timeout_s)
        assert self.process.exitcode is not None, f"not within {timeout_s} s: the dispatcher ends"
        return self.process.exitcode


@contextlib.contextmanager
def dispatching(*arguments, **named) -> Iterator[DispatcherProcess]:
    dispatcher = DispatcherProcess(*arguments, **named)
    try:
        yield dispatcher
    finally:
        dispatcher.end()


def until(happened: Callable[[], object], what: str, timeout_s: float = 60.0):
    """Wait until `happened` returns something true, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if result := happened():
            return result
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def suspend(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)


def resume(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def chain(catalog: DeltaStreamCatalog, table_id: str, partition: dict[str, str] | None = None) -> list[StreamState]:
    """Every version of a stream, as a new reader finds it."""
    fresh = DeltaStreamCatalog(catalog.store)
    return list(fresh.log(table_id, fresh.partition(table_id, partition)).chain())


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
