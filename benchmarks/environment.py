"""What the numbers depend on: cores, memory and versions. No names of machines, no paths."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benchmarks.competitors import CORES

PACKAGES = ("deltacompact", "pyarrow", "numpy", "ray", "polars", "duckdb", "deltalake", "pyspark", "tpchgen-cli")


def environment() -> dict[str, str]:
    """What a report says of the machine and the libraries."""
    return {
        "cores": str(CORES),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
