"""Which executor, and what it would work with: a small stream does not pay for starting a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.plan import Capacity


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a compaction would run on. `assumed` says why that is not known for sure; None: it is."""

    executor: str
    capacity: Capacity
    assumed: str | None = None


def executor_for(settings: Settings, delta_rows: int, data_bytes: int) -> Executor:
    """ "ray" and "local" are obeyed; "auto" stays here up to the limits of the settings."""
    if _stays_here(settings, delta_rows, data_bytes):
        return LocalExecutor(settings)
    from deltacompact.executors.ray import RayExecutor

    return RayExecutor(settings)


def foresee(settings: Settings, delta_rows: int, data_bytes: int) -> Foreseen:
    """The capacity of the executor that `executor_for` would return. Starts no cluster, and asks none to grow."""
    if _stays_here(settings, delta_rows, data_bytes):
        return Foreseen("local", LocalExecutor(settings).capacity)
    from deltacompact.executors.ray import foreseen_capacity

    return Foreseen("ray", *foreseen_capacity(settings))


def _stays_here(settings: Settings, delta_rows: int, data_bytes: int) -> bool:
    """Whether a cluster was ruled out, or would cost more than it saves."""
    is_small = delta_rows <= settings.local_rows_max and data_bytes <= settings.local_bytes_max
    return settings.executor == "local" or (settings.executor == "auto" and is_small)
