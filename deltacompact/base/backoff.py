"""Waits between two tries: doubled each time, and random, so that those who failed together do not come back together.

wait_s(0, 0.1, 20)                  0 to 0.1 s
wait_s(3, 0.1, 20)                  0 to 0.8 s
wait_s(12, 0.1, 20, least=0.5)      10 to 20 s
"""

from __future__ import annotations

import random

_DOUBLED_MAX = 30
"""After so many doublings any wait is the longest. More of them overflow a float."""


def wait_s(doubled: int, first_s: float, longest_s: float, least: float = 0.0) -> float:
    """Seconds: a random part of `first_s` doubled so often, or of `longest_s`; at least the share `least` of it."""
    return random.uniform(least, 1.0) * min(longest_s, first_s * 2.0 ** min(doubled, _DOUBLED_MAX))
