"""Ctrl-C while a command line is still being imported, which takes half a second: Python would print a traceback.

^C while click is imported    the signal's own action: the process ends, with nothing said and status 130
^C from Program.main on       KeyboardInterrupt: the command says what it leaves behind
"""

from __future__ import annotations

import signal


def interrupts_end_it() -> None:
    """From now on Ctrl-C ends this process, unless it is ignored: by nohup, or in a shell's background."""
    _replace(signal.default_int_handler, signal.SIG_DFL)


def interrupts_are_raised() -> None:
    _replace(signal.SIG_DFL, signal.default_int_handler)


def _replace(before: object, after: signal._HANDLER) -> None:
    if signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)
