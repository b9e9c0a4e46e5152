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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.sla_tables import GrowingTable, tables
from deltacompact import Settings, compact, open_catalog
from deltacompact.job import Request
from deltacompact.storage.opening import open_store
from sessions.base.model import JobRunSession, Outcome, SessionPlan, SessionState
from sessions.planning.gather import gather
from sessions.planning.learning import RateStore
from sessions.planning.plan import Situation, Wish, plan_job_run, settings_of
from sessions.planning.prices import offers_here
from sessions.planning.rates import BUFFER
from sessions.records.swapping import SwappedRecords

_WARM_UP = 3
_TWICE_EVERY = 10
_LEARNT_AFTER = 50
CLASSES_S = ((0.0, 0.25), (0.25, 1.0), (1.0, 4.0), (4.0, float("inf")))
BEGIN, END = "<!-- sla: written by `python -m benchmarks sla --readme` -->", "<!-- /sla -->"


@dataclass(frozen=True, slots=True)
class Ran:
    """One session. `again_s` is what the same session took on a copy; `load` the load average for each CPU."""

    table: str
    kind: str
    rows: int
    bytes: int
    expected_s: float
    low_s: float
    high_s: float
    seconds: float
    again_s: float | None
    load: float

    @property
    def error(self) -> float:
        return abs(self.seconds - self.expected_s) / self.seconds

    @property
    def adheres(self) -> bool:
        """Within the paper's 10 % buffer."""
        return self.seconds <= BUFFER * self.expected_s

    @property
    def covered(self) -> bool:
        return self.low_s <= self.seconds <= self.high_s

    @property
    def width(self) -> float:
        return (self.high_s - self.low_s) / self.expected_s


def run(count: int, seed: int, scale: float, folder: Path) -> Iterator[Ran]:
    """So many sessions, one after another, after a few that warm the process up."""
    rates = RateStore(SwappedRecords(open_store(folder / "state")))
    cpus, memory = os.cpu_count() or 1, psutil.virtual_memory().total
    offers = offers_here(cpus, memory)[:1]  # the in-process executor
    done = 0
    for table, compactions in tables(seed, scale):
        home = folder / table.name
        home.mkdir(parents=True)
        for number in range(compactions):
            catalog = open_catalog(home)
            (table.go_on if number else table.begin)(catalog, folder)
            expectations = rates.expectations(offer.pool for offer in offers)
            (found,) = gather(catalog, Request(table.name))
            if found.statistics is None:
                raise RuntimeError(f"{table.name} cannot be planned: {found}")
            (plan,) = plan_job_run([found.statistics], Wish(), Situation(offers, expectations))
            twice = done % _TWICE_EVERY == 0 and done >= _WARM_UP
            if twice:
                shutil.copytree(home, folder / "copy")
            load = os.getloadavg()[0] / cpus
            seconds = _compacted(home, table, plan)
            rates.learn([_finished(f"{table.name}-{number}", plan, seconds)])
            again_s = _compacted(folder / "copy", table, plan) if twice else None
            shutil.rmtree(folder / "copy", ignore_errors=True)
            done += 1
            if done > _WARM_UP:
                expected = plan.expected
                kind = "later" if number else "first"
                yield Ran(
                    table.name, kind, plan.delta_rows + plan.base_rows, plan.bytes, expected.seconds, expected.low_s,
                    expected.high_s, seconds, again_s, load,
                )  # fmt: skip
            if done == count + _WARM_UP:
                return
        shutil.rmtree(home)


def _compacted(home: Path, table: GrowingTable, plan: SessionPlan) -> float:
    """Seconds of one session, as its runner would run it."""
    settings = Settings(**settings_of(plan))
    began = time.perf_counter()
    compact(
        table.name,
        delta_catalog_client=open_catalog(home),
        hash_bucket_count=plan.hash_bucket_count,
        settings=settings,
    )
    return time.perf_counter() - began


def _finished(name: str, plan: SessionPlan, seconds: float) -> JobRunSession:
    done = JobRunSession(name, "sla", plan.partition, SessionState.SUCCEEDED, plan=plan, expected_first=plan.expected)
    return replace(done, outcome=Outcome(seconds), finished_s=time.time())


@dataclass(frozen=True, slots=True)
class Line:
    """One line about some sessions: shares, medians, and errors relative to the actual duration."""

    name: str
    sessions: int
    adherence: float
    coverage: float
    width: float
    error: float
    error_p90: float

    @classmethod
    def of(cls, name: str, ran: Sequence[Ran]) -> Line:
        errors = [session.error for session in ran]
        return cls(
            name,
            len(ran),
            float(np.mean([session.adheres for session in ran])),
            float(np.mean([session.covered for session in ran])),
            median(session.width for session in ran),
            median(errors),
            float(np.quantile(errors, 0.9)),
        )


def lines_of(ran: Sequence[Ran]) -> list[Line]:
    """All sessions; those after the first fifty; first compactions and later ones; by duration."""
    learnt = ran[_LEARNT_AFTER:]
    chosen: list[tuple[str, Sequence[Ran]]] = [
        ("all", ran),
        (f"after the first {_LEARNT_AFTER}", learnt),
        ("of these, first compactions", [session for session in learnt if session.kind == "first"]),
        ("later ones", [session for session in learnt if session.kind == "later"]),
    ]
    for low, high in CLASSES_S:
        name = f"of {low:g} to {high:g} s" if high < float("inf") else f"of more than {low:g} s"
        chosen.append((name, [session for session in learnt if low <= session.seconds < high]))
    return [Line.of(name, some) for name, some in chosen if some]


def noise_of(ran: Sequence[Ran]) -> float | None:
    """How much two runs of the same session differ: the median over the sessions that were run twice."""
    ratios = [abs(np.log(session.again_s / session.seconds)) for session in ran if session.again_s is not None]
    return float(np.expm1(median(ratios))) if ratios else None


def markdown_of(ran: Sequence[Ran], cpus: int) -> str:
    """The report: one table, and how noisy the machine was."""
    head = "| sessions | | within 10 % buffer | in the 90 % interval | its width | median error | p90 error |"
    rows = [head, "|---|---:|---:|---:|---:|---:|---:|"]
    for line in lines_of(ran):
        shares = (line.adherence, line.coverage, line.width, line.error, line.error_p90)
        rows.append(f"| {line.name} | {line.sessions} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    loads = [session.load for session in ran]
    seconds = sorted(session.seconds for session in ran)
    noise = noise_of(ran)
    twice = sum(session.again_s is not None for session in ran)
    sizes = [session.rows for session in ran]
    told = [
        f"{len(ran)} sessions of {seconds[0]:.2f} to {seconds[-1]:.1f} s (median {median(seconds):.2f} s), of "
        f"{min(sizes):,} to {max(sizes):,} rows, in process on {cpus} CPUs.",
        f"The load for each CPU was {min(loads):.1f} to {max(loads):.1f} (median {median(loads):.1f}).",
    ]
    if noise is not None:
        told.append(f"{twice} were run twice, one right after the other: the two differ by {noise:.0%} (median).")
    return "\n".join([*rows, "", " ".join(told)])


def write_report(ran: Sequence[Ran], out: Path, described: dict[str, Any]) -> str:
    """sla.md and sla.json; the text of the former."""
    text = markdown_of(ran, os.cpu_count() or 1)
    (out / "sla.md").write_text(text + "\n")
    (out / "sla.json").write_text(json.dumps({**described, "sessions": [asdict(session) for session in ran]}, indent=1))
    return text
