"""A group that waits at one place for a test, in a process that a test can then kill, suspend or let go on.

    with place.dispatcher(held=("sessions.runner.reporting:SessionReport.write", 2)):
        until(place.hold.reached, …)      a group has written its record for the second time, and sits there
        os.kill(…)
        place.hold.release()              whoever still waits goes on; nobody waits any more

So nobody has to guess how long a session takes on a busy machine.
"""

from __future__ import annotations

import importlib
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNS = ("sessions.runner.reporting:SessionReport.write", 2)
"""The session of a delta stream says which session of the engine it is. Nothing is published yet."""
COMMITS = ("deltacompact.iceberg.table.pyiceberg_door:IcebergTable.commit", 3)
"""Three commits are in an Iceberg table, and the catalog has no open transaction."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The first process that comes to a place waits there until it is released."""

    folder: Path

    def reached(self) -> bool:
        return (self.folder / "held").exists()

    def release(self) -> None:
        (self.folder / "released").touch()

    def put(self, where: str, calls: int) -> None:
        """Whoever has called the function `where` ("module:Class.method") so often in one process waits."""
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
