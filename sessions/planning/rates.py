"""Rates: what the terms of work take, learned from finished sessions, and how sure that is. Pure.

    shipped            core seconds of a row, a byte, a file, ...         measured on the machine of the README
    x this pool        1.3       the median session here takes so much longer: one number, learned at once
    x each term        1.1 ...   what kind of work is dearer here than there: learned slowly, from many sessions
    x this table       0.7       its deltas touch a few files only, its rows compress badly: learned from its own past
    x lately           1.05      the machine has become busier

The 90 % interval is conformal: quantiles of log(took / expected) over the last sessions of about this size, where
`expected` is what was said before each of them ran. Nothing is assumed about how errors are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deltacompact.planning.work import BASE_TERMS, DELTA_TERMS, FIRST_RATES, TERMS, Vector, WorkTerms
from sessions.base.model import Estimate

BUFFER = 1.10
"""The paper's: a session adheres to its expected SLA as long as it takes no more than a tenth longer."""

COVERED = 0.90
OBSERVATIONS_MAX = 400
OBSERVATIONS_OF_A_TABLE_MAX = 25
"""One job run of a thousand partitions does not push out what is known of all other tables."""

_LEARNED_AFTER = 4.0
"""Sessions' worth of doubt that each term's own rate starts with: so many must disagree with the pool's before it moves
half the way."""
_TABLE_AFTER = 0.3
"""The same for a table's factor, which says more the more of a session is the table's own: half of it, usually."""
_OWN_PART = 0.5
_HALF_LIFE = 100.0
_LATELY = 8.0
"""Sessions after which an observation counts half, for rates and for how busy the machine is lately."""
_LATELY_AFTER = 2.0
_LEVEL_LATELY = 3.0
_LEVEL_AFTER = 1.0
"""The same for what the last sessions on one table took."""
_OUTLIER = 0.35
"""A session that took e to the power of this more or less than expected pulls no harder than one that did so."""
_FAR = 1.5
"""Of a table, whose factor may be anything at first, the same is true from here on."""
_FACTOR_LEAST = 0.1
_FACTOR_MIN = 0.05
"""The least factor of a term, beside the pool's, and of a table: its deltas touch next to nothing of it."""
_ITERATIONS = 15
"""Terms and tables are fitted in turn, so often."""

_SPREAD_HALF_LIFE = 60.0
_SIZE_CLASS = 1.2
"""A session counts for the interval of another one by how long ago it was, and by the ratio of their lengths: one that
is e to the power of this longer counts 1/e."""
_KNOWN = 2
_KNOWN_CLASS = 3.0
"""A stream is known well from its third session on; residuals of less well known ones hardly count for it."""
_CORRECTION = 0.25
_SHIPPED_SPREAD = 0.35
_SHIPPED_SPREAD_WEIGHT = 4.0
"""How wrong the shipped rates are taken to be at first (log), and how many sessions that opinion weighs."""

_SHIPPED_RESIDUALS = _SHIPPED_SPREAD * np.linspace(-1, 1, 21)
_SHIPPED = np.array([FIRST_RATES[term] for term in TERMS])
_IS_BASE = np.array([term in BASE_TERMS for term in TERMS])
_IS_DELTA = np.array([term in DELTA_TERMS for term in TERMS])
_NONE = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Observation:
    """One session that succeeded. `work` by TERMS; `expected_s` is what was said before it ran; `at_s` when it ended.

    `stream`: the table, and whether it was a first compaction, which says little of later ones.
    """

    session_id: str
    stream: str
    work: tuple[float, ...]
    seconds: float
    expected_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class PoolRates:
    """What is known of one pool: an executor on one node type. Oldest first, bounded."""

    pool: str = ""
    observations: tuple[Observation, ...] = ()

    def learned(self, found: Iterable[Observation]) -> PoolRates:
        """These rates with more sessions. A session that is known already counts once."""
        by_id = {
            seen.session_id: seen for seen in (*self.observations, *found) if seen.seconds > 0 and seen.expected_s > 0
        }
        kept: list[Observation] = []
        of_stream: dict[str, int] = {}
        for seen in sorted(by_id.values(), key=lambda seen: (seen.at_s, seen.session_id), reverse=True):
            of_stream[seen.stream] = of_stream.get(seen.stream, 0) + 1
            if of_stream[seen.stream] <= OBSERVATIONS_OF_A_TABLE_MAX and len(kept) < OBSERVATIONS_MAX:
                kept.append(seen)
        return replace(self, observations=tuple(reversed(kept)))


