"""Asking a store that may not answer at once.

patiently(write, tries=5, wait_max_s=10)     StoreError, 0.1 s · StoreError, 0.3 s · written
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from deltacompact.base.backoff import wait_s
from deltacompact.base.errors import PassingError

T = TypeVar("T")

_WAIT_FIRST_S = 0.2


def patiently(ask: Callable[[], T], tries: int, wait_max_s: float) -> T:
    """The answer of `ask`. Raises the last PassingError after `tries` tries, and any other error at once."""
    for failed in range(tries - 1):
        try:
            return ask()
        except PassingError:
            time.sleep(wait_s(failed, _WAIT_FIRST_S, wait_max_s))
    return ask()
