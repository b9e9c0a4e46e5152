"""Tells whether a session's process is alive: a holder puts a sign of life into its journal every few seconds.

    its process ended, on this machine                       dead: no need to wait
    its process began at another time than it said           the next signs tell: a clock was set, or it is another one
    it put `ended`, after Ctrl-C or an error                 dead
    we are a later attempt at the same work                  dead: the scheduler gave it up
    last sign 2 s ago, then another one                      alive
    last sign 2 s ago, and none within half a minute         dead
    last sign an hour ahead, and none within half a minute   dead: a clock was ahead

All times are the store's: we compare the last-modified times of the sign and of an object that we put now. A wrong
answer costs work that is done twice, never a row: taking a journal over fences off its former holder.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.events import logger
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.attempts import current_attempt, is_superseded

_AT_WORK: list[str] = []
"""Sessions that threads of this process work on, each as often as there are such threads."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_IDS = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Signs:
    """How often holders give signs (`every_s`), and after how many seconds without one they count as dead."""

    every_s: float = 5.0
    dead_after_s: float = 30.0
    wait: Callable[[float], None] = field(default=time.sleep, compare=False)

    @property
    def looks(self) -> int:
        """The most looks at a session, two for each sign, until it counts as dead whatever a clock says."""
        return 1 + math.ceil(2 * self.dead_after_s / self.every_s)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a journal. `started_s` tells apart processes that had the same id.

    `attempt`: the scheduler's name for its work, if there is one.
    """

    machine: str
    process: int
    started_s: float
    attempt: str | None = None

    @classmethod
    def this(cls) -> Holder:
        return cls(_machine(), os.getpid(), psutil.Process().create_time(), current_attempt())

    def is_at_work(self, session: str) -> bool | None:
        """Whether the holder still works on the session. None: we cannot tell, because it is on another machine, or a
        process with its id began at another time.

        It is told by the time of boot, which changes whenever somebody sets the clock.
        """
        if is_superseded(self.attempt, by=current_attempt()):
            return False
        if self.machine != _machine():
            return None
        is_this = self.process == os.getpid()
        if is_this and session in _AT_WORK:
            return True
        try:
            is_same = psutil.Process(self.process).create_time() == self.started_s
        except psutil.Error:
            return False
        return not is_this if is_same else None


def _machine() -> str:
    """Where process ids mean the same processes. Containers on one host may share its name and boot, and not these."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {_BOOT.read_text().strip()} {_PROCESS_IDS.stat().st_ino}"
    return socket.gethostname()


@contextlib.contextmanager
def at_work(session: str) -> Iterator[None]:
    """Let other threads of this process know that the block works on the session: from before its journal says so."""
    _AT_WORK.append(session)
    try:
        yield
    finally:
        _AT_WORK.remove(session)


@contextlib.contextmanager
def giving_signs(session: str, sign: Callable[[], None], signs: Signs) -> Iterator[Callable[[], None]]:
    """Give signs of life from another thread while the block runs. Yields a function that stops them earlier."""
    ended = threading.Event()

    def give() -> None:
        while not ended.wait(signs.every_s):
            try:
                sign()
            except DeltaCompactError as error:  # others may take us for dead then, and we will notice
                logger.warning("session %s: a sign of life could not be written: %s", session, text_of(error))

    thread = threading.Thread(target=give, name=f"signs of {session}", daemon=True)

    def stop() -> None:
        ended.set()
        thread.join()

    thread.start()
    try:
        yield stop
    finally:
        stop()
