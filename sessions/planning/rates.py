"""Rates: what the terms of work take, learned from finished sessions. Pure.

CPU seconds    shipped            of a row, a byte, a file, …           measured on the machine of the README
               x this pool        1.3      sessions here compute so much longer: one number, learned at once
               x each term        1.1 …    what kind of work is dearer here: learned slowly, from many sessions
               x table and part   0.7      materializing this table takes less: its rows compress well
wall seconds   those of the busiest slot x 1.05, and a request to a store behind a network, and a cold start

A session of 2 slots: 3.0 CPU seconds, 1.6 of them on the busier slot, 40 requests, in a process that begins with it
    1.6 x 1.1 (the machine is busy) + 40 x 0.03 s / 4 at a time + 0.02 s       2.1 s, once its process is up

So a busy machine, or a store that answers slowly, changes nothing in what is known of CPU seconds. Both are fitted by
least squares of relative errors, drawn to the shipped values, and both have bounds of their own (bounds.py). The parts
of a session are groups of its stages, so that CPU seconds of decoding teach nothing about the index.
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
"""The paper's: a session adheres to its expected SLA as long as it takes no more than a tenth longer."""

OBSERVATIONS_MAX = 400
OBSERVATIONS_OF_A_TABLE_MAX = 25
"""One job run of a thousand partitions does not push out what is known of all other tables."""

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
"""Sessions' worth of doubt that each rate starts with: so many must disagree with the pool's before it moves half the
way."""
_HALF_LIFE = 100.0
_LATELY = 8.0
"""Sessions after which an observation counts half, for rates and for how busy the machine is lately."""
_LATELY_AFTER = 2.0
_LEVEL_LATELY = 3.0
_LEVEL_AFTER = 0.25
"""The same for what the last sessions on one table took."""
_LEVEL_IN_FIT = 2.0
"""While rates are fitted, tables explain less: what a single session on each of many tables has in common is a rate."""
_OUTLIER = 0.35
"""A session that took e to the power of this more or less than expected pulls no harder than one that did so."""
_FAR = 3.0
"""Of a table, whose rows may be anything at first, the same is true from here on."""
_FACTOR_LEAST = 0.1
"""The least factor of a rate, beside the pool's."""
_CLOCK_S = 1e-3
"""Clocks of CPU time are no finer: what took less took so much."""
_LEAST_WORK_S = 1e-9
"""A part that was expected to take less teaches nothing."""
_ITERATIONS = 8
"""Rates and tables are fitted in turn, so often."""
_SCORE_HALF_LIFE = 100.0
_UNKNOWN = 0.2
"""Of an error (log) that present rates would not make, so much still counts as one."""

_SHIPPED = np.array([FIRST_RATES[term] for term in TERMS])


def part_of(term: str) -> str:
    return PARTS.get(STAGE_OF[term], "session")


_PART_OF_TERM = tuple(map(part_of, TERMS))
_MERGED = TERMS.index("merged_row")
_MERGE = "merge"
"""The index of a session that merges its runs: what searching them takes on a table says little of that."""
_PART_OF_MERGE = tuple(_MERGE if part == "index" else part for part in _PART_OF_TERM)
_IN_PART = {
    part: np.array([of_term == part for of_term in parts])
    for parts in (_PART_OF_TERM, _PART_OF_MERGE)
    for part in dict.fromkeys(parts)
}
_IN_PART[WHOLE] = np.ones(len(TERMS), bool)


@dataclass(frozen=True, slots=True)
class SessionWork:
    """One session's work: of its busiest slot, and of all together, which is what CPU seconds count.

    `requests` wait for each other (those at a time count as one), `starts` are cold ones: 0 or 1.
    """

    busiest: WorkTerms
    whole: WorkTerms
    requests: float = 0.0
    starts: float = 0.0

    @classmethod
    def of(cls, terms: WorkTerms) -> SessionWork:
        """On one slot."""
        return cls(terms, terms)


