"""What all modes share is tested with each mode of `modes.MODES`: a new one by its line there.

chosen("rewrite")      {"rewrite-all": True}: it has work at any table
chosen("convert")      {}: no options are needed
KEEP_ALL_ROWS          rewrite, convert: an upsert leaves one row of each key, and has an oracle of its own
"""

from __future__ import annotations

from typing import Any

from deltacompact.iceberg_modes import modes

NAMES = modes.names()
KEEP_ALL_ROWS = tuple(name for name in NAMES if name != "upsert")
_CHOSEN: dict[str, dict[str, Any]] = {"rewrite": {"rewrite-all": True}, "upsert": {"key-columns": "id"}}


def chosen(name: str) -> dict[str, Any]:
    """Options by which this mode has something to do, if it needs any. The table has a column `id`."""
    return dict(_CHOSEN.get(name, {}))
