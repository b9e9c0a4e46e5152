"""Children one after another, interleaved: floor, deltacompact, polars, …, floor, deltacompact, polars, …"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, Self

import psutil

from benchmarks import child
from benchmarks.competitors import Entrant
from benchmarks.configurations import Case
from benchmarks.data import Inputs
from benchmarks.meter import Meter

_LEAVING_S = 30.0


class Table(Protocol):
    """A table that is compacted: `tiny` is one of the same kind for warming up."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    def tiny(self) -> Self: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run, and where. `inputs_of` makes the files of a table and a case; `timeout_s` is for one child."""

    configurations: tuple[Table, ...]
    inputs_of: Callable[[Any, Case, Path, int], Inputs]
    cases: tuple[Case, ...]
    entrants: tuple[Entrant, ...]
    repeats: int
    seed: int
    data: Path
    out: Path
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One competitor, once. Seconds, bytes; `error` says why there are none. `correct` is None for the floor."""

    configuration: str
    case: str
    competitor: str
    repeat: int
    error: str | None = None
    correct: bool | None = None
    seconds: float = 0.0
    startup_s: float = 0.0
    warm_up_s: float = 0.0
    cpu_s: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    output_files: int = 0
    written_bytes: int = 0
    peak_process_bytes: int = 0
    peak_process_name: str = ""
    peak_tree_bytes: int = 0
    idle_tree_bytes: int = 0
    peak_temporary_bytes: int = 0
    samples: int = 0
    sampling_s: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def run(plan: Plan, tell: Callable[[str], None]) -> Iterable[Measurement]:
    """Everything in the plan, one measurement after another."""
    work = plan.out / "work"
    (plan.out / "logs").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    try:
        for configuration in plan.configurations:
            tell(f"{configuration.name}: {configuration.rows:,} rows; making the files unless they are there")
            yield from _configuration(plan, configuration, work, tell)
            shutil.rmtree(work, ignore_errors=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _configuration(plan: Plan, configuration: Table, work: Path, tell: Callable[[str], None]) -> Iterable[Measurement]:
    for case in plan.cases:
        inputs = plan.inputs_of(configuration, case, plan.data, plan.seed)
        warm = plan.inputs_of(configuration.tiny(), case, plan.data, plan.seed)
        taking_part = [entrant for entrant in plan.entrants if case in entrant.cases]
        broken: dict[str, str] = {}
        for repeat in range(plan.repeats):
            for entrant in taking_part:
                log = plan.out / "logs" / f"{configuration.name}-{case}-{entrant.label.replace(' ', '-')}-{repeat}.log"
                log.unlink(missing_ok=True)
                base = work / f"base-{entrant.group}-{len(inputs.prior)}"
                spec = child.Spec(work / "run", log, entrant, inputs, warm, base)
                if case.incremental and entrant.has_base and not base.exists() and entrant.group not in broken:
                    tell(f"{configuration.name}: {entrant.group} makes the table that the incremental cases start from")
                    if error := make_base(spec, plan.timeout_s):
                        broken[entrant.group] = f"base table: {error}"
                        shutil.rmtree(base, ignore_errors=True)
                named = Measurement(configuration.name, case, entrant.label, repeat)
                if entrant.group in broken:
                    done = replace(named, error=broken[entrant.group])
                else:
                    done = measure(spec, named, plan.timeout_s)
                outcome = done.error or f"{done.seconds:.2f} s"
                tell(f"{configuration.name} {case} {repeat + 1}/{plan.repeats} {entrant.label}: {outcome}")
                yield done


def measure(spec: child.Spec, named: Measurement, timeout_s: float) -> Measurement:
    """One child, measured from outside while it works."""
    shutil.rmtree(spec.folder, ignore_errors=True)  # of a run that was killed
    spec.folder.mkdir(parents=True)
    result, meter, cpu_s = watch(child.measure, spec, timeout_s)
    shutil.rmtree(spec.folder)
    if isinstance(result, str):
        return replace(named, error=result)
    made = child.Result(**result)
    is_floor = spec.entrant.group == "floor"
    found = (made.rows, made.checksum)
    correct = None if is_floor else found == (spec.inputs.expected.rows, spec.inputs.expected.checksum)
    wrong = None if correct is not False else f"wrong result: {made.rows:,} rows for {spec.inputs.expected}"
    if is_floor and made.rows != spec.inputs.rows:
        wrong = f"the floor wrote {made.rows:,} rows of {spec.inputs.rows:,}"
    return replace(
        named,
        error=wrong,
        correct=correct,
        seconds=made.seconds,
        startup_s=made.startup_s,
        warm_up_s=made.warm_up_s,
        cpu_s=cpu_s,
        rows_in=spec.inputs.rows,
        rows_out=made.rows,
        input_bytes=spec.inputs.bytes,
        output_bytes=made.output_bytes,
        output_files=made.output_files,
        written_bytes=made.written_bytes,
        peak_process_bytes=meter.peak_process_bytes,
        peak_process_name=meter.peak_process_name,
        peak_tree_bytes=meter.peak_tree_bytes,
        idle_tree_bytes=meter.first_tree_bytes,
        peak_temporary_bytes=meter.peak_temporary_bytes,
        samples=meter.samples,
        sampling_s=meter.own_s,
        details=made.details,
    )


def _ignore(_: str) -> None:
    """Nothing."""


def make_base(spec: child.Spec, timeout_s: float) -> str | None:
    """Why the base could not be made, or None."""
    spec.base.parent.mkdir(parents=True, exist_ok=True)
    result, _, _ = watch(child.build_base, spec, timeout_s)
    return result if isinstance(result, str) else None


def watch(
    task: Callable[[Any, Connection], None],
    desk: child.Desk,
    timeout_s: float,
    heard: Callable[[str], None] = _ignore,
) -> tuple[dict[str, Any] | str, Meter, float]:
    """Run `task` in a fresh interpreter; its result or its error, the meter, and the CPU seconds of the timed part.

    `heard` is called when the timed part begins and when it ends, while the child waits.
    """
    os.sync()  # what the one before has written is not for this one to wait for
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=task, args=(desk, there))
    process.start()
    there.close()
    assert process.pid is not None
    meter, leaving_s = Meter(process.pid, desk.temporary), 0.0
    try:
        result, cpu_s = _follow(here, meter, time.monotonic() + timeout_s, heard)
        leaving_s = 0.0 if isinstance(result, str) else _LEAVING_S
    finally:
        _end(process, leaving_s)
    return result, meter, cpu_s


def _follow(
    connection: Connection, meter: Meter, deadline_s: float, heard: Callable[[str], None]
) -> tuple[dict[str, Any] | str, float]:
    cpu_s, sampling = 0.0, False
    while True:
        wait_s = meter.sample() if sampling else 1.0
        if time.monotonic() > deadline_s:
            return "took longer than the timeout", cpu_s
        if not connection.poll(wait_s):
            continue
        try:
            kind, value = connection.recv()
        except EOFError:
            return "the process died; see its log", cpu_s
        if kind == child.BEGIN:
            cpu_s, sampling = cpu_s - meter.cpu_seconds(), True
            meter.sample()
        elif kind == child.END:
            cpu_s, sampling = cpu_s + meter.cpu_seconds(), False
        else:
            return value, cpu_s
        heard(kind)
        connection.send(None)


def _end(process: BaseProcess, leaving_s: float) -> None:
    """Let the child leave by itself, then end what is left of its tree."""
    with suppress(psutil.Error):
        tree = psutil.Process(process.pid).children(recursive=True)
        process.join(leaving_s)
        process.kill()
        for left in psutil.wait_procs(tree, timeout=min(leaving_s, 5.0))[1]:
            with suppress(psutil.Error):
                left.kill()
    process.join(_LEAVING_S)
