"""Dispatchers as processes, for tests that stop and kill them, and what became of their work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from deltacompact import DeltaStreamCatalog
from deltacompact.delta_streams.log.state import StreamState

ROOT = Path(__file__).parents[2]


class DispatcherProcess:
    """`deltacompact-sessions dispatch` in a process of its own; its log goes to a file."""

    def __init__(
        self, queue: str, state: str, log: Path, *options: str, lease_s: float = 2, **environment: str
    ) -> None:
        command = [sys.executable, "-m", "sessions", "dispatch", "--queue", queue, "--state", state]
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*command, "--lease", str(lease_s), "--visibility", "3", *options],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            )
        self._seen: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def runners(self) -> list[psutil.Process]:
        """The processes of its groups: what its fork server has forked."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [
                forked for child in psutil.Process(self.pid).children() for forked in child.children() if _runs(forked)
            ]
        return []

    def everything(self) -> list[psutil.Process]:
        """Itself and all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def kill(self) -> None:
        """SIGKILL, to the dispatcher alone: its groups go on."""
        self._seen.update(self.everything())
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Nothing of it is left."""
        self._seen.update(self.everything())
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def dispatching(*arguments, **named) -> Iterator[DispatcherProcess]:
    dispatcher = DispatcherProcess(*arguments, **named)
    try:
        yield dispatcher
    finally:
        dispatcher.end()


def until(happened: Callable[[], object], what: str, timeout_s: float = 60.0):
    """What a condition says once it is true."""
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
    """Every version of a stream, as a new reader finds them."""
    fresh = DeltaStreamCatalog(catalog.store)
    return list(fresh.log(table_id, fresh.partition(table_id, partition)).chain())


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
