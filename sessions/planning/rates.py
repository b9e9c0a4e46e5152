"""Rates: the seconds that each term of work takes, learned from finished sessions. Pure.

CPU seconds    shipped            of a row, a byte, a file, …           measured on the machine of the README
               x this pool        1.3      sessions here compute so much longer: one number, learned at once
               x each term        1.1 …    what kind of work is dearer here: learned slowly, from many sessions
               x table and part   0.7      materializing this table takes less: its rows compress well
wall seconds   those of the busiest slot x 1.05, and a request to a store behind a network, and a cold start

A session of 2 slots: 3.0 CPU seconds, 1.6 of them on the busier slot, 40 requests, in a process that begins with it
    1.6 x 1.1 (the machine is busy) + 40 x 0.03 s / 4 at a time + 0.02 s       2.1 s, once its process is up

So a busy machine, or a store that answers slowly, does not change the rates of CPU seconds. CPU and wall seconds are
fitted apart, by least squares of relative errors drawn to the shipped values, and each has its own bounds (bounds.py).
The parts of a session are groups of its stages, so that CPU seconds of decoding teach nothing about the index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deltacompact.planning.work import FIRST_RATES, STAGE_OF, TERMS, Vector, WorkTerms
from sessions.base.model import Estimate
from sessions.planning.bounds import Bounds, Scores

BUFFER = 1.10
"""The paper's: a session keeps its expected SLA if it takes at most a tenth longer."""

OBSERVATIONS_MAX = 400
OBSERVATIONS_OF_A_TABLE_MAX = 25
"""A limit for each table, so that one job run of a thousand partitions does not push out all other tables."""

PARTS = {
    "hash_bucket": "fold",
    "dedupe": "index",
    "assign_pointers": "index",
    "rehash": "index",
    "lay_out": "write",
    "write_index": "write",
    "materialize": "write",
}
"""The parts that CPU seconds are learned for, by stage; everything else is "session". Writing the index overlaps with
materializing, so nobody can tell the two apart."""
WHOLE = ""
"""The part of a session whose stages are not known."""

WAITS = ("busiest", "request", "start")
"""What wall seconds are made of: CPU seconds of the busiest slot, requests that wait for each other, cold starts."""
_FIRST_WAITS = np.array([1.0, 0.03, 0.02])

_LEARNED_AFTER = 4.0
"""A term's rate moves half the way from the pool's factor to the observed one after so many sessions."""
_HALF_LIFE = 100.0
_LATELY = 8.0
"""Half-lives in sessions: _HALF_LIFE of an observation for rates, _LATELY for how busy the machine is."""
_LATELY_AFTER = 2.0
_LEVEL_LATELY = 3.0
_LEVEL_AFTER = 0.25
"""Of a table's factor: after _LEVEL_LATELY sessions one counts half; _LEVEL_AFTER sessions move it half the way."""
_LEVEL_IN_FIT = 2.0
"""_LEVEL_AFTER while rates are fitted. It is greater, so that what one session on each of many tables has in common
becomes a rate, and not a factor of each table."""
_OUTLIER = 0.35
"""Errors (logs) beyond this pull no harder, so that one session that hung changes little."""
_FAR = 3.0
"""The same limit for a table's factor. It is wide, because the rows of a new table may be anything."""
_FACTOR_LEAST = 0.1
"""A term's factor is at least this share of the pool's."""
_CLOCK_S = 1e-3
"""Clocks of CPU time are no finer: smaller values count as this."""
_LEAST_WORK_S = 1e-9
"""A part with less expected work teaches nothing."""
_SECONDS_KNOWN = (1e-6, 1e9)
_AMOUNT_MAX = 1e18
"""What a session can have taken, and had to do."""
_ITERATIONS = 8
"""Rates and factors of tables are fitted in turn, so many times."""
_SCORE_HALF_LIFE = 100.0
_UNKNOWN = 0.2
"""If today's rates would have avoided an error (log), at most this much of it still counts."""

