"""Which executor: a small stream does not pay for starting a cluster."""

from __future__ import annotations

from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor


def executor_for(settings: Settings, delta_rows: int, data_bytes: int) -> Executor:
    """ "ray" and "local" are obeyed; "auto" stays here up to the limits of the settings."""
    if settings.executor == "local" or (settings.executor == "auto" and is_small(settings, delta_rows, data_bytes)):
        return LocalExecutor(settings)
    from deltacompact.executors.ray import RayExecutor

    return RayExecutor(settings)


def is_small(settings: Settings, delta_rows: int, data_bytes: int) -> bool:
    """Whether a cluster would cost more than it saves."""
    return delta_rows <= settings.local_rows_max and data_bytes <= settings.local_bytes_max
