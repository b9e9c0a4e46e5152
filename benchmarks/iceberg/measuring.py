"""Each contender on each shape, in a process of its own: seconds, CPU, memory of the largest process.

The table is made once. A contender gets a copy of the catalog's database, so it commits to a table of its own, and all
share the files of the first snapshot. What it wrote is deleted after.
"""

from __future__ import annotations

import gc
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import child, runner
from benchmarks.iceberg.contenders import Entrant, entrants
from benchmarks.iceberg.shapes import DATABASE, TABLE, Shape, catalog_at

_WARM = Shape("warm", 2, 1, 10, 1, 2, upserts=True)


@dataclass(frozen=True, slots=True)
class Spec(child.Desk):
    """What a child is to do."""

    label: str
    executor: str
    place: Path
    database: Path
    warm: Path
    warm_database: Path
    live_rows: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contender on one shape, once. `live` is None where no reader but its own could count."""

    shape: str
    contender: str
    repeat: int
    error: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_process_bytes: int = 0
    peak_tree_bytes: int = 0
    live: int | None = None
    files_after: int = 0
    delete_files_after: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """`folder` is where tables are made once; `out` gets the logs."""

    shapes: tuple[Shape, ...]
    contenders: tuple[Entrant, ...]
    executor: str
    repeats: int
    folder: Path
    out: Path
    timeout_s: float


def run(plan: Plan, tell: Callable[[str], None]) -> Iterator[Measurement]:
    """Everything in the plan."""
    work = plan.out / "work"
    (plan.out / "logs").mkdir(parents=True, exist_ok=True)
    warm = _WARM.make(plan.folder)
    try:
        for shape in plan.shapes:
            tell(f"{shape.name}: making the table unless it is there")
            place, live_rows = shape.make(plan.folder), shape.live_rows
            for repeat in range(plan.repeats):
                for entrant in plan.contenders:
                    if not entrant.equality_deletes and shape.keys:
                        continue
                    measured = _measured(plan, shape, place, warm, live_rows, entrant, repeat, work)
                    tell(f"{shape.name} {entrant.label}: {measured.error or f'{measured.seconds:.2f} s'}")
                    yield measured
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _measured(
    plan: Plan, shape: Shape, place: Path, warm: Path, live_rows: int, entrant: Entrant, repeat: int, work: Path
) -> Measurement:
    named = Measurement(shape.name, entrant.label, repeat)
    if entrant.missing:
        return replace(named, error=entrant.missing)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    log = plan.out / "logs" / f"{re.sub(r'[^a-z0-9]+', '-', f'{shape.name} {entrant.label} {repeat}')}.log"
    log.unlink(missing_ok=True)
    shutil.copy(place / DATABASE, work / DATABASE)
    shutil.copy(warm / DATABASE, work / "warm.db")
    spec = Spec(work, log, entrant.label, plan.executor, place, work / DATABASE, warm, work / "warm.db", live_rows)
    before = {folder: _files(folder) for folder in (place, warm)}
    try:
        result, meter, cpu_s = runner.watch(measure, spec, plan.timeout_s)
    finally:
        for folder, known in before.items():
            for path in _files(folder) - known:
                path.unlink()
    if isinstance(result, str):
        return replace(named, error=result)
    return replace(
        named,
        cpu_s=cpu_s,
        peak_process_bytes=meter.peak_process_bytes,
        peak_tree_bytes=meter.peak_tree_bytes,
        **result,
    )


def measure(spec: Spec, parent: Connection) -> None:
    """The whole life of a measured child."""
    with child.Reporting(spec, parent):
        entrant = next(entrant for entrant in entrants(spec.executor) if entrant.label == spec.label)
        warming = entrant.make()
        warming.start(catalog_at(spec.warm_database, spec.warm))
        if entrant.equality_deletes:
            warming.compact(TABLE)
        warming.stop()
        contender = entrant.make()
        catalog = catalog_at(spec.database, spec.place)
        contender.start(catalog)
        gc.collect()
        child.tell(parent, child.BEGIN)
        working = time.perf_counter()
        contender.compact(TABLE)
        seconds = time.perf_counter() - working
        child.tell(parent, child.END)
        contender.stop()
        parent.send((child.RESULT, {"seconds": seconds, **_looked_at(catalog, spec.live_rows)}))


def _looked_at(catalog: Any, live_rows: int) -> dict[str, Any]:
    """What PyIceberg finds afterwards. It cannot read tables that still have equality deletes."""
    table = catalog.load_table(TABLE)
    totals = table.current_snapshot().summary
    counted = int(totals["total-equality-deletes"] or 0) == 0
    live = int(table.scan().count()) if counted else None
    return {
        "live": live,
        "files_after": int(totals["total-data-files"] or 0),
        "delete_files_after": int(totals["total-delete-files"] or 0),
        "error": None if live in (None, live_rows) else f"{live:,} rows live, {live_rows:,} should",
    }


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
