"""The mode `upsert`, for the list of modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.upsert.options import NAME, UpsertOptions, upsert_options

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.steps import Steps
    from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
    from deltacompact.iceberg_modes.upsert.result import UpsertResult


def _steps() -> Steps[UpsertPlan, UpsertResult]:
    from deltacompact.iceberg_modes.upsert.upsert import STEPS

    return STEPS


UPSERT = Mode(
    NAME,
    "comparing",
    "keep the newest row of each key, and mark the others as dead",
    UpsertOptions,
    upsert_options,
    _steps,
    compares=True,
    marks=True,
)