_SHIPPED = np.array([FIRST_RATES[term] for term in TERMS])


def part_of(term: str) -> str:
    return PARTS.get(STAGE_OF[term], "session")


_PART_OF_TERM = tuple(map(part_of, TERMS))
_MERGED = TERMS.index("merged_row")
_MERGE = "merge"
"""The index part of a session that merges runs. It is learned apart, because searching runs says little about it."""
_PART_OF_MERGE = tuple(_MERGE if part == "index" else part for part in _PART_OF_TERM)
_IN_PART = {
    part: np.array([of_term == part for of_term in parts])
    for parts in (_PART_OF_TERM, _PART_OF_MERGE)
    for part in dict.fromkeys(parts)
}
_IN_PART[WHOLE] = np.ones(len(TERMS), bool)


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
    at_s                          when it ended
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
        """These rates and more sessions. A session that is known already is not added again."""
        by_id = {seen.session_id: seen for seen in (*self.observations, *found) if seen.teaches}
        kept: list[Observation] = []
        of_stream: dict[str, int] = {}
        for seen in sorted(by_id.values(), key=lambda seen: (seen.at_s, seen.session_id), reverse=True):
            of_stream[seen.stream] = of_stream.get(seen.stream, 0) + 1
            if of_stream[seen.stream] <= OBSERVATIONS_OF_A_TABLE_MAX and len(kept) < OBSERVATIONS_MAX:
                kept.append(seen)
        return replace(self, observations=tuple(reversed(kept)))


_WALL = "wall"

Levels = Mapping[tuple[str, str], float]
"""Factors by stream and part: how much longer than the rates say this part takes on this table."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Rates made ready: CPU seconds by term, wall seconds by WAITS, factors by table; and the bounds of both."""

    rates: Vector = field(default_factory=lambda: _SHIPPED)
    waits: Vector = field(default_factory=lambda: _FIRST_WAITS)
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
        return float(self.waits[2]) * self.levels.get((stream, _WALL), 1.0)

    def by_term(self, work: SessionWork, stream: str = "") -> dict[str, float]:
        """Wall seconds by term. The term "session" includes requests and starts."""
        busiest, request, start = self.waits * self.levels.get((stream, _WALL), 1.0)
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
    return _factors_of(stream, bool(amounts[_MERGED] > 0), levels)


def _factors_of(stream: str, merges: bool, levels: Levels) -> Vector:
    whole = levels.get((stream, WHOLE), 1.0)
    return np.array([levels.get((stream, part), whole) for part in (_PART_OF_MERGE if merges else _PART_OF_TERM)])


def expectation(known: PoolRates) -> Expectation:
    """Learn from what is known; with nothing known, the shipped rates."""
    seen = [observation for observation in known.observations if observation.teaches]
    if not seen:
        return FIRST_EXPECTATION
    age = np.arange(len(seen), dtype=np.float64)[::-1]
    rates, levels = _cpu_rates(seen, age)
    now_cpu_s = _seconds(seen, [session.whole for session in seen], rates, levels).tolist()
    busiest_s = _seconds(seen, [session.work for session in seen], rates, levels)
    waited = np.column_stack([busiest_s, [session.waits for session in seen]])
    waits, wall_levels = _wall_rates(seen, age, waited)
    now_s = (waited @ waits * [wall_levels[session.stream, _WALL] for session in seen]).tolist()
    cpu = [
        (sum(session.cpu_s.values()), session.expected_cpu_s, now) for session, now in zip(seen, now_cpu_s, strict=True)
    ]
    wall = [(session.seconds, session.expected_s, now) for session, now in zip(seen, now_s, strict=True)]
    return Expectation(
        rates,
        waits,
        {**levels, **wall_levels},
        Bounds.of(_scores(seen, age, wall)),
        Bounds.of(_scores(seen, age, cpu)),
    )


