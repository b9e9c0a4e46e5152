"""One competitor in a process of its own. It tells the parent when the timed part begins and ends, and waits.

child                                  parent
imports, starts, warms up, prepares
begin                            ->    reads CPU time, starts sampling memory
work: timed here                 <-    go on
end                              ->    reads CPU time
checks its result                <-    go on
result                           ->
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.checksum import fingerprint, fingerprint_of
from benchmarks.competitors import TEMPORARY, Entrant
from benchmarks.data import Inputs, read_ahead

BEGIN, END, RESULT, FAILED = "begin", "end", "result", "failed"
SPILL_SETTINGS = ("RAY_object_spilling_directory", "SPARK_LOCAL_DIRS")


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a child works: `folder` is its own, and what it prints goes to `log`."""

    folder: Path
    log: Path

    @property
    def temporary(self) -> Path:
        """Where Ray, Spark and DuckDB are told to spill."""
        return self.folder / TEMPORARY


@dataclass(frozen=True, slots=True)
class Spec(Desk):
    """What a child is to do. `warm` is a tiny table of the same kind, compacted first; `build_base` makes `base`."""

    entrant: Entrant
    inputs: Inputs
    warm: Inputs
    base: Path


@dataclass(frozen=True, slots=True)
class Result:
    """What the child knows. Seconds of the work alone, and of starting a cluster or session; bytes at rest."""

    seconds: float
    startup_s: float
    warm_up_s: float
    rows: int
    checksum: int
    output_bytes: int
    output_files: int
    written_bytes: int
    details: dict[str, Any] = field(default_factory=dict)


def measure(spec: Spec, parent: Connection) -> None:
    """The whole life of a measured child."""
    with Reporting(spec, parent):
        began = time.perf_counter()
        competitor = spec.entrant.make()
        competitor.start()
        started = time.perf_counter()
        if spec.warm.case.incremental:
            competitor.build_base(spec.warm, spec.folder / "warm-base")
        competitor.prepare(spec.warm, spec.folder / "warm", spec.folder / "warm-base").work()
        warmed = time.perf_counter()

        run = competitor.prepare(spec.inputs, spec.folder / "table", spec.base)
        read_ahead(spec.inputs.files)
        if spec.inputs.case.incremental and spec.entrant.has_base:
            read_ahead([path for path in spec.base.rglob("*") if path.is_file()])
        gc.collect()
        tell(parent, BEGIN)
        working = time.perf_counter()
        run.work()
        seconds = time.perf_counter() - working
        tell(parent, END)

        files = run.files()
        found = fingerprint_of(run.scan()) if run.scan else fingerprint(files, spec.inputs.columns)
        result = Result(
            seconds,
            started - began,
            warmed - started,
            found.rows,
            found.checksum,
            sum(file.stat().st_size for file in files),
            len(files),
            _written_bytes(spec.folder / "table"),
            run.details(),
        )
        competitor.stop()
        parent.send((RESULT, asdict(result)))


def build_base(spec: Spec, parent: Connection) -> None:
    """The table that the incremental cases start from."""
    with Reporting(spec, parent):
        competitor = spec.entrant.make()
        competitor.build_base(spec.inputs, spec.base)
        parent.send((RESULT, {}))


class Reporting:
    """What the child prints goes to its log; what it fails by, to the parent as well."""

    def __init__(self, desk: Desk, parent: Connection) -> None:
        self._parent = parent
        with desk.log.open("a") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        os.environ.pop("RAY_ADDRESS", None)
        os.environ |= dict.fromkeys(SPILL_SETTINGS, str(desk.temporary))

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            return False
        traceback.print_exception(error)
        sys.stderr.flush()
        self._parent.send((FAILED, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
        return True


def tell(parent: Connection, what: str) -> None:
    """Say it, and wait until the parent has heard it."""
    parent.send((what, None))
    parent.recv()


def _written_bytes(folder: Path) -> int:
    """What this run added: files that are not linked to those of the base."""
    stats = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)
