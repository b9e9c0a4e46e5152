"""One cleaner in a process of its own: it cleans a small table, then the table is cleaned and measured from outside."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.child import BEGIN, END, RESULT, Reporting, tell
from benchmarks.iceberg.cleaners import CLEANERS
from benchmarks.iceberg.shapes import Shape
from benchmarks.iceberg.tables import MadeTable, made_table
from benchmarks.runner import watch

WARM = Shape("warm", 1_009, 4, 4, 40)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a child is to do: clean `warm`, then `made`."""

    cleaner: str
    made: MadeTable
    warm: MadeTable
    temporary: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Seconds from the call to its return: plan, work and commit. Memory is that of the largest process."""

    shape: str
    cleaner: str
    repeat: int
    error: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_process_bytes: int = 0
    peak_tree_bytes: int = 0
    live_rows: int = 0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The shapes and the cleaners, each so many times, interleaved."""

    shapes: tuple[Shape, ...]
    cleaners: tuple[str, ...]
    repeats: int
    seed: int
    data: Path
    out: Path
    timeout_s: float


def run(plan: RunPlan, tell_user: Callable[[str], None]) -> list[Measured]:
    """All runs, one after another."""
    found = []
    warm = made_table(WARM, plan.data, plan.seed)
    for shape in plan.shapes:
        tell_user(f"{shape.name}: {shape.rows:,} rows; making the files unless they are there")
        made = made_table(shape, plan.data, plan.seed)
        for repeat in range(plan.repeats):
            for cleaner in plan.cleaners:
                one = _measured(plan, Measured(shape.name, cleaner, repeat), made, warm)
                tell_user(f"{shape.name} {cleaner}: {one.error or f'{one.seconds:.2f} s'}")
                found.append(one)
    return found


def _measured(plan: RunPlan, named: Measured, made: MadeTable, warm: MadeTable) -> Measured:
    temporary, log = plan.out / "temporary", plan.out / "logs" / f"{named.shape}-{named.cleaner.replace(' ', '-')}.log"
    for folder in (temporary, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    files = [(table, table.files()) for table in (warm, made)]
    result, meter, cpu_s = watch(_clean, Spec(named.cleaner, made, warm, temporary, log), plan.timeout_s)
    for table, before in files:
        table.restore(before)
    known = asdict(named) | {
        "cpu_s": cpu_s,
        "peak_process_bytes": meter.peak_process_bytes,
        "peak_tree_bytes": meter.peak_tree_bytes,
    }
    return Measured(**known | ({"error": result} if isinstance(result, str) else result))


def _clean(spec: Spec, parent: Connection) -> None:
    """The whole life of a child."""
    with Reporting(spec, parent):
        cleaner = CLEANERS[spec.cleaner]()
        cleaner.clean(spec.warm)
        gc.collect()
        tell(parent, BEGIN)
        began = time.perf_counter()
        details = cleaner.clean(spec.made)
        seconds = time.perf_counter() - began
        tell(parent, END)
        rows, id_sum = cleaner.found(spec.made)
        cleaner.stop()
        right = (rows, id_sum) == (spec.made.live_rows, spec.made.live_id_sum)
        error = None if right else f"wrong result: {rows:,} rows instead of {spec.made.live_rows:,}, or other ids"
        parent.send((RESULT, {"seconds": seconds, "live_rows": rows, "details": details, "error": error}))