def _cpu_rates(seen: Sequence[Observation], age: Vector) -> tuple[Vector, dict[tuple[str, str], float]]:
    """CPU seconds by term, and factors by stream and part. A row of the fit is one part of one session."""
    rows = [(place, *row) for place, session in enumerate(seen) for row in _rows(session)]
    if not rows:
        return _SHIPPED, {}
    places, parts, work, cpu_s, shares = zip(*rows, strict=True)
    keys = [(seen[place].stream, part) for place, part in zip(places, parts, strict=True)]
    factors, levels = _Fit(keys, age[list(places)], np.array(shares)).of(np.array(work), np.log(cpu_s))
    return _SHIPPED * factors, levels


def _rows(session: Observation) -> Iterator[tuple[str, Vector, float, float]]:
    """For each part of a session: its name, its work at shipped rates, its CPU seconds, and their share of all."""
    amounts = padded(session.whole)
    in_all = sum(session.cpu_s.values())
    for name, cpu_s in session.cpu_s.items():
        part = _MERGE if name == "index" and amounts[_MERGED] > 0 else name
        work = np.where(_IN_PART.get(part, False), amounts, 0.0) * _SHIPPED
        if cpu_s > 0 and work.sum() >= _LEAST_WORK_S:
            yield part, work, max(cpu_s, _CLOCK_S), cpu_s / in_all


def _seconds(seen: Sequence[Observation], works: Sequence[tuple[float, ...]], rates: Vector, levels: Levels) -> Vector:
    """The seconds that each session's work would take at these rates and levels."""
    amounts = np.array([padded(work) for work in works])
    tables, of_table = _numbered(
        list(zip([session.stream for session in seen], (amounts[:, _MERGED] > 0).tolist(), strict=True))
    )
    factors = np.array([_factors_of(stream, merges, levels) for stream, merges in tables])
    found: Vector = amounts * factors[of_table] @ rates
    return found


def _wall_rates(
    seen: Sequence[Observation], age: Vector, waited: Vector
) -> tuple[Vector, dict[tuple[str, str], float]]:
    """The wall seconds of each of WAITS, and factors by stream. They include how slow all sessions were lately."""
    took = np.log([session.seconds for session in seen])
    fit = _Fit([(session.stream, _WALL) for session in seen], age, np.ones(len(seen)))
    factors, of_streams = fit.of(waited * _FIRST_WAITS, took)
    return _FIRST_WAITS * factors, of_streams


