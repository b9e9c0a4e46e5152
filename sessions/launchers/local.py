"""Runs groups as processes on this machine, forked from a server that has imported everything already.

    dispatcher ── asks ──► fork server (imports deltacompact once, runs one thread of Python) ── fork ──► a group
    a group        leads a session of its own; its output goes to <logs>/run-1.3.g0.1.log

A group starts in some 10 ms; a fresh interpreter would take a second of CPU to import pyarrow. The dispatcher has
threads, so it must not be forked itself: the fork server of `multiprocessing` is for that. When a dispatcher is killed,
its groups work on until they see that they were superseded.

    a group runs           two pipes to it are open here
    it has ended           the pipes are closed; its status is remembered until the group is terminated
    no file is left        StoreError before anything is started: the group is tried again
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from deltacompact.base import one_heap
from deltacompact.base.children import environment_of_children
from deltacompact.base.errors import StoreError
from deltacompact.base.wording import one_line
from sessions.base.exhaustion import exhausted
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus

_LOG = logging.getLogger("sessions")

RunGroup = Callable[[str, str, str, int], int]
"""(state, job run, group, epoch) -> exit status. It must be a function of a module: the new process imports it."""

_PRELOADED = ["sessions.runner.group", "deltacompact.catalog.compact", "deltacompact.executors.local", "pandas"]
"""pandas: pyarrow imports it with its first array, in 0.2 s. We do not prevent that here, because a new process imports
the main program that started it, which may be a user's and need pandas."""
_TERMINATED_WITHIN_S = 5.0
_DESCRIPTORS_TO_START = 12
"""A socket, two pipes and their copies; and those of the fork server, if it must be started anew."""
_LOG_BYTES_SHOWN = 64 << 10


class LocalLauncher:
    """Launches groups on this machine.

    logs         the folder for the logs of groups
    run          runs a group in the new process
    preloaded    more modules that most groups need, and that take long to import
    keeps_logs   whether logs stay when their groups end. Elsewhere than in the state they would fill the disk
    temporary    whether the folder goes when the launcher is closed, if no log is left in it
    """

    def __init__(
        self,
        logs: Path,
        run: RunGroup,
        preloaded: Sequence[str] = (),
        keeps_logs: bool = True,
        temporary: bool = False,
    ) -> None:
        self._logs = logs
        self._run = run
        self._keeps_logs, self._temporary = keeps_logs, temporary
        logs.mkdir(parents=True, exist_ok=True)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_PRELOADED, *preloaded])
        with environment_of_children(one_heap.ENVIRONMENT), _deaf_to_ctrl_c():
            forkserver.ensure_running()  # it imports while the first job run is planned
        self._groups: dict[str, ForkServerProcess | GroupStatus] = {}
        self._dying: list[ForkServerProcess] = []
        self._lock = threading.Lock()
        self._is_ready = False

    def ready(self) -> None:
        """Return when the fork server has imported everything: later launches all take the same time."""
        with self._lock:
            if not self._is_ready:
                process = self._context.Process(target=_nothing)
                _started(process)
                process.join()
                process.close()
                self._is_ready = True

    def launch(self, spec: GroupSpec) -> None:
        """Raises StoreError if this machine lacks resources for a process. Then it is unknown whether it was
        started."""
        with self._lock:  # the list of children in multiprocessing is not thread-safe
            self._dying = [process for process in self._dying if _ended(process) is None]
            if spec.id not in self._groups:
                arguments = (self._run, spec, str(self._log(spec.id)))
                process = self._context.Process(target=run_in_own_session, args=arguments)
                _started(process)
                self._groups[spec.id] = process

    def status(self, group_id: str) -> GroupStatus:
        with self._lock:
            group = self._groups.get(group_id)
            if group is None:
                return GroupStatus(GroupState.UNKNOWN)
            if isinstance(group, GroupStatus):
                return group
            ended = _ended(group)
            if ended is None:
                return GroupStatus(GroupState.RUNNING)
            self._groups[group_id] = ended
            return ended

    def logs(self, group_id: str) -> str:
        try:
            with open(self._log(group_id), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES_SHOWN))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def terminate(self, group_id: str) -> None:
        """End the group, and forget it. Its log stays until `part_with_log`."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            if self._ends(group_id, sent):
                break
        with self._lock:
            left = self._groups.pop(group_id, None)
            if left is not None and not isinstance(left, GroupStatus):
                self._dying.append(left)  # the kernel has not ended it yet

    def part_with_log(self, group_id: str, is_copied: bool) -> None:
        """Remove the log of a group that was terminated, unless logs stay here. One that nobody has copied stays, too,
        and a warning names it."""
        log = self._log(group_id)
        if self._keeps_logs:
            return
        if is_copied:
            log.unlink(missing_ok=True)
        elif log.exists():
            _LOG.warning("what %s printed stays in %s", group_id, log)

    def _ends(self, group_id: str, sent: signal.Signals) -> bool:
        """Send a signal to the group. Returns whether it ends in time, or has ended already."""
        deadline_s = time.monotonic() + _TERMINATED_WITHIN_S
        told = False
        while self.status(group_id).state is GroupState.RUNNING:
            if not told:
                with self._lock:  # `status` closes a process that has ended
                    process = self._groups.get(group_id)
                    if process is not None and not isinstance(process, GroupStatus):
                        self._signal(process, sent)
                told = True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        for group_id in list(self._groups):
            self.terminate(group_id)
            self.part_with_log(group_id, is_copied=False)
        if self._temporary:
            with contextlib.suppress(OSError):  # the file of a cluster that runs may lie there
                self._logs.rmdir()

    @staticmethod
    def _signal(process: ForkServerProcess, sent: signal.Signals) -> None:
        """Send a signal to the group and to the processes that it has started, such as a Ray cluster."""
        assert process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            try:
                os.killpg(process.pid, sent)
            except ProcessLookupError:  # it does not lead its session yet
                os.kill(process.pid, sent)

    def _log(self, group_id: str) -> Path:
        return self._logs / f"{group_id}.log"


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that this block starts get no SIGINT. A terminal sends it to the fork server as well, which ignores it
    only once it has imported everything: before, it would end with a traceback. It has a helper, which is started
    first, because starting that one lets SIGINT in again."""
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(process: ForkServerProcess) -> None:
    """Start a process, if there are enough free descriptors: otherwise multiprocessing would leave some open."""
    try:
        spare: list[int] = []
        try:
            for _ in range(_DESCRIPTORS_TO_START):
                spare.append(os.open(os.devnull, os.O_RDONLY))
        finally:
            for descriptor in spare:
                os.close(descriptor)
        process.start()
    except (OSError, EOFError, MemoryError, RuntimeError) as error:  # EOF: the fork server died of it
        raise StoreError(f"this machine cannot start a process: {exhausted(error) or one_line(error)}") from error


def _ended(process: ForkServerProcess) -> GroupStatus | None:
    """How a process has ended; its pipes are closed. None: it runs."""
    code = process.exitcode
    if code is None:
        return None
    process.close()
    killed = f"killed by {signal.Signals(-code).name}" if code < 0 else ""
    return GroupStatus(GroupState.ENDED, 128 - code if code < 0 else code, killed)


def _nothing() -> None:
    """The task of the first process."""


def run_in_own_session(run: RunGroup, spec: GroupSpec, log: str) -> None:
    """The main function of a group's process. It leads a session of its own, so that a signal reaches all its
    children."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    status = run(spec.state_uri, spec.job_run_id, spec.group, spec.epoch)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)
