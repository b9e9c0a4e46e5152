"""Each contender on each shape, in a process of its own: seconds, CPU, memory of the largest process.

The table is made once. A contender gets a copy of the catalog's database, so it commits to a table of its own, and all
share the files of the first snapshot. What it wrote is deleted after. PyIceberg reads the rows that are left: all
contenders on a shape must leave the same.
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
from benchmarks.checksum import fingerprint_of
from benchmarks.iceberg.cdc import ChangeEvents
from benchmarks.iceberg.contenders import Entrant, entrants
from benchmarks.iceberg.shapes import Shape
from benchmarks.iceberg.writing import DATABASE, TABLE, catalog_at, file_bytes

_WARM = Shape("warm", 2, 1, 10, 1, 2, upserts=True)


@dataclass(frozen=True, slots=True)
class Spec(child.Desk):
    """What a child is to do."""

    label: str
    executor: str
    shape: Shape | ChangeEvents
    place: Path
    database: Path
    warm: Path
    warm_database: Path


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contender on one shape, once. `live` is None where it failed.

    `seconds` of all rounds; `read_bytes` of the files that a reader would have read before each of them.
    `planned_bytes`: what a plan allows a process, the most of all rounds; None where there is no plan.
    """

    shape: str
    contender: str
    repeat: int
    error: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    planned_bytes: int | None = None
    peak_process_bytes: int = 0
    peak_tree_bytes: int = 0
    rounds_s: tuple[float, ...] = ()
    read_bytes: int = 0
    live: int | None = None
    checksum: int = 0
    files_after: int = 0
    delete_files_after: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """`folder` is where tables are made once; `out` gets the logs."""

    shapes: tuple[Shape | ChangeEvents, ...]
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
            place, left = shape.make(plan.folder), dict[str, tuple[int, int]]()
            for repeat in range(plan.repeats):
                for entrant in plan.contenders:
                    if not (entrant.equality_deletes if shape.equality_deletes else entrant.clean):
                        continue
                    measured = _compared(_measured(plan, shape, place, warm, entrant, repeat, work), left)
                    tell(f"{shape.name} {entrant.label}: {measured.error or f'{measured.seconds:.2f} s'}")
                    yield measured
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compared(measured: Measurement, left: dict[str, tuple[int, int]]) -> Measurement:
    """An error where others have left other rows: `left` is who left what first."""
    if measured.error or measured.live is None:
        return measured
    found = measured.live, measured.checksum
    first, expected = next(iter(left.items()), (measured.contender, found))
    left.setdefault(measured.contender, found)
    return measured if found == expected else replace(measured, error=f"other rows than {first} left")


def _measured(
    plan: Plan,
    shape: Shape | ChangeEvents,
    place: Path,
    warm: Path,
    entrant: Entrant,
    repeat: int,
    work: Path,
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
    spec = Spec(work, log, entrant.label, plan.executor, shape, place, work / DATABASE, warm, work / "warm.db")
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
            warming.compact(TABLE, dict(_WARM.rewrite_options))
        warming.stop()
        contender = entrant.make()
        catalog = catalog_at(spec.database, spec.place)
        contender.start(catalog)
        seconds, read_bytes, options = [], 0, dict(spec.shape.rewrite_options)
        planned: list[int] = []
        for round_ in range(spec.shape.rounds):
            spec.shape.ingest(catalog, spec.place, round_)
            read_bytes += file_bytes(catalog.load_table(TABLE))
            planned += contender.planned_bytes(TABLE, options)
            gc.collect()
            child.tell(parent, child.BEGIN)
            working = time.perf_counter()
            contender.compact(TABLE, options)
            seconds.append(time.perf_counter() - working)
            child.tell(parent, child.END)
        contender.stop()
        timed = {"seconds": sum(seconds), "rounds_s": tuple(seconds), "read_bytes": read_bytes}
        timed["planned_bytes"] = max(planned, default=None)
        parent.send((child.RESULT, timed | _looked_at(catalog, spec.shape.live_rows)))


def _looked_at(catalog: Any, live_rows: int | None) -> dict[str, Any]:
    """What PyIceberg finds afterwards. It cannot read tables that still have equality deletes, which is an error."""
    table = catalog.load_table(TABLE)
    totals = table.current_snapshot().summary
    left = int(totals["total-equality-deletes"] or 0)
    found = None if left else fingerprint_of(table.scan().to_arrow_batch_reader())
    error = f"{left:,} keys of equality deletes are left: nobody could compare the rows" if left else None
    if found and live_rows is not None and found.rows != live_rows:
        error = f"{found.rows:,} rows live, not {live_rows:,}"
    return {
        "live": found and found.rows,
        "checksum": found.checksum if found else 0,
        "files_after": int(totals["total-data-files"] or 0),
        "delete_files_after": int(totals["total-delete-files"] or 0),
        "error": error,
    }


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
