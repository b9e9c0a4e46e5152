"""`python -m benchmarks` in a fork (`forks.py`), and each process that it measures in another: none of them imports.

What is measured so means nothing, and at the size of tests it would not anyway.
"""

from __future__ import annotations

import os
from multiprocessing import context
from pathlib import Path

from forks import Forks

from benchmarks.cli import main

ROOT = Path(__file__).parents[2]
_FORKS = Forks(
    "benchmarks.child",
    "benchmarks.cli",
    "benchmarks.competitors.delta_compact",
    "benchmarks.competitors.delta_rs",
    "benchmarks.competitors.duckdb_sql",
    "benchmarks.competitors.floor",
    "benchmarks.competitors.iceberg_upsert",
    "benchmarks.competitors.polars_unique",
    "benchmarks.iceberg.contenders",
    "benchmarks.iceberg.measuring",
    "benchmarks.plots",
    "benchmarks.report",
    "benchmarks.s3.measuring",
    "benchmarks.s3.proxy_process",
    "deltacompact.catalog.iceberg",
    "deltacompact.executors.local",
    "deltalake",
    "duckdb",
    "matplotlib.pyplot",
    "moto.s3.models",
    "moto.server",
    "polars",
    "pyiceberg.catalog.sql",
)


def benchmarks(*arguments: str | Path, log: Path, within_s: float = 280) -> None:
    """Runs a command; a failure shows what it said."""
    process = _FORKS.start(_command, list(map(str, arguments)), log=log, prepare=_fork_at_will)
    process.join(within_s)
    try:
        assert process.exitcode == 0, log.read_text()[-3000:]
    finally:
        process.kill()


def _fork_at_will() -> None:
    """Where the benchmarks ask for a fresh interpreter they get a fork."""
    context._concrete_contexts["spawn"] = context._concrete_contexts["forkserver"]


def _command(arguments: list[str]) -> None:
    os.chdir(ROOT)
    main(arguments)
