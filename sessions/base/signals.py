"""Handles SIGTERM and Ctrl-C while a command runs, and restores the former handlers afterwards.

    with handled(dispatcher.stop):      SIGTERM: the dispatcher stops      Ctrl-C: the dispatcher stops
    afterwards                          SIGTERM: the process ends          Ctrl-C: KeyboardInterrupt

A command may run inside another program (a test, a notebook). A handler that stays would swallow that program's Ctrl-C.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

BOTH = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handled(act: Callable[[], object] | None, numbers: tuple[signal.Signals, ...] = BOTH) -> Iterator[None]:
    """Call `act` whenever one of these signals comes; None: ignore them. Only the main thread can do this."""
    handler = signal.SIG_IGN if act is None else lambda *_: act()
    with ExitStack() as former:
        for number in numbers:
            before = signal.signal(number, handler)
            former.callback(signal.signal, number, signal.SIG_DFL if before is None else before)  # None: set in C
        yield
