"""Asking a store that may not answer at once.

patiently(write, tries=5, wait_max_s=10)     StoreError, 0.1 s · StoreError, 0.3 s · written
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from deltacompact.base.errors import PassingError

T = TypeVar("T")


def patiently(ask: Callable[[], T], tries: int, wait_max_s: float) -> T:
    """The answer of `ask`. Raises the last PassingError after `tries` tries, and any other error at once."""
    return Retrying(
        stop=stop_after_attempt(tries),
        wait=wait_random_exponential(multiplier=0.2, max=wait_max_s),
        retry=retry_if_exception_type(PassingError),
        reraise=True,
    )(ask)
