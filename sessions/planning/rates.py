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

from collections.abc import Iterator, Sequence

import numpy as np

from deltacompact.planning.work import Vector
from sessions.planning.bounds import Bounds, Scores
from sessions.planning.expectation import (
    FIRST_EXPECTATION,
    FIRST_WAITS,
    SHIPPED,
    WALL,
    Expectation,
    Levels,
    factors_of,
)
from sessions.planning.fitting import Fit, numbered
from sessions.planning.observations import Observation, PoolRates, padded
from sessions.planning.parts import IN_PART, MERGE, MERGED

_CLOCK_S = 1e-3
"""Clocks of CPU time are no finer: smaller values count as this."""
_LEAST_WORK_S = 1e-9
"""A part with less expected work teaches nothing."""
_SCORE_HALF_LIFE = 100.0
_UNKNOWN = 0.2
"""If today's rates would have avoided an error (log), at most this much of it still counts."""


def expectation_of(known: PoolRates) -> Expectation:
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
    now_s = (waited @ waits * [wall_levels[session.stream, WALL] for session in seen]).tolist()
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
        return SHIPPED, {}
    places, parts, work, cpu_s, shares = zip(*rows, strict=True)
    keys = [(seen[place].stream, part) for place, part in zip(places, parts, strict=True)]
    factors, levels = Fit(keys, age[list(places)], np.array(shares)).of(np.array(work), np.log(cpu_s))
    return SHIPPED * factors, levels


def _rows(session: Observation) -> Iterator[tuple[str, Vector, float, float]]:
    """For each part of a session: its name, its work at shipped rates, its CPU seconds, and their share of all."""
    amounts = padded(session.whole)
    in_all = sum(session.cpu_s.values())
    for name, cpu_s in session.cpu_s.items():
        part = MERGE if name == "index" and amounts[MERGED] > 0 else name
        work = np.where(IN_PART.get(part, False), amounts, 0.0) * SHIPPED
        if cpu_s > 0 and work.sum() >= _LEAST_WORK_S:
            yield part, work, max(cpu_s, _CLOCK_S), cpu_s / in_all


def _seconds(seen: Sequence[Observation], works: Sequence[tuple[float, ...]], rates: Vector, levels: Levels) -> Vector:
    """The seconds that each session's work would take at these rates and levels."""
    amounts = np.array([padded(work) for work in works])
    tables, of_table = numbered(
        list(zip([session.stream for session in seen], (amounts[:, MERGED] > 0).tolist(), strict=True))
    )
    factors = np.array([factors_of(stream, merges, levels) for stream, merges in tables])
    found: Vector = amounts * factors[of_table] @ rates
    return found


def _wall_rates(
    seen: Sequence[Observation], age: Vector, waited: Vector
) -> tuple[Vector, dict[tuple[str, str], float]]:
    """Wall seconds, as FIRST_WAITS has them, and factors by stream. They include how slow all sessions were lately."""
    took = np.log([session.seconds for session in seen])
    fit = Fit([(session.stream, WALL) for session in seen], age, np.ones(len(seen)))
    factors, of_streams = fit.of(waited * FIRST_WAITS, took)
    return FIRST_WAITS * factors, of_streams


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