_SHARE_LEAST = 1e-6
"""The least weight of a part. Parts of nearly no CPU time would have none, and rows without weight cannot be fitted."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """A least-squares fit of relative errors. Rows with the same key share a factor; `shares` are their weights."""

    keys: Sequence[tuple[str, str]]
    age: Vector
    shares: Vector

    def of(self, work: Vector, took: Vector) -> tuple[Vector, dict[tuple[str, str], float]]:
        """A factor for each column, and one for each key. Those of columns include how slow sessions were lately."""
        names, of_key = _numbered(self.keys)
        weights = np.maximum(self.shares, _SHARE_LEAST) * 0.5 ** (self.age / _HALF_LIFE)
        pool = _pool(work, took - np.log(work.sum(axis=1)), weights)
        factors, scaled = pool, work
        recent = 0.5 ** ((np.bincount(of_key)[of_key] - 1 - _places(of_key)) / _LEVEL_LATELY)
        for _ in range(_ITERATIONS):
            factors = _factors(scaled, took, weights, factors, pool)
            levels = _levels(of_key, recent, took - np.log(work @ factors), _LEVEL_IN_FIT)
            scaled = work * np.exp(levels)[of_key][:, None]
        levels = _levels(of_key, recent, took - np.log(work @ factors), _LEVEL_AFTER)
        left = took - np.log(work @ factors) - levels[of_key]
        lately = _shrunk(left, self.shares * 0.5 ** (self.age / _LATELY), _LATELY_AFTER)
        return factors * math.exp(lately), dict(zip(names, np.exp(levels).tolist(), strict=True))


def _levels(of_key: Any, recent: Vector, left: Vector, doubt: float) -> Vector:
    """For each key, the mean log of its last errors, as if `doubt` more errors had been 0."""
    errors = np.clip(left, -_FAR, _FAR)
    middle = (np.bincount(of_key, recent * errors) / np.bincount(of_key, recent))[of_key]
    robust = recent * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    found: Vector = np.bincount(of_key, robust * errors) / (np.bincount(of_key, robust) + doubt)
    return found


def _scores(seen: Sequence[Observation], age: Vector, known: Sequence[tuple[float, float, float]]) -> Scores:
    """The scores of sessions whose (took, was expected, would be expected now) are all known."""
    there = np.array([min(rates) > 0 for rates in known])
    if not there.any():
        return Scores()
    took, said, now = np.log(np.array(known)[there]).T
    # The errors of sessions that were planned with shipped rates say little about the rates of today.
    values = took - now + np.clip(now - said, -_UNKNOWN, _UNKNOWN)
    streams = tuple(session.stream for session, is_known in zip(seen, there, strict=True) if is_known)
    return Scores(values, 0.5 ** (age[there] / _SCORE_HALF_LIFE), said, streams)


def padded(work: Sequence[float]) -> Vector:
    """Work by TERMS as a vector. Records of the version before lack the last terms, so these are 0."""
    return np.array([*work, *[0.0] * (len(TERMS) - len(work))][: len(TERMS)])


def _numbered(keys: Sequence[Any]) -> tuple[list[Any], Any]:
    """The distinct keys, and the number of each key among them."""
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return list(number), np.array([number[key] for key in keys])


def _places(of_key: Any) -> Any:
    """For each row: how many rows of the same key came before it."""
    order = np.argsort(of_key, kind="stable")
    counts = np.bincount(of_key)
    places = np.empty(len(of_key), np.int64)
    places[order] = np.arange(len(of_key)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _pool(work: Vector, errors: Vector, weights: Vector) -> Vector:
    """For each column, the median factor of the rows that have it; of all rows if none has it."""
    of_all = np.ones(len(errors), bool)
    there = [has if has.any() else of_all for has in (work > 0).T]
    found: Vector = np.exp(np.array([_median(errors[has], weights[has]) for has in there]))
    return found


def _factors(work: Vector, took: Vector, weights: Vector, before: Vector, pool: Vector) -> Vector:
    """Factors of the columns by least squares of relative errors, drawn to the pool's, and at least a tenth of it.

    Outliers weigh less, so that one session that hung does not make everything dearer.
    """
    expected = work @ before
    errors = took - np.log(expected)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    scaled = work * pool / expected[:, None]
    target = np.exp(np.clip(errors, -_OUTLIER, _OUTLIER))
    square = scaled.T @ (robust[:, None] * scaled)
    # The doubt keeps a column that no row has at the pool's factor.
    doubt = _LEARNED_AFTER / len(before) * float(np.mean(robust))
    square[np.diag_indices_from(square)] += doubt
    right = scaled.T @ (robust * target) + doubt
    found, free = np.full(len(before), _FACTOR_LEAST), np.ones(len(before), bool)
    while free.any():  # columns that would fall below the least are set to it, and the others are solved again
        rest = right[free] - square[np.ix_(free, ~free)] @ found[~free]
        found[free] = np.linalg.solve(square[np.ix_(free, free)], rest)
        if np.all(found >= _FACTOR_LEAST):
            break
        free &= found >= _FACTOR_LEAST
        found[~free] = _FACTOR_LEAST
    of_columns: Vector = pool * found
    return of_columns


def _shrunk(errors: Vector, weights: Vector, doubt: float) -> float:
    """A robust mean, as if `doubt` more errors had been 0."""
    middle = _median(errors, weights)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    return float(robust @ errors / (robust.sum() + doubt))


def _median(values: Vector, weights: Vector) -> float:
    """The smallest value such that half of the weight lies at or below it."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, np.searchsorted(upto, 0.5 * upto[-1]))])
