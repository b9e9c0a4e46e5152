"""How a process treats a store that is slow, loses requests, or asks for fewer requests.

503 SlowDown, 429        all requests of the process are spaced out: half as many a second, twice as many 5 s later
500, reset, silence      a request is tried again after a random part of 0.1, 0.2, 0.4 … 20 s ("full jitter")
slower than its p99      a second request races the first (a hedge); for one request in twenty at most

Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
Hedges: Dean and Barroso, The Tail at Scale, CACM 2013, "Within-request short-term adaptations"
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from deltacompact.base.backoff import wait_s

TRIED_S = 180.0
"""A request that began this long ago is not tried again."""

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 20.0


@dataclass(slots=True)
class RequestAttempts:
    """Counts the attempts at one request."""

    most: int
    began_s: float = field(default_factory=time.monotonic)
    failed: int = 0

    def pause_s(self) -> float | None:
        """How long to wait after a failure before the next attempt. None: do not try again."""
        self.failed += 1
        if self.failed >= self.most or time.monotonic() > self.began_s + TRIED_S:
            return None
        return wait_s(self.failed - 1, _PAUSE_S, _LONGEST_PAUSE_S)


class SharedBackoff:
    """The requests a second that a process allows itself. There is no limit before the first SlowDown.

    A SlowDown halves the rate, at most once a second, because many requests under way get SlowDown together. The rate
    doubles every 5 s. The limit ends when it is twice the rate that was too much.
    """

    DOUBLED_S = 5.0
    LEAST_PER_S = 4.0

    _DOUBLED_MAX = 64
    """After so many doublings any limit has ended. More of them overflow a float."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut_per_s: float | None = None
        self._cut_at_s = float("-inf")
        self._too_much_per_s = 0.0
        self._next_s = float("-inf")
        self._second, self._sent, self._sent_before = 0, 0, 0

    def turn_s(self) -> float:
        """Take a turn. Returns how long to wait for it before the request is sent."""
        with self._lock:
            now = time.monotonic()
            self._count(int(now))
            per_s = self._per_s(now)
            if per_s is None:
                return 0.0
            turn = max(now, self._next_s)
            self._next_s = turn + 1 / per_s
            return turn - now

    def throttled(self) -> None:
        """The store answered SlowDown: reduce the rate."""
        with self._lock:
            now = time.monotonic()
            if now < self._cut_at_s + 1:
                return
            limit = self._per_s(now)
            per_s = float(max(self._sent, self._sent_before)) if limit is None else limit
            self._too_much_per_s = per_s if limit is None else max(self._too_much_per_s, per_s)
            self._cut_per_s = max(self.LEAST_PER_S, per_s / 2)
            self._cut_at_s = self._next_s = now

    def _per_s(self, now: float) -> float | None:
        if self._cut_per_s is None:
            return None
        per_s: float = self._cut_per_s * 2 ** min(self._DOUBLED_MAX, (now - self._cut_at_s) / self.DOUBLED_S)
        if per_s > 2 * max(self.LEAST_PER_S, self._too_much_per_s):
            self._cut_per_s = None
        return self._cut_per_s and per_s

    def _count(self, second: int) -> None:
        if second != self._second:
            self._sent_before = self._sent if second == self._second + 1 else 0
            self._second, self._sent = second, 0
        self._sent += 1


class Hedging:
    """Says when a request is late, and whether the process may send a second one. One thread alone may use it.

    A request is compared with earlier ones of similar size: size classes are powers of two.
    """

    SHARE = 0.05
    SAVED = 3.0
    """The most hedges in hand, and those of a new process. Each answer adds `SHARE`, each hedge takes 1."""
    SOONEST_S = 0.25
    UNKNOWN_S = 1.0
    """A request is late after this time while fewer than `_KNOWN` requests of its size have been answered."""

    _KNOWN = 32
    _REMEMBERED = 256
    _ANEW = 16

    def __init__(self) -> None:
        self._left = self.SAVED
        self._took: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=self._REMEMBERED))
        self._answered: defaultdict[int, int] = defaultdict(int)
        self._late_s: dict[int, float] = {}

    def late_after_s(self, length: int) -> float:
        return self._late_s.get(length.bit_length(), self.UNKNOWN_S)

    def answered(self, length: int, seconds: float) -> None:
        size = length.bit_length()
        self._left = min(self.SAVED, self._left + self.SHARE)
        self._took[size].append(seconds)
        self._answered[size] += 1
        if self._answered[size] >= self._KNOWN and self._answered[size] % self._ANEW == 0:
            took = sorted(self._took[size])
            self._late_s[size] = max(self.SOONEST_S, took[int(0.99 * (len(took) - 1))])

    def may_hedge(self) -> bool:
        """Whether a second request may be sent now. If so, it counts as sent."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
