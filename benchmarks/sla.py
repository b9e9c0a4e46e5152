"""Expected against actual duration of sessions, planned and learned from as the control plane does it.

    gather -> plan_job_run -> expected 1.42 s, 1.21 … 1.70      said before the session runs
    compact()                 1.37 s                             in this process, which is warm: the cluster is up
    RateStore.learn                                              the next one is expected by what this one took

Every tenth session is run twice, on two copies of the table, one right after the other: how much they differ is what
the machine does to them, and no planner can know it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.sla_tables import GrowingTable, Sizes, tables
from deltacompact import Settings, compact, open_catalog, vacuum
from deltacompact.job import Request
from deltacompact.storage.opening import open_store
from sessions.base.model import Estimate, JobRunSession, Outcome, SessionPlan, SessionState
from sessions.planning.gather import gather
from sessions.planning.learning import RateStore, cpu_by_stage, observation_of
from sessions.planning.observations import Observation
from sessions.planning.plan import plan_job_run, settings_of
from sessions.planning.prices import Offer, offers_here
from sessions.planning.situation import Situation, Wish
from sessions.records.swapping import SwappedRecords

_WARM_UP = 3
_TWICE_EVERY = 10
_LEARNT_AFTER = 50
CLASSES_S = ((0.0, 0.25), (0.25, 1.0), (1.0, 5.0), (5.0, 60.0), (60.0, float("inf")))
BEGIN, END = "<!-- sla: written by `python -m benchmarks sla --readme` -->", "<!-- /sla -->"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one kind, wall or CPU: what was expected, what it took, and what the same took on a copy."""

    expected: Estimate
    took: float
    again: float | None = None

    @property
    def error(self) -> float:
        return abs(self.took - self.expected.seconds) / self.took

    @property
    def covered(self) -> bool:
        return self.expected.low_s <= self.took <= self.expected.high_s

    @property
    def width(self) -> float:
        return (self.expected.high_s - self.expected.low_s) / self.expected.seconds

    @property
    def kept(self) -> bool:
        return self.took <= self.expected.promise_s

    @property
    def slack(self) -> float:
        """By how much the promise is later than the end, as a share of what was taken."""
        return self.expected.promise_s / self.took - 1.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One session. `number` counts those of its kind on its table; `load` is the load average for each CPU."""

    table: str
    kind: str
    number: int
    rows: int
    bytes: int
    wall: Measured
    cpu: Measured
    load: float
    seen: Observation


def run(count: int, seed: int, sizes: Sizes, scale: float, folder: Path) -> Iterator[Ran]:
    """So many sessions, one after another, after a few that warm the process up."""
    rates = RateStore(SwappedRecords(open_store(folder / "state")))
    cpus, memory = os.cpu_count() or 1, psutil.virtual_memory().total
    offers = offers_here(cpus, memory)[:1]  # the in-process executor
    done = 0
    for table, compactions in tables(seed, sizes, scale):
        home = folder / table.name
        home.mkdir(parents=True)
        for number in range(compactions):
            (table.go_on if number else table.begin)(open_catalog(home), folder)
            plan = _planned(home, table, offers[0], rates)
            twice = done % _TWICE_EVERY == 0 and done >= _WARM_UP
            if twice:
                shutil.copytree(home, folder / "copy")
            load = os.getloadavg()[0] / cpus
            session = _finished(f"{table.name}-{number}", plan, _compacted(home, table, plan))
            rates.learn([session])
            again = _compacted(folder / "copy", table, plan) if twice else None
            shutil.rmtree(folder / "copy", ignore_errors=True)
            vacuum(open_catalog(home), table.name, age_min_s=0, force=True)  # a large table would fill the disk
            done += 1
            if done > _WARM_UP:
                yield _ran(table.name, number, session, again, load)
            if done == count + _WARM_UP:
                return
            if table.bytes > 2 * sizes.most_bytes:
                break
        shutil.rmtree(home)


def _planned(home: Path, table: GrowingTable, offer: Offer, rates: RateStore) -> SessionPlan:
    """The plan in a process that is warm: without what a cold start adds."""
    (found,) = gather(open_catalog(home), Request(table.name))
    if found.statistics is None:
        raise RuntimeError(f"{table.name} cannot be planned: {found}")
    expectations = rates.expectations([offer.pool])
    statistics = replace(found.statistics, catalog=str(home))
    (plan,) = plan_job_run([statistics], Wish(), Situation((offer,), expectations))
    warm = plan.expected.later(-expectations[offer.pool].cold_s(plan.stream), plan.expected.at_s)
    return replace(plan, expected=warm, waits=(0.0, 0.0))


def _compacted(home: Path, table: GrowingTable, plan: SessionPlan) -> Outcome:
    """One session, as its runner would run it."""
    settings = Settings(**settings_of(plan))
    began, began_cpu = time.perf_counter(), time.process_time()
    done = compact(
        table.name,
        delta_catalog_client=open_catalog(home),
        hash_bucket_count=plan.hash_bucket_count,
        settings=settings,
    ).sessions[0]
    seconds, here_s = time.perf_counter() - began, time.process_time() - began_cpu
    return Outcome(seconds, cpu_seconds=cpu_by_stage(done.cpu_seconds, done.executor, here_s))


def _finished(name: str, plan: SessionPlan, outcome: Outcome) -> JobRunSession:
    done = JobRunSession(name, "sla", plan.partition, SessionState.SUCCEEDED, plan=plan, expected_first=plan.expected)
    return replace(done, outcome=outcome, finished_s=time.time())


def _ran(table: str, number: int, session: JobRunSession, again: Outcome | None, load: float) -> Ran:
    plan, outcome, observed = session.plan, session.outcome, observation_of(session)
    assert plan is not None and plan.expected_cpu is not None and outcome is not None and observed is not None
    return Ran(
        table,
        "later" if number else "first",
        max(0, number - 1),
        plan.delta_rows + plan.base_rows,
        plan.bytes,
        Measured(plan.expected, outcome.seconds, again.seconds if again else None),
        Measured(plan.expected_cpu, _cpu_s(outcome), _cpu_s(again) if again else None),
        load,
        observed[1],
    )


def _cpu_s(outcome: Outcome) -> float:
    return sum(outcome.cpu_seconds.values())


@dataclass(frozen=True, slots=True)
class Line:
    """One line about some sessions: shares, and medians of what is relative to the duration.

    `noise`: by how much a session differs from the same one on a copy; None where no session ran twice.
    """

    name: str
    sessions: int
    coverage: float
    width: float
    kept: float
    slack: float
    error: float
    error_p90: float
    noise: float | None

    @classmethod
    def of(cls, name: str, measured: Sequence[Measured]) -> Line:
        errors = [score.error for score in measured]
        return cls(
            name,
            len(measured),
            float(np.mean([score.covered for score in measured])),
            median(score.width for score in measured),
            float(np.mean([score.kept for score in measured])),
            median(score.slack for score in measured),
            median(errors),
            float(np.quantile(errors, 0.9)),
            noise_of(measured),
        )


def chosen(ran: Sequence[Ran]) -> list[tuple[str, list[Ran]]]:
    """All sessions; those after the first fifty, by how many of their table were known, and by CPU seconds."""
    learnt = ran[_LEARNT_AFTER:]
    later = [session for session in learnt if session.kind == "later"]
    found: list[tuple[str, list[Ran]]] = [
        ("all", list(ran)),
        (f"after the first {_LEARNT_AFTER}", list(learnt)),
        ("of these, first compactions", [session for session in learnt if session.kind == "first"]),
        ("second ones", [session for session in later if session.number == 0]),
        ("from the third on", [session for session in later if session.number > 0]),
    ]
    for low, high in CLASSES_S:
        name = f"of {low:g} to {high:g} CPU s" if high < float("inf") else f"of more than {low:g} CPU s"
        found.append((name, [session for session in learnt if low <= session.cpu.took < high]))
    return [(name, sessions) for name, sessions in found if sessions]


def noise_of(measured: Sequence[Measured]) -> float | None:
    """How much two runs of the same session differ: the median over the sessions that were run twice."""
    ratios = [abs(np.log(score.again / score.took)) for score in measured if score.again is not None]
    return float(np.expm1(median(ratios))) if ratios else None


_HEAD = """|{kind} seconds||in the 90 % interval|its width|promise kept|its slack|median error|p90 error|run twice|
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


