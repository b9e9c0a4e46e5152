"""The mode `rewrite`, as the list of modes has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.rewrite.options import NAME, RewriteOptions, rewrite_options

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult
    from deltacompact.iceberg_modes.steps import Steps


def _steps() -> Steps[RewritePlan, RewriteResult]:
    from deltacompact.iceberg_modes.rewrite.rewrite import STEPS

    return STEPS


REWRITE = Mode(
    NAME,
    "rewriting",
    "write files anew, with all deletes applied",
    RewriteOptions,
    rewrite_options,
    _steps,
    lays_out=True,
)
