"""Which requests go wrong, and how: a rule with a seed.

    Faults(seed=7, shares={Fault.RESET_IN: 0.05, Fault.SLOW_DOWN: 0.1}, kinds=frozenset({Kind.RANGED_GET}))
    the first GET of bytes 0-99 of a.parquet     503 SlowDown
    the second one                               nothing happens to it

The same request, tried as often, meets the same fault whatever else goes on, so threads do not change a test. Names
that are drawn at random (16 hex digits or more) count as one name: the next run of a test has others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from benchmarks.s3.requests import Kind, Request


class Fault(StrEnum):
    """What happens to a request. Those above the line never reach the server; those below do.

    RESET        the connection is reset before anything is answered
    STALL        nothing is answered for `Faults.stall_s`, then the connection is reset
    INTERNAL     500 InternalError
    SLOW_DOWN    503 SlowDown
    --
    LOST         the server does what it is asked, and the connection is reset before its answer
    RESET_IN     in the middle of the answer's body
    STALL_IN     the middle of the answer's body is held back for `Faults.stall_s`, then the connection is reset
    TRUNCATED    the answer's body ends in its middle, and the connection is closed as if that were all
    SLOW         the answer begins `Faults.slow_s` later
    """

    RESET = "reset"
    STALL = "stall"
    INTERNAL = "500"
    SLOW_DOWN = "503"
    LOST = "lost"
    RESET_IN = "reset in the answer"
    STALL_IN = "stall in the answer"
    TRUNCATED = "truncated"
    SLOW = "slow"


REFUSED = {Fault.INTERNAL: (500, "InternalError"), Fault.SLOW_DOWN: (503, "SlowDown")}
_RANDOM_NAME = re.compile(r"[0-9a-f]{16,}(?=[^0-9a-f]|$)")
CUT = frozenset({Fault.RESET_IN, Fault.STALL_IN, Fault.TRUNCATED})
"""These need an answer with a body."""


def unnamed(request: Request) -> Request:
    """The request without the random names in its key: attempts are counted for this."""
    return replace(request, key=_RANDOM_NAME.sub("*", request.key))


@dataclass(frozen=True, slots=True)
class Faults:
    """`shares` of the requests whose kind is among `kinds` and whose key matches the regular expression `keys`."""

    seed: int = 0
    shares: Mapping[Fault, float] = field(default_factory=dict)
    kinds: frozenset[Kind] = frozenset(Kind)
    keys: str = ""
    stall_s: float = 60.0
    slow_s: float = 1.0

    def of(self, request: Request, attempt: int) -> Fault | None:
        """What happens to a request after `attempt` others like it (see `unnamed`)."""
        if not self.shares or request.kind not in self.kinds or not re.search(self.keys, request.key):
            return None
        drawn = random.Random(f"{self.seed} {unnamed(request)} {attempt}").random()
        for fault, share in self.shares.items():
            drawn -= share
            if drawn < 0:
                return fault
        return None
