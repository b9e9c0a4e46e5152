"""All modes. A new one is a folder like `convert`, and a line here. Importing this does not import PyIceberg.

mode_named("convert")     CONVERT
mode_named(None)          REWRITE: the first one
mode_named("vacuum")      InputError: mode 'vacuum' is none of: rewrite, convert, upsert
known_mode("vacuum")      None
"""

from __future__ import annotations

from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.iceberg_modes.convert.mode import CONVERT
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.rewrite.mode import REWRITE
from deltacompact.iceberg_modes.upsert.mode import UPSERT

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
