"""One Python environment per orchestrator, and a dispatcher that runs the jobs that they submit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltacompact

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Place:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the examples, with our commands on PATH."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        places = {name: str(self.folder / name.lower()) for name in ("CATALOG", "QUEUE", "STATE")}
        return {**os.environ, **places, "PATH": path, "HOME": str(self.folder)}

    def run(self, environment: str, program: str) -> str:
        """Run a program in one of the environments. Return what it prints."""
        python = ROOT / ".venv" / environment / "bin" / "python"
        assert python.exists(), f"{python} is missing: `make test` makes it"
        done = subprocess.run(
            [python, "-c", program],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return done.stdout

    def job_runs(self) -> list[dict[str, Any]]:
        """The job runs in the state store."""
        words = ["status", "--state", self.environment["STATE"], "--json"]
        done = subprocess.run([sys.executable, "-m", "sessions", *words], cwd=ROOT, check=True, capture_output=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)["job_runs"]
        return found

    @contextlib.contextmanager
    def dispatcher(self) -> Iterator[None]:
        words = ["dispatch", "--queue", self.environment["QUEUE"], "--state", self.environment["STATE"]]
        with open(self.folder / "dispatcher.log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sessions", *words], env=self.environment, cwd=ROOT, stderr=log
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)


def made(folder: Path) -> Place:
    """A table with two deltas in two partitions."""
    place = Place(folder)
    catalog = deltacompact.open_catalog(place.environment["CATALOG"])
    catalog.create_table("orders", ["day"], ["id"])
    for day in ("1", "2"):
        for _ in range(2):
            catalog.append("orders", pa.table({"id": [1, 2, 3]}), {"day": day})
    return place
