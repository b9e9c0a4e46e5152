"""Stops a group after a chosen function call, so that a test can kill, suspend or release its process there.

    with place.dispatcher(held=("sessions.runner.reporting:SessionReport.write", 2)):
        until(place.hold.reached, …)      a group has written its record for the second time, and waits there
        os.kill(…)
        place.hold.release()              the waiting process goes on, and no process waits any more

So no test has to guess how long a session takes on a busy machine.
"""

from __future__ import annotations

import importlib
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNS = ("sessions.runner.reporting:SessionReport.write", 2)
"""Stop after the session of a delta stream has recorded its session of the engine. Nothing is published yet."""
COMMITS = ("deltacompact.iceberg.table.pyiceberg_door:IcebergTable.commit", 3)
"""Stop after the third commit to an Iceberg table. The catalog has no open transaction."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The first process that has made the chosen call waits until a test releases it."""

    folder: Path

    def reached(self) -> bool:
        return (self.folder / "held").exists()

    def release(self) -> None:
        (self.folder / "released").touch()

    def put(self, where: str, calls: int) -> None:
        """Make a process wait after call number `calls` of the function `where` ("module:Class.method")."""
        module, _, path = where.partition(":")
        name, _, method = path.partition(".")
        owner = getattr(importlib.import_module(module), name)
        real, made = getattr(owner, method), itertools.count(1)

        def held(*arguments: Any, **named: Any) -> Any:
            answer = real(*arguments, **named)
            if next(made) == calls:
                self._wait()
            return answer

        setattr(owner, method, held)

    def _wait(self) -> None:
        try:
            (self.folder / "held").touch(exist_ok=False)
        except FileExistsError:
            return  # another process was first
        while not (self.folder / "released").exists():
            time.sleep(0.02)
