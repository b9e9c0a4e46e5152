"""The model of large compactions, through one door: what a driver takes to hand out the tasks of a session."""

from __future__ import annotations

import functools

from deltacompact.planning.throughput import CompactionWork, Rates, capacity_of, predict

_DRIVER_ALONE = Rates(0.0, 0.0, 0.0, 0.0, 0.0)
_STEP = 2**0.5


@functools.lru_cache(maxsize=65_536)
def driver_s(rows: int, nodes: int, cpus: int, memory_bytes: int) -> float:
    """Seconds of the driver in a full compaction of so many rows: tasks, objects, and what tasks are told of.

    The number of tasks jumps where rows make another wave or round, and may fall there. Planning wants more rows never
    to take less, so this is the greatest value over a ladder of sizes up to the next step above `rows`.
    """
    capacity = capacity_of(nodes, cpus, memory_bytes)
    size, most = 1_000_000.0, 0.0
    while True:
        work = CompactionWork.full(int(size), 0.0, files=1_000_000)
        most = max(most, predict(work, capacity, _DRIVER_ALONE).driver_s)
        if size >= rows:
            return most
        size *= _STEP
