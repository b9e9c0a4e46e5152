"""What a session is expected to take, by what was learned of its pool and table. Pure.

1.6 CPU seconds on the busiest slot x 1.1, 40 requests of 0.03 s / 4 at a time, a cold start of 0.02 s      2.1 s
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from deltacompact.planning.work import FIRST_RATES, TERMS, Vector
from sessions.base.model import Estimate
from sessions.planning.bounds import Bounds, Scores
from sessions.planning.observations import SessionWork
from sessions.planning.parts import MERGED, PART_OF_MERGE, PART_OF_TERM, WHOLE

BUFFER = 1.10
"""The paper's: a session keeps its expected SLA if it takes at most a tenth longer."""

FIRST_WAITS = np.array([1.0, 0.03, 0.02])
"""Wall seconds of each CPU second of the busiest slot, of each request that waits for another, of a cold start."""

SHIPPED = np.array([FIRST_RATES[term] for term in TERMS])
WALL = "wall"

Levels = Mapping[tuple[str, str], float]
"""Factors by stream and part: how much longer than the rates say this part takes on this table."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Rates made ready: CPU seconds by term, wall seconds as FIRST_WAITS has them, factors by table; and the bounds."""

    rates: Vector = field(default_factory=lambda: SHIPPED)
    waits: Vector = field(default_factory=lambda: FIRST_WAITS)
    levels: Levels = field(default_factory=dict)
    bounds: Bounds = field(default_factory=lambda: Bounds.of(Scores()))
    cpu_bounds: Bounds = field(default_factory=lambda: Bounds.of(Scores()))

    def of(self, work: SessionWork, stream: str = "", at_s: float = 0.0) -> Estimate:
        """Wall seconds of a session once its process or cluster is up."""
        return _around(self.seconds(work, stream), self.bounds, stream, at_s)

    def cpu(self, work: SessionWork, stream: str = "", at_s: float = 0.0) -> Estimate:
        """CPU seconds of all its processes."""
        return _around(self.cpu_seconds(work, stream), self.cpu_bounds, stream, at_s)

    def seconds(self, work: SessionWork, stream: str = "") -> float:
        return sum(self.by_term(work, stream).values())

    def cpu_seconds(self, work: SessionWork, stream: str = "") -> float:
        amounts = work.whole.vector
        return float(amounts * _levels_of_terms(amounts, stream, self.levels) @ self.rates)

    def cold_s(self, stream: str = "") -> float:
        """What a cold start adds."""
        return float(self.waits[2]) * self.levels.get((stream, WALL), 1.0)

    def by_term(self, work: SessionWork, stream: str = "") -> dict[str, float]:
        """Wall seconds by term. The term "session" includes requests and starts."""
        busiest, request, start = self.waits * self.levels.get((stream, WALL), 1.0)
        amounts = work.busiest.vector
        seconds = amounts * _levels_of_terms(amounts, stream, self.levels) * self.rates * busiest
        found = dict(zip(TERMS, seconds.tolist(), strict=True))
        found["session"] += float(work.requests * request + work.starts * start)
        return found


def _around(seconds: float, bounds: Bounds, stream: str, at_s: float) -> Estimate:
    low, high, promise = bounds.around(seconds, stream)
    return Estimate(seconds, low, high, at_s, promise)


FIRST_EXPECTATION = Expectation()
"""With nothing known."""


def _levels_of_terms(amounts: Vector, stream: str, levels: Levels) -> Vector:
    """The factor of each term in a session of so much work on this table."""
    return factors_of(stream, bool(amounts[MERGED] > 0), levels)


def factors_of(stream: str, merges: bool, levels: Levels) -> Vector:
    whole = levels.get((stream, WHOLE), 1.0)
    return np.array([levels.get((stream, part), whole) for part in (PART_OF_MERGE if merges else PART_OF_TERM)])
