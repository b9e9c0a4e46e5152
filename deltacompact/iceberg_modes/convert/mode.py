"""The mode `convert`, as the list of modes has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.iceberg_modes.convert.options import NAME, ConvertOptions, convert_options
from deltacompact.iceberg_modes.mode import Mode

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.convert.plan import ConvertPlan
    from deltacompact.iceberg_modes.convert.result import ConvertResult
    from deltacompact.iceberg_modes.steps import Steps


def _steps() -> Steps[ConvertPlan, ConvertResult]:
    from deltacompact.iceberg_modes.convert.convert import STEPS

    return STEPS


CONVERT = Mode(
    NAME,
    "converting deletes of",
    "turn equality deletes into position deletes",
    ConvertOptions,
    convert_options,
    _steps,
    marks=True,
)
