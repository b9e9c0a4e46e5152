"""Processes of tests that import nothing: forks of a server that has imported everything.

    the test ── asks ──► a server that has imported everything ── fork ──► a process ── fork ──► its fork server

Such a process is what a fresh interpreter would be, with signals, output and children of its own, but without the
seconds of CPU in which it imports pyarrow, pandas and PyIceberg. So are the processes that it asks multiprocessing for.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock


class Forks:
    """A server for each process of pytest, from the first fork on; it imports the modules in the order given."""

    def __init__(self, *modules: str) -> None:
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload([*modules, "unittest.mock"])

    def start(
        self,
        act: Callable[..., object],
        *arguments: object,
        log: Path,
        prepare: Callable[[], None] | None = None,
        **environment: str,
    ) -> ForkServerProcess:
        """A process in which `act` runs as in a fresh one, and whose exit status is what it returns.

        `prepare` is called in it first of all, so what it changes is changed in its own processes, too.
        """
        told = (act, arguments, str(log), prepare, {**os.environ, **environment})
        process = multiprocessing.get_context("forkserver").Process(target=_run, args=told)
        with mock.patch.object(forkserver, "connect_to_new_process", self._server.connect_to_new_process):
            process.start()
        return process


def _run(
    act: Callable[..., int],
    arguments: tuple[object, ...],
    log: str,
    prepare: Callable[[], None] | None,
    environment: dict[str, str],
) -> None:
    """The process, just forked."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    catalog._ENV_CONFIG = Config()  # PyIceberg reads the environment as it is imported
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    if prepare is not None:
        prepare()
    with mock.patch("multiprocessing.util.spawnv_passfds", _forked):
        forkserver.ensure_running()  # while this process has one thread and no connection
    sys.exit(act(*arguments))


def _forked(path: bytes, arguments: list[str], descriptors: list[int]) -> int:
    """What a fresh interpreter would run, in a fork of this one: it has the modules, and these descriptors alone."""
    if pid := os.fork():
        return pid
    forkserver._forkserver.__init__()  # the lock of this moment is held; whoever is forked may want a server, too
    kept = [2, *sorted(descriptors), os.sysconf("SC_OPEN_MAX")]
    for below, above in itertools.pairwise(kept):
        os.closerange(below + 1, above)
    try:
        exec(arguments[-1])
    finally:
        os._exit(0)
