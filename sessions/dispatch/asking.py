"""Asks the store of the state about one or many sessions. The store may not answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sessions.base.patience import patiently

Subject = TypeVar("Subject")
Answer = TypeVar("Answer")

_STORE_TRIES = 5
_THREADS = 8


def asking(ask: Callable[[], Answer]) -> Answer:
    """The answer of a store. If it does not answer, it is asked again after a while."""
    return patiently(ask, _STORE_TRIES, wait_max_s=10)


def each(asked: Iterable[Subject], ask: Callable[[Subject], Answer]) -> list[Answer]:
    """The answer about each, in order. Several questions are asked side by side."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(ask, asked))
