"""Who is measured. Each does the same work: fold the delta files into the prior ones, one row for each key, as Parquet.

competitor.start()                                  cluster or session: timed apart
competitor.build_base(inputs, folder)               the table as compacted before, once for all incremental cases
run = competitor.prepare(inputs, folder, base)      not timed
run.work()                                          timed
run.files(), run.details()                          what came out: not timed
competitor.stop()
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from benchmarks.configurations import DUCKRUN, Case
from benchmarks.data import Inputs

TEMPORARY = "temporary"
"""Folder beside that of the table, to which engines spill."""

CORES = os.cpu_count() or 1
EVERY_CASE = frozenset(Case)
FULL = frozenset({Case.FULL})
INCREMENTAL = EVERY_CASE - FULL


@dataclass(frozen=True, slots=True)
class Run:
    """One compaction, ready to go. `files` are those that a reader of the table reads afterwards.

    `scan` gives the rows where these files hold others, too.
    """

    work: Callable[[], object]
    files: Callable[[], list[Path]]
    details: Callable[[], dict[str, Any]] = dict
    scan: Callable[[], Iterable[pa.RecordBatch]] | None = None


class Competitor(Protocol):
    """What can be measured; the module tells the order of the calls."""

    def start(self) -> None: ...

    def build_base(self, inputs: Inputs, folder: Path) -> None: ...

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Entrant:
    """A competitor by name: where its class is, what it is made with, which cases it takes part in."""

    label: str
    group: str
    place: str
    cases: frozenset[Case]
    options: dict[str, Any] = field(default_factory=dict)
    has_base: bool = False

    def make(self) -> Competitor:
        module, name = self.place.split(":")
        made: Competitor = getattr(import_module(f"benchmarks.competitors.{module}"), name)(**self.options)
        return made


def deltacompact(executor: str, **limits: Any) -> Entrant:
    """deltacompact with one of its executors; `limits` are Settings."""
    options = {"executor": executor, **limits}
    label = f"deltacompact {executor}"
    return Entrant(label, "deltacompact", "delta_compact:DeltaCompact", EVERY_CASE, options, has_base=True)


FLOOR = Entrant("floor", "floor", "floor:Floor", EVERY_CASE)
PEERS = (
    Entrant(
        "deltacompact clustered",
        "deltacompact",
        "delta_compact:DeltaCompact",
        FULL,
        {"executor": "local", "clustered": True},
    ),
    Entrant(
        "deltacompact marked",
        "deltacompact",
        "delta_compact:DeltaCompact",
        DUCKRUN,
        {"executor": "local", "readers": "vectors"},
        has_base=True,
    ),
    Entrant("deltacompact iceberg", "iceberg", "iceberg_upsert:IcebergUpsert", DUCKRUN, has_base=True),
    Entrant("polars", "polars", "polars_unique:PolarsUnique", FULL),
    Entrant("duckdb row_number", "duckdb", "duckdb_sql:DuckDB", FULL, {"query": "row_number"}),
    Entrant("duckdb max_by", "duckdb", "duckdb_sql:DuckDB", FULL, {"query": "max_by"}),
    Entrant("duckdb anti join", "duckdb", "duckdb_sql:DuckDB", DUCKRUN, {"query": "anti join"}),
    Entrant("delta-rs merge", "delta-rs", "delta_rs:DeltaMerge", INCREMENTAL, has_base=True),
    Entrant("spark", "spark", "spark_window:SparkWindow", FULL),
)
GROUPS = ("floor", "deltacompact", *dict.fromkeys(entrant.group for entrant in PEERS))


def entrants(groups: tuple[str, ...], executors: tuple[str, ...]) -> list[Entrant]:
    """The entrants of the named groups. The floor always comes first, because ratios are relative to it."""
    chosen = [FLOOR]
    if "deltacompact" in groups:
        chosen += [deltacompact(executor) for executor in executors]
    return chosen + [entrant for entrant in PEERS if entrant.group in groups]


def linked_copy(base: Path, folder: Path) -> Path:
    """A copy of a table by hard links: none of these formats writes into a file that is there."""
    shutil.copytree(base, folder, copy_function=os.link)
    return folder


class Stateless:
    """A competitor that has nothing to start and keeps no table."""

    def start(self) -> None:
        """Nothing."""

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        """Nothing: it rewrites everything anyway."""

    def stop(self) -> None:
        """Nothing."""
