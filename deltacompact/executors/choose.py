"""Which executor: a small stream does not pay for starting a cluster."""

from __future__ import annotations

from deltacompact.executors import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.settings import Settings


def executor_for(settings: Settings, delta_rows: int, data_bytes: int) -> Executor:
    """ "ray" and "local" are obeyed; "auto" stays here up to the limits of the settings."""
    small = delta_rows <= settings.local_rows_max and data_bytes <= settings.local_bytes_max
    if settings.executor == "local" or (settings.executor == "auto" and small):
        return LocalExecutor(settings)
    from deltacompact.executors.ray import RayExecutor

    return RayExecutor(settings)
