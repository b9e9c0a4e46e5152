"""Choosing the executor: a small stream runs in this process, because starting a cluster would take longer."""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.plan import Capacity


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The executor and the capacity of a compaction. `assumed` says why the capacity is a guess; None: it is not."""

    executor: str
    capacity: Capacity
    assumed: str | None = None


def executor_for(settings: Settings, delta_rows: int, data_bytes: int) -> Executor:
    """The executor that the settings name; for "auto" the local one up to the limits of the settings, else Ray."""
    if _stays_here(settings, delta_rows, data_bytes):
        return LocalExecutor(settings)
    from deltacompact.executors.ray import RayExecutor

    return RayExecutor(settings)


def foresee(settings: Settings, delta_rows: int, data_bytes: int) -> Foreseen:
    """The capacity of the executor that `executor_for` would return. Starts no cluster and does not make one grow."""
    if _stays_here(settings, delta_rows, data_bytes):
        return Foreseen("local", LocalExecutor(settings).capacity)
    from deltacompact.executors.ray import foreseen_capacity

    return Foreseen("ray", *foreseen_capacity(settings))


def _stays_here(settings: Settings, delta_rows: int, data_bytes: int) -> bool:
    """Whether the settings exclude a cluster, or the input is too small for one."""
    is_small = delta_rows <= settings.local_rows_max and data_bytes <= settings.local_bytes_max
    return settings.executor == "local" or (settings.executor == "auto" and is_small)
