"""All modes. A new one is a folder like `convert`, and a `Mode` here. Importing this does not import PyIceberg.

mode_named("convert")     CONVERT
mode_named(None)          REWRITE: the first one
mode_named("vacuum")      InputError: mode 'vacuum' is none of: rewrite, convert, upsert
known_mode("vacuum")      None
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import InputError
from deltacompact.iceberg_modes.convert import options as convert
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.rewrite import options as rewrite
from deltacompact.iceberg_modes.upsert import options as upsert

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.convert.plan import ConvertPlan
    from deltacompact.iceberg_modes.convert.result import ConvertResult
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult
    from deltacompact.iceberg_modes.steps import Steps
    from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
    from deltacompact.iceberg_modes.upsert.result import UpsertResult


def _rewrite_steps() -> Steps[RewritePlan, RewriteResult]:
    from deltacompact.iceberg_modes.rewrite.rewrite import STEPS

    return STEPS


def _convert_steps() -> Steps[ConvertPlan, ConvertResult]:
    from deltacompact.iceberg_modes.convert.convert import STEPS

    return STEPS


def _upsert_steps() -> Steps[UpsertPlan, UpsertResult]:
    from deltacompact.iceberg_modes.upsert.upsert import STEPS

    return STEPS


REWRITE = Mode(
    rewrite.NAME,
    "rewriting",
    "write files anew, with all deletes applied",
    rewrite.RewriteOptions,
    rewrite.rewrite_options,
    _rewrite_steps,
    lays_out=True,
)
CONVERT = Mode(
    convert.NAME,
    "converting deletes of",
    "turn equality deletes into position deletes",
    convert.ConvertOptions,
    convert.convert_options,
    _convert_steps,
    marks=True,
)
UPSERT = Mode(
    upsert.NAME,
    "comparing",
    "keep the newest row of each key, and mark the others as dead",
    upsert.UpsertOptions,
    upsert.upsert_options,
    _upsert_steps,
    compares=True,
    marks=True,
)
MODES: tuple[Mode[Any, Any], ...] = (REWRITE, CONVERT, UPSERT)
MAINTAIN = "maintain"
"""`maintain` is not a mode: it has options, but no plan and no journal."""


def names() -> tuple[str, ...]:
    """The names of the modes, as users give them."""
    return tuple(mode.name for mode in MODES)


def known_mode(name: str | None) -> Mode[Any, Any] | None:
    return next((mode for mode in MODES if mode.name == name), None)


def mode_named(name: str | None) -> Mode[Any, Any]:
    """The mode with this name. None: the default mode. Raises InputError for an unknown name."""
    mode = MODES[0] if name is None else known_mode(name)
    if mode is None:
        raise InputError(f"mode {name!r} is none of: {', '.join(names())}")
    return mode


def options_of(name: str) -> type[Any]:
    """The dataclass that declares the options of a mode, or of `maintain`."""
    mode = known_mode(name)
    return mode.options if mode else MaintainOptions