@dataclass(frozen=True, slots=True)
class Observation:
    """One session that succeeded. `work` of its busiest slot by TERMS; `expected_s` is what was said before it ran;
    `at_s` when it ended.

    `stream`: the table, and whether it was a first compaction, which says little of later ones. Sessions of the version
    before have no CPU seconds: `cpu_s` by part, `whole` by TERMS, `expected_cpu_s` as it was said. `waits` are requests
    and starts.
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


_WALL = "wall"

Levels = Mapping[tuple[str, str], float]
"""Factors by stream and part: what is left where the rates are applied to it."""


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
        """The wall seconds term by term; those of requests and starts are of the session's own term."""
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
    seen = [observation for observation in known.observations if sum(observation.work) > 0]
    if not seen:
        return FIRST_EXPECTATION
    age = np.arange(len(seen), dtype=np.float64)[::-1]
    rates, levels = _cpu_rates(seen, age)
    now_cpu_s = _seconds(seen, [one.whole for one in seen], rates, levels).tolist()
    busiest_s = _seconds(seen, [one.work for one in seen], rates, levels)
    waited = np.column_stack([busiest_s, [one.waits for one in seen]])
    waits, wall_levels = _wall_rates(seen, age, waited)
    now_s = (waited @ waits * [wall_levels[one.stream, _WALL] for one in seen]).tolist()
    cpu = [(sum(one.cpu_s.values()), one.expected_cpu_s, now) for one, now in zip(seen, now_cpu_s, strict=True)]
    wall = [(one.seconds, one.expected_s, now) for one, now in zip(seen, now_s, strict=True)]
    return Expectation(
        rates,
        waits,
        {**levels, **wall_levels},
        Bounds.of(_scores(seen, age, wall)),
        Bounds.of(_scores(seen, age, cpu)),
    )


def _cpu_rates(seen: Sequence[Observation], age: Vector) -> tuple[Vector, dict[tuple[str, str], float]]:
    """CPU seconds by term, and factors by stream and part. A row of the fit is one part of one session."""
    rows = [(place, *row) for place, one in enumerate(seen) for row in _rows(one)]
    if not rows:
        return _SHIPPED, {}
    places, parts, work, cpu_s, shares = zip(*rows, strict=True)
    keys = [(seen[place].stream, part) for place, part in zip(places, parts, strict=True)]
    factors, levels = _Fit(keys, age[list(places)], np.array(shares)).of(np.array(work), np.log(cpu_s))
    return _SHIPPED * factors, levels


def _rows(one: Observation) -> Iterator[tuple[str, Vector, float, float]]:
    """Of each part that is known: its name, its work at shipped rates, its CPU seconds, and its share of all."""
    amounts = padded(one.whole)
    in_all = sum(one.cpu_s.values())
    for name, cpu_s in one.cpu_s.items():
        part = _MERGE if name == "index" and amounts[_MERGED] > 0 else name
        work = np.where(_IN_PART.get(part, False), amounts, 0.0) * _SHIPPED
        if cpu_s > 0 and work.sum() >= _LEAST_WORK_S:
            yield part, work, max(cpu_s, _CLOCK_S), cpu_s / in_all


def _seconds(seen: Sequence[Observation], works: Sequence[tuple[float, ...]], rates: Vector, levels: Levels) -> Vector:
    """What this work of each session would take by what is known now."""
    amounts = np.array([padded(work) for work in works])
    tables, of_table = _numbered(
        list(zip([one.stream for one in seen], (amounts[:, _MERGED] > 0).tolist(), strict=True))
    )
    factors = np.array([_factors_of(stream, merges, levels) for stream, merges in tables])
    found: Vector = amounts * factors[of_table] @ rates
    return found