def table_of(kind: str, ran: Sequence[Ran], seconds: Callable[[Ran], Measured]) -> str:
    rows = [_HEAD.format(kind=kind)]
    for name, sessions in chosen(ran):
        line = Line.of(name, list(map(seconds, sessions)))
        cells = [f"{share:.0%}" for share in (line.coverage, line.width)]
        cells += [f"{line.kept:.1%}", *(f"{share:.0%}" for share in (line.slack, line.error, line.error_p90))]
        cells.append("" if line.noise is None else f"{line.noise:.0%}")
        rows.append("|".join(["", line.name, str(line.sessions), *cells, ""]))
    return "\n".join(rows)


def markdown_of(ran: Sequence[Ran], cpus: int) -> str:
    """The report: a table of CPU seconds and one of wall seconds, and how noisy the machine was."""
    loads, sizes = [session.load for session in ran], [session.rows for session in ran]
    cpu, wall = sorted(session.cpu.took for session in ran), sorted(session.wall.took for session in ran)
    told = [
        f"{len(ran)} sessions of {cpu[0]:.2f} to {cpu[-1]:.1f} CPU seconds (median {median(cpu):.2f}) and "
        f"{wall[0]:.2f} to {wall[-1]:.1f} wall seconds, of {min(sizes):,} to {max(sizes):,} rows, in process on {cpus} "
        "CPUs.",
        f"The load for each CPU was {min(loads):.1f} to {max(loads):.1f} (median {median(loads):.1f}).",
    ]
    noises = noise_of([session.cpu for session in ran]), noise_of([session.wall for session in ran])
    if noises[0] is not None:
        twice = sum(session.cpu.again is not None for session in ran)
        told.append(
            f"{twice} were run twice: the two differ by {noises[0]:.0%} of CPU and {noises[1]:.0%} of wall seconds "
            "(median), by *run twice* on a line's."
        )
    tables = table_of("CPU", ran, lambda session: session.cpu), table_of("wall", ran, lambda session: session.wall)
    return "\n\n".join([*tables, " ".join(told)])


def write_report(ran: Sequence[Ran], out: Path, described: dict[str, Any]) -> str:
    """sla.md and sla.json; the text of the former."""
    text = markdown_of(ran, os.cpu_count() or 1)
    (out / "sla.md").write_text(text + "\n")
    (out / "sla.json").write_text(json.dumps({**described, "sessions": [asdict(session) for session in ran]}, indent=1))
    return text
