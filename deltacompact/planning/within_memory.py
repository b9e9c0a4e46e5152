"""Divides the memory that this process may take: tasks side by side, the memory of each, how much it reads at once.

memory_bytes    beside the process itself    tasks    each         decoded at a time
300 MB          94 MiB                       1        66 MiB       5 MiB
600 MB, 2 CPUs  380 MiB                      2        133 MiB      11 MiB
2 GiB, 2 CPUs   1.8 GiB                      2        650 MiB      32 MiB, as without a bound

Such limits change how the work is divided, never its result. Where rows are so wide that a task holds more, fewer run
side by side: see Needs.task_places. Iceberg tells nobody how wide rows are, so its tasks get more each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from deltacompact.base import machine
from deltacompact.base.errors import InputError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.planning.sizing.task_memory import TASK_BASE_BYTES

HELD_SHARE = 0.3
"""The share of the memory beside the process's own that entries between stages get."""

TASK_BYTES = 384 << 20
"""A task that reads, fetches ahead and writes with the default limits takes so much."""

TASK_BYTES_MIN = 128 << 20
"""Another task begins to run side by side where each has so much: two small tasks end before one after the other."""

MEMORY_BYTES_MIN = 256 << 20

Means = TypeVar("Means", bound=Settings)


def within_memory(settings: Means, task_bytes_min: int = TASK_BYTES_MIN) -> Means:
    """The settings with `memory_bytes` divided; unchanged without it. Raises InputError if it is too little.

    `task_bytes_min`: with so much for each, tasks run side by side.
    """
    if settings.memory_bytes is None:
        return settings
    if settings.executor == "ray":
        raise InputError("memory_bytes bounds this process, not a cluster: leave out memory_bytes or executor 'ray'")
    if settings.memory_bytes < MEMORY_BYTES_MIN:
        raise InputError(f"memory_bytes is {settings.memory_bytes:,}, it must be {MEMORY_BYTES_MIN:,} or more")
    free = settings.memory_bytes - TASK_BASE_BYTES
    held = int(free * HELD_SHARE)
    wanted = settings.local_threads or settings.concurrent_tasks or machine.cpus()
    threads = max(1, min(wanted, (free - held) // task_bytes_min))
    task_bytes = (free - held) // threads
    return replace(
        settings,
        executor="local",
        local_threads=threads,
        memory_per_task_bytes=min(TASK_BASE_BYTES + task_bytes, settings.memory_per_task_bytes or 1 << 60),
        object_store_bytes=min(held, settings.object_store_bytes or held),
        limits=_lowered(settings.limits, min(1.0, task_bytes / TASK_BYTES)),
    )


def _lowered(limits: Limits, share: float) -> Limits:
    """The limits of a task that has this share of the usual memory: it holds that share of everything."""

    def part(value: int) -> int:
        return max(1, int(value * share))

    reading = limits.reading
    less = replace(
        reading,
        batch_bytes=part(reading.batch_bytes),
        run_bytes=part(reading.run_bytes),
        read_ahead_bytes=part(reading.read_ahead_bytes),
        request_bytes=part(reading.request_bytes),
    )
    return replace(
        limits, chunk_entries=part(limits.chunk_entries), task_rows_min=part(limits.task_rows_min), reading=less
    )
