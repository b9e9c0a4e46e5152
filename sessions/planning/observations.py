"""What is remembered of finished sessions, by pool: their work, and what it took. Pure.

orders, 3 sessions in process      expected 2.0 s, took 2.1 s; 1.4 CPU s of folding, 0.6 of writing; 40 requests
orders, the 26th                   pushes out the first of this table, so that no table pushes out all others
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deltacompact.planning.work import TERMS, Vector, WorkTerms

OBSERVATIONS_MAX = 400
OBSERVATIONS_OF_A_TABLE_MAX = 25
"""A limit for each table, so that one job run of a thousand partitions does not push out all other tables."""
_SECONDS_KNOWN = (1e-6, 1e9)
_AMOUNT_MAX = 1e18
"""What a session can have taken, and had to do."""


@dataclass(frozen=True, slots=True)
class SessionWork:
    """One session's work: of its busiest slot (wall seconds), and of all slots together (CPU seconds).

    requests    requests that wait for each other: those sent at the same time count as one
    starts      cold starts: 0 or 1
    """

    busiest: WorkTerms
    whole: WorkTerms
    requests: float = 0.0
    starts: float = 0.0

    @classmethod
    def of(cls, terms: WorkTerms) -> SessionWork:
        """The work of a session on one slot."""
        return cls(terms, terms)


@dataclass(frozen=True, slots=True)
class Observation:
    """One session that succeeded, expected and measured. Sessions of the version before have no CPU seconds.

    stream                        the table, and whether it was a first compaction, which says little of later ones
    work, whole                   amounts by TERMS: of the busiest slot, and of all slots
    expected_s, expected_cpu_s    as they were told before it ran
    cpu_s                         CPU seconds by part
    waits                         requests and starts, as in SessionWork
    at_s                          when it ended, by its machine's clock; for people
    """

    session_id: str
    stream: str
    work: tuple[float, ...]
    seconds: float
    expected_s: float
    at_s: float
    whole: tuple[float, ...] = ()
    cpu_s: dict[str, float] = field(default_factory=dict)
    expected_cpu_s: float = 0.0
    waits: tuple[float, float] = (0.0, 0.0)

    @property
    def teaches(self) -> bool:
        """Whether it can be learned from. A record may be damaged or another build's: one impossible number in it would
        make every expectation infinite, or none at all."""
        least_s, most_s = _SECONDS_KNOWN
        amounts = [*self.work, *self.whole, *self.cpu_s.values(), *self.waits, self.expected_cpu_s]
        took = all(least_s <= seconds <= most_s for seconds in (self.seconds, self.expected_s))
        return took and sum(self.work) > 0 and all(0 <= amount <= _AMOUNT_MAX for amount in amounts)


@dataclass(frozen=True, slots=True)
class PoolRates:
    """What is known of one pool: an executor on one node type. Oldest first, bounded."""

    pool: str = ""
    observations: tuple[Observation, ...] = ()

    def learned(self, found: Iterable[Observation]) -> PoolRates:
        """These rates and more sessions, the newest to come in last: a clock may have been ahead. A session that is
        known already is not added again."""
        by_id: dict[str, Observation] = {}
        for seen in (*self.observations, *found):
            if seen.teaches:
                by_id.setdefault(seen.session_id, seen)
        kept: list[Observation] = []
        of_stream: dict[str, int] = {}
        for seen in reversed(by_id.values()):
            of_stream[seen.stream] = of_stream.get(seen.stream, 0) + 1
            if of_stream[seen.stream] <= OBSERVATIONS_OF_A_TABLE_MAX and len(kept) < OBSERVATIONS_MAX:
                kept.append(seen)
        return replace(self, observations=tuple(reversed(kept)))


def padded(work: Sequence[float]) -> Vector:
    """Work by TERMS as a vector. Records of the version before lack the last terms, so these are 0."""
    return np.array([*work, *[0.0] * (len(TERMS) - len(work))][: len(TERMS)])
