"""Every scenario at every place, one after another, interleaved: each in a process of its own.

narrow full   local files, S3 0 ms, S3 30 ms, local files, S3 0 ms, …
              CPU: of that process and its children; the server's and the proxy's is not among it
              requests, bytes: what went through the proxy between the begin of the timed part and its end
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltacompact
from benchmarks import child, runner
from benchmarks.competitors import CORES
from benchmarks.competitors.delta_compact import DeltaCompact
from benchmarks.s3.places import Brought, Place
from benchmarks.s3.proxy import Counts
from benchmarks.s3.scenarios import Made, Scenario
from deltacompact import Settings

_WARM = "warm"


@dataclass(frozen=True, slots=True)
class Spec(child.Desk):
    """What a child is to do. The table is at its place already."""

    scenario: Scenario
    executor: str
    brought: Brought


@dataclass(frozen=True, slots=True)
class Result:
    """What the child knows: seconds of the timed part, and the session's own account where there was one session."""

    seconds: float
    wrong: str | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One scenario at one place, once. `request_s` is the time that all requests took, added up."""

    scenario: str
    place: str
    executor: str
    repeat: int
    operations: int = 1
    error: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_process_bytes: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    up_bytes: int = 0
    down_bytes: int = 0
    request_s: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def waited(self) -> float:
        """The share of the time of all cores in which they did not work for us."""
        return max(0.0, 1 - self.cpu_s / (self.seconds * CORES))


@dataclass(frozen=True, slots=True)
class Plan:
    """`folder` is where tables are made once; `out` gets the logs."""

    scenarios: list[Scenario]
    places: list[Place]
    executors: tuple[str, ...]
    repeats: int
    folder: Path
    out: Path
    timeout_s: float


def run(plan: Plan, tell: Callable[[str], None]) -> Iterable[Measurement]:
    """Everything in the plan."""
    work = plan.out / "work"
    (plan.out / "logs").mkdir(parents=True, exist_ok=True)
    try:
        for scenario in plan.scenarios:
            tell(f"{scenario.name}: making its files unless they are there")
            made = scenario.make(plan.folder)
            for repeat in range(plan.repeats):
                for executor in plan.executors:
                    for place in plan.places:
                        measured = _at(place, scenario, made, executor, repeat, plan, work)
                        outcome = (
                            measured.error or f"{measured.seconds:.2f} s, {sum(measured.requests.values())} requests"
                        )
                        tell(f"{scenario.name} {repeat + 1}/{plan.repeats} {executor}, {place.name}: {outcome}")
                        yield measured
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _at(
    place: Place, scenario: Scenario, made: Made, executor: str, repeat: int, plan: Plan, work: Path
) -> Measurement:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    brought = place.bring(made, work)
    words = f"{scenario.name} {executor} {place.name} {repeat}"
    log = plan.out / "logs" / f"{re.sub(r'[^a-zA-Z0-9]+', '-', words)}.log"
    log.unlink(missing_ok=True)
    counted: list[Counts] = []
    result, meter, cpu_s = runner.watch(
        measure, Spec(work, log, scenario, executor, brought), plan.timeout_s, lambda _: counted.append(place.counts())
    )
    place.clear(brought)
    named = Measurement(scenario.name, place.name, executor, repeat, scenario.operations)
    if isinstance(result, str):
        return replace(named, error=result)
    begin, end = counted
    counts = end.since(begin)
    return replace(
        named,
        error=result["wrong"],
        seconds=result["seconds"],
        cpu_s=cpu_s,
        peak_process_bytes=meter.peak_process_bytes,
        requests={str(kind): count for kind, count in counts.requests.items()},
        up_bytes=counts.up_bytes,
        down_bytes=counts.down_bytes,
        request_s=counts.request_s,
        details=result["details"],
    )


def measure(spec: Spec, parent: Connection) -> None:
    """The whole life of a measured child."""
    with child.Reporting(spec, parent):
        os.environ |= spec.brought.environment
        competitor = DeltaCompact(spec.executor)
        competitor.start()
        settings = Settings(executor=spec.executor)
        _warm_up(spec, settings)
        spec.scenario.prepare(deltacompact.open_catalog(spec.brought.catalog), spec.brought.files)
        catalog = deltacompact.open_catalog(spec.brought.catalog)
        gc.collect()
        child.tell(parent, child.BEGIN)
        working = time.perf_counter()
        done = spec.scenario.work(catalog, settings)
        seconds = time.perf_counter() - working
        child.tell(parent, child.END)
        wrong = spec.scenario.check(catalog, done)
        details = asdict(replace(done.sessions[0], decisions=())) if done and len(done.sessions) == 1 else {}
        competitor.stop()
        parent.send((child.RESULT, asdict(Result(seconds, wrong, details))))


def _warm_up(spec: Spec, settings: Settings) -> None:
    """A tiny table at the same place: imports, connections, and workers of the cluster."""
    catalog = deltacompact.open_catalog(f"{spec.brought.catalog}-{_WARM}")
    catalog.create_table(_WARM, primary_keys=["key"])
    for number in range(2):
        catalog.append(_WARM, pa.table({"key": [number], "text": ["warm"]}))
        deltacompact.compact(_WARM, delta_catalog_client=catalog, settings=settings)
