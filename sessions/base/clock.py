"""One clock for all records: that of the store. Times of two hosts' own clocks are never compared.

told(10:00:00)      the store's reply to a write of ours has this Last-Modified
clock()             10:00:03, three seconds later by this machine's monotonic clock, whatever its calendar says
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def lasted_s(from_s: float | None, until_s: float | None) -> float | None:
    """Seconds between two times of one clock. None: one is unknown, or the end lies before the begin (two clocks)."""
    if from_s is None or until_s is None or until_s < from_s:
        return None
    return until_s - from_s


def allowed_skew_s(ttl_s: float) -> float:
    """The grace of a lease beyond its ttl: stores round times to seconds, and a renewal takes a while."""
    return 1.0 + ttl_s / 4


def stale_after_s(ttl_s: float) -> float:
    """The seconds after its last renewal at which a lease may be taken over."""
    return ttl_s + allowed_skew_s(ttl_s)


class StoreClock:
    """The store's time, counted on since the store told it last. It never runs backwards. Safe to use from threads.

    Before the store has told its time, the clock is `calendar`.
    """

    def __init__(
        self, calendar: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._calendar, self._monotonic = calendar, monotonic
        self._ahead_s: float | None = None
        self._last_s = 0.0
        self._lock = threading.Lock()

    def told(self, now_s: float) -> None:
        """Set the store's time now. Stores round it down to a second, so of all told times the latest offset counts."""
        with self._lock:
            ahead_s = now_s - self._monotonic()
            self._ahead_s = ahead_s if self._ahead_s is None else max(self._ahead_s, ahead_s)

    @property
    def is_told(self) -> bool:
        return self._ahead_s is not None

    def __call__(self) -> float:
        with self._lock:
            now_s = self._calendar() if self._ahead_s is None else self._monotonic() + self._ahead_s
            if self._ahead_s is not None:
                self._last_s = now_s = max(self._last_s, now_s)
            return now_s