@dataclass(frozen=True, slots=True)
class Expectation:
    """Rates made ready: core seconds by term, factors by stream, how things are lately; residuals for the interval.

    `levels`: what all terms together took lately on a stream, of what was expected.

    `residuals`: of each session log(took / expected), its weight, log of the expected seconds, and how well its stream
    was known then.
    """

    rates: Vector = field(default_factory=lambda: _SHIPPED)
    lately: float = 1.0
    streams: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)
    residuals: tuple[Vector, Vector, Vector, Vector] = (_NONE, _NONE, _NONE, _NONE)

    def of(self, work: WorkTerms, stream: str = "", at_s: float = 0.0) -> Estimate:
        """Seconds of a session once its process or cluster is up: the median to expect, and the 90 % interval."""
        seconds = self.seconds(work, stream)
        low, high = self._interval(math.log(seconds), min(_KNOWN, self.seen.get(stream, 0)))
        return Estimate(seconds, seconds * math.exp(min(0.0, low)), seconds * math.exp(max(0.0, high)), at_s)

    def seconds(self, work: WorkTerms, stream: str = "") -> float:
        return float(self._by_term(work, stream).sum())

    def by_term(self, work: WorkTerms, stream: str = "") -> dict[str, float]:
        """The same seconds, term by term."""
        return dict(zip(TERMS, self._by_term(work, stream).tolist(), strict=True))

    def _by_term(self, work: WorkTerms, stream: str) -> Vector:
        amounts = work.vector
        seconds: Vector = amounts * self.rates * (self.lately * self.levels.get(stream, 1.0))
        factor = self.streams.get(stream, 1.0)
        return np.where(_own(amounts), seconds * factor, seconds) if factor != 1.0 else seconds

    def _interval(self, log_seconds: float, known: int) -> tuple[float, float]:
        """Logs of how much less and more it may take: as sessions did that were about as long, and as well known."""
        residuals, weights, sizes, knowns = self.residuals
        near = weights * np.exp(-np.abs(sizes - log_seconds) / _SIZE_CLASS - _KNOWN_CLASS * np.abs(knowns - known))
        doubt = _SHIPPED_SPREAD_WEIGHT / (1 + float(near.sum()) / _SHIPPED_SPREAD_WEIGHT)
        values = np.concatenate([residuals, _SHIPPED_RESIDUALS])
        shares = np.concatenate([near, np.full(len(_SHIPPED_RESIDUALS), doubt / len(_SHIPPED_RESIDUALS))])
        # The next session is one more of them: with few, the quantiles lie further out (split conformal prediction).
        count = float(shares.sum() ** 2 / (shares @ shares))
        tail = max(0.0, (1 - COVERED) / 2 - _CORRECTION / count)
        return -_quantile(-values, shares, 1 - tail), _quantile(values, shares, 1 - tail)


def expectation(known: PoolRates) -> Expectation:
    """Learn from what is known; with nothing known, the shipped rates."""
    seen = [observation for observation in known.observations if len(observation.work) == len(TERMS)]
    if not seen:
        return Expectation()
    work = np.array([observation.work for observation in seen]) * _SHIPPED
    took = np.log([observation.seconds for observation in seen])
    age = np.arange(len(seen))[::-1]
    streams, of_stream = np.unique([observation.stream for observation in seen], return_inverse=True)
    weights = 0.5 ** (age / _HALF_LIFE)
    own = np.array([_own(row) for row in work])
    pool = math.exp(_quantile(took - np.log(work.sum(axis=1)), weights, 0.5))
    terms, scaled, factors = np.full(len(TERMS), pool), work, np.ones(len(streams))
    for _ in range(_ITERATIONS):
        terms = _terms(scaled, took, weights, terms, pool)
        factors = _stream_factors(of_stream, factors, work * terms, own, took, weights)
        scaled = np.where(own, work * factors[of_stream][:, None], work)
    left = took - np.log(scaled @ terms)
    levels = _levels(of_stream, left)
    recent = 0.5 ** (age / _LATELY)
    lately = math.exp(_shrunk(left - levels[of_stream], recent, _LATELY_AFTER))
    said = np.log([observation.expected_s for observation in seen])
    knowns = np.minimum(_KNOWN, _places(of_stream))
    names = streams.tolist()
    return Expectation(
        _SHIPPED * terms,
        lately,
        dict(zip(names, factors.tolist(), strict=True)),
        dict(zip(names, np.exp(levels).tolist(), strict=True)),
        dict(zip(names, np.bincount(of_stream).tolist(), strict=True)),
        (took - said, 0.5 ** (age / _SPREAD_HALF_LIFE), said, knowns.astype(np.float64)),
    )


