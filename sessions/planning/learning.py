"""Learns from finished sessions: turns a session's record into an observation, and keeps rates beside the job runs.

    rates/local-local                 one record for each pool, replaced by compare-and-swap
      observations                    the newest 400, at most 25 of one table: 400 KB at most

If two dispatchers add observations at the same time, the record gets both: the loser of the swap reads the record again
and adds its own. A session counts once, however often it is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pydantic import TypeAdapter

from deltacompact.planning.work import TERMS
from sessions.base.model import JobRunSession, SessionState
from sessions.planning.expectation import Expectation
from sessions.planning.observations import Observation, PoolRates
from sessions.planning.parts import PARTS, WHOLE
from sessions.planning.rates import expectation_of
from sessions.records.learned import LearnedRecord
from sessions.records.swapping import SwappedRecords

_RAY = "ray"
"""The executor whose tasks run in processes of their own."""
_RATES = TypeAdapter(PoolRates)


def observation_of(session: JobRunSession) -> tuple[str, Observation] | None:
    """The pool that a session ran in, and its observation; None: the session teaches nothing about rates.

    A session that resumed rounds of another attempt took less time than its work needs.
    """
    plan, outcome = session.plan, session.outcome
    if session.state is not SessionState.SUCCEEDED or plan is None or outcome is None or not plan.work:
        return None
    if outcome.rounds_resumed or outcome.seconds <= 0:
        return None
    seen = Observation(
        f"{session.job_run_id}/{session.id}",
        plan.stream,
        _by_term(plan.work),
        outcome.seconds,
        (session.expected_first or plan.expected).seconds,
        session.finished_s or 0.0,
        _by_term(plan.whole),
        _by_part(outcome.cpu_seconds),
        plan.expected_cpu.seconds if plan.expected_cpu else 0.0,
        plan.waits,
    )
    return pool_of(f"{plan.executor}/{plan.node_type}", plan.mode), seen


def _by_term(work: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(work.get(term, 0.0) for term in TERMS)


def _by_part(cpu_seconds: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds by part, from those by stage. If only the whole is known, only the whole."""
    found: dict[str, float] = {}
    for stage, cpu_s in cpu_seconds.items():
        part = stage if stage == WHOLE else PARTS.get(stage, "session")
        found[part] = found.get(part, 0.0) + cpu_s
    return found


def cpu_by_stage(stages: Mapping[str, float], executor: str, here_s: float) -> dict[str, float]:
    """CPU seconds of a session by stage; its own process outside of stages counts as "session".

    `here_s`: CPU seconds of its own process. If no stage is known, they are the whole, under ""; on Ray: nothing.
    """
    elsewhere = executor == _RAY
    if not stages:
        return {} if elsewhere else {WHOLE: round(here_s, 3)}
    outside_s = here_s - (0.0 if elsewhere else sum(stages.values()))
    return {**stages, "session": round(max(0.0, outside_s), 3)}


def pool_of(pool: str, mode: str) -> str:
    """The pool whose rates apply. Each mode of Iceberg tables has a pool of its own."""
    return f"{pool}/{mode}" if mode else pool


class RateStore:
    """The rates of every pool, as JSON records of a state. Safe to use from several threads and processes."""

    def __init__(self, records: SwappedRecords) -> None:
        self._records = records

    def rates(self, pool: str) -> PoolRates:
        """The rates of a pool; empty if there is no record, or it cannot be understood."""
        return self._record(pool).read()

    def expectations(self, pools: Iterable[str], mode: str = "") -> Mapping[str, Expectation]:
        """The expectations of these pools for a mode, by pool."""
        return {pool: expectation_of(self.rates(pool_of(pool, mode))) for pool in dict.fromkeys(pools)}

    def learn(self, sessions: Iterable[JobRunSession]) -> None:
        """Add the times of sessions. Raises StoreError if a record cannot be replaced; only these times are lost."""
        by_pool: dict[str, list[Observation]] = {}
        for session in sessions:
            if found := observation_of(session):
                by_pool.setdefault(found[0], []).append(found[1])
        for pool, observations in by_pool.items():
            self._record(pool).update(partial(_learned, observations=observations))

    def _record(self, pool: str) -> LearnedRecord[PoolRates]:
        return LearnedRecord(self._records, _folder(pool), _RATES, PoolRates(pool))


def _learned(known: PoolRates, observations: list[Observation]) -> PoolRates:
    return known.learned(observations)


def _folder(pool: str) -> str:
    return f"rates/{pool.replace('/', '-')}"
