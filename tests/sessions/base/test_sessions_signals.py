"""What signals do while a command runs, and afterwards."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from sessions.base import signals
from sessions.base.signals import handled

CONSTANTS = {"SIG_IGN": signal.SIG_IGN, "SIG_DFL": signal.SIG_DFL}


def test_what_was_there_before_comes_back_whatever_happens() -> None:
    heard: list[str] = []
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyError), handled(lambda: heard.append("told")):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with handled(None, (signal.SIGINT,)):
            os.kill(os.getpid(), signal.SIGINT)
        raise KeyError
    assert heard == ["told", "told"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_handler_that_was_not_set_in_python_cannot_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """signal.signal returns None for it, and takes no None."""
    given: list[object] = []
    module = SimpleNamespace(signal=lambda number, handler: given.append(handler), **CONSTANTS)
    monkeypatch.setattr(signals, "signal", module)
    with handled(None, (signal.SIGTERM,)):
        assert given == [signal.SIG_IGN]
    assert given == [signal.SIG_IGN, signal.SIG_DFL]
