"""Options of every mode in `modes.MODES`, for tests of what all modes share. A new mode is tested once MODES has it.

chosen("rewrite")      {"rewrite-all": True}: with it, a rewrite has work on any table
chosen("convert")      {}: no options are needed
KEEP_ALL_ROWS          rewrite, convert: not upsert, which keeps one row of each key and has its own oracle
"""

from __future__ import annotations

from typing import Any

from deltacompact.iceberg_modes import modes

NAMES = modes.names()
KEEP_ALL_ROWS = tuple(name for name in NAMES if name != "upsert")
_CHOSEN: dict[str, dict[str, Any]] = {"rewrite": {"rewrite-all": True}, "upsert": {"key-columns": "id"}}


def chosen(name: str) -> dict[str, Any]:
    """The options with which this mode has something to do on a table with a column `id`."""
    return dict(_CHOSEN.get(name, {}))