def _wall_rates(
    seen: Sequence[Observation], age: Vector, waited: Vector
) -> tuple[Vector, dict[tuple[str, str], float]]:
    """Wall seconds of what a session waits for, and factors by stream: lately, all of them take so much longer."""
    took = np.log([one.seconds for one in seen])
    fit = _Fit([(one.stream, _WALL) for one in seen], age, np.ones(len(seen)))
    factors, of_streams = fit.of(waited * _FIRST_WAITS, took)
    return _FIRST_WAITS * factors, of_streams


_SHARE_LEAST = 1e-6
"""A part that took no time to speak of, as its clock has it, still counts a little: rows of no weight have no fit."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Least squares of relative errors: `keys` say which rows share a factor, `shares` how much a row counts."""

    keys: Sequence[tuple[str, str]]
    age: Vector
    shares: Vector

    def of(self, work: Vector, took: Vector) -> tuple[Vector, dict[tuple[str, str], float]]:
        """Factors of the columns, and of the rows of each key. The former include how things are lately."""
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
    """For each key: the mean log of its last errors, drawn towards 0 as if so many more of them had been 0."""
    errors = np.clip(left, -_FAR, _FAR)
    middle = (np.bincount(of_key, recent * errors) / np.bincount(of_key, recent))[of_key]
    robust = recent * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    found: Vector = np.bincount(of_key, robust * errors) / (np.bincount(of_key, robust) + doubt)
    return found


def _scores(seen: Sequence[Observation], age: Vector, known: Sequence[tuple[float, float, float]]) -> Scores:
    """The scores of those of which all is known: what was taken, what had been expected, what would be expected now."""
    there = np.array([min(one) > 0 for one in known])
    if not there.any():
        return Scores()
    took, said, now = np.log(np.array(known)[there]).T
    # Sessions that were planned before anything was known of this machine or table say nothing of what is known now.
    values = took - now + np.clip(now - said, -_UNKNOWN, _UNKNOWN)
    streams = tuple(one.stream for one, is_known in zip(seen, there, strict=True) if is_known)
    return Scores(values, 0.5 ** (age[there] / _SCORE_HALF_LIFE), said, streams)


def padded(work: Sequence[float]) -> Vector:
    """Records of the version before lack the last terms."""
    return np.array([*work, *[0.0] * (len(TERMS) - len(work))][: len(TERMS)])


def _numbered(keys: Sequence[Any]) -> tuple[list[Any], Any]:
    """The different keys, and for each one its number among them."""
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
    """For each column the median factor of the rows that have it, or of all where none does."""
    of_all = np.ones(len(errors), bool)
    there = [has if has.any() else of_all for has in (work > 0).T]
    found: Vector = np.exp(np.array([_quantile(errors[has], weights[has], 0.5) for has in there]))
    return found


def _factors(work: Vector, took: Vector, weights: Vector, before: Vector, pool: Vector) -> Vector:
    """Factors of the columns by least squares of relative errors, drawn to the pool's, never below a tenth of it.

    Errors beyond an outlier's are weighed down, so that one session that hung does not make everything dearer.
    """
    expected = work @ before
    errors = took - np.log(expected)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    scaled = work * pool / expected[:, None]
    target = np.exp(np.clip(errors, -_OUTLIER, _OUTLIER))
    square = scaled.T @ (robust[:, None] * scaled)
    # A column that is no part of the work seen stays with the pool's factor.
    doubt = _LEARNED_AFTER / len(before) * float(np.mean(robust))
    square[np.diag_indices_from(square)] += doubt
    right = scaled.T @ (robust * target) + doubt
    found, free = np.full(len(before), _FACTOR_LEAST), np.ones(len(before), bool)
    while free.any():  # those that would fall below the least stay there, and the others are solved again
        rest = right[free] - square[np.ix_(free, ~free)] @ found[~free]
        found[free] = np.linalg.solve(square[np.ix_(free, free)], rest)
        if np.all(found >= _FACTOR_LEAST):
            break
        free &= found >= _FACTOR_LEAST
        found[~free] = _FACTOR_LEAST
    of_columns: Vector = pool * found
    return of_columns


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