def _levels(of_stream: Any, left: Vector) -> Vector:
    """For each stream: the mean log of its last errors, drawn towards 0."""
    counts = np.bincount(of_stream)
    recent = 0.5 ** ((counts[of_stream] - 1 - _places(of_stream)) / _LEVEL_LATELY)
    errors = np.clip(left, -_OUTLIER, _OUTLIER)
    return np.bincount(of_stream, recent * errors) / (np.bincount(of_stream, recent) + _LEVEL_AFTER)


def _places(of_stream: Any) -> Any:
    """For each observation: how many observations of the same stream came before it."""
    order = np.argsort(of_stream, kind="stable")
    counts = np.bincount(of_stream)
    places = np.empty(len(of_stream), np.int64)
    places[order] = np.arange(len(of_stream)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _terms(work: Vector, took: Vector, weights: Vector, before: Vector, pool: float) -> Vector:
    """Factors of the terms by least squares of relative errors, drawn towards the pool's, never below a tenth of it.

    Errors beyond an outlier's are weighed down, so that one session that hung does not make everything dearer.
    """
    expected = work @ before
    errors = took - np.log(expected)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    scaled = work * pool / expected[:, None]
    target = np.exp(np.clip(errors, -_OUTLIER, _OUTLIER))
    square = scaled.T @ (robust[:, None] * scaled)
    # A term that is no part of the work seen stays with the pool's factor.
    doubt = _LEARNED_AFTER / len(TERMS) * float(np.mean(robust))
    square[np.diag_indices_from(square)] += doubt
    right = scaled.T @ (robust * target) + doubt
    found, free = np.full(len(TERMS), _FACTOR_LEAST), np.ones(len(TERMS), bool)
    while free.any():  # those that would fall below the least stay there, and the others are solved again
        rest = right[free] - square[np.ix_(free, ~free)] @ found[~free]
        found[free] = np.linalg.solve(square[np.ix_(free, free)], rest)
        if np.all(found >= _FACTOR_LEAST):
            break
        free &= found >= _FACTOR_LEAST
        found[~free] = _FACTOR_LEAST
    return pool * found


def _stream_factors(of_stream: Any, before: Vector, seconds: Vector, own: Any, took: Vector, weights: Vector) -> Vector:
    """For each stream: the factor of what depends on its table, by least squares of relative errors, drawn to 1."""
    mine = np.where(own, seconds, 0.0).sum(axis=1)
    others = seconds.sum(axis=1) - mine
    expected = others + mine * before[of_stream]
    errors = took - np.log(expected)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    part, rest = mine / expected, others / expected
    wanted = np.exp(np.clip(errors, -_FAR, _FAR)) - rest
    doubt = _TABLE_AFTER * _OWN_PART**2
    right = np.bincount(of_stream, robust * part * wanted) + doubt
    square = np.bincount(of_stream, robust * part**2) + doubt
    return np.clip(right / square, _FACTOR_MIN, 1 / _FACTOR_MIN)


def _own(work: Vector) -> Any:
    """Which terms depend on the table: what is read and written of its base, or of its deltas where it has none."""
    return _IS_BASE if work @ _IS_BASE else _IS_DELTA


def _shrunk(errors: Vector, weights: Vector, doubt: float) -> float:
    """A robust mean, drawn towards 0 as if so many more observations had been 0."""
    middle = _quantile(errors, weights, 0.5)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    return float(robust @ errors / (robust.sum() + doubt))


def _quantile(values: Vector, weights: Vector, share: float) -> float:
    """The smallest value up to which this share of the weight lies."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, np.searchsorted(upto, share * upto[-1]))])
