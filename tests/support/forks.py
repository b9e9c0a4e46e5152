"""Starts processes for tests without waiting for imports: each is forked from a server that has imported everything.

    the test ── asks ──► a server that has imported everything ── fork ──► a process ── fork ──► its fork server

Such a process behaves like a fresh interpreter: it has signals, output and children of its own. It saves the seconds of
CPU that imports of pyarrow, pandas and PyIceberg take. Processes that it starts by multiprocessing save them, too.
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
    """The server of one pytest process. It starts at the first fork and imports the modules in the given order."""

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
        """Start a process that runs `act` and exits with the status that `act` returns.

        The process calls `prepare` first. Its own child processes inherit what `prepare` changed.
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
    """Run `act` in the process that was just forked."""
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
    """Fork instead of starting an interpreter. The fork has our modules and keeps only these descriptors."""
    if pid := os.fork():
        return pid
    forkserver._forkserver.__init__()  # a fresh server: the copied lock is held, and the fork may need a server
    kept = [2, *sorted(descriptors), os.sysconf("SC_OPEN_MAX")]
    for below, above in itertools.pairwise(kept):
        os.closerange(below + 1, above)
    try:
        exec(arguments[-1])
    finally:
        os._exit(0)
