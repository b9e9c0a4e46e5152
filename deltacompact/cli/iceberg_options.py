"""The options of modes for `--help`, from their declarations.

Values of --option for --mode convert:
  max-files-to-convert      most equality-delete files of a run, the oldest first  [default: all]
"""

from __future__ import annotations

from collections.abc import Iterable

from deltacompact.base.options import Option, declared
from deltacompact.iceberg_modes.modes import MAINTAIN, options_of


def option_sections(names: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """For each mode, under a title, its options and their meanings."""
    return {
        f"Values of --option{'' if name == MAINTAIN else f' for --mode {name}'}": [
            _record(option) for option in declared(options_of(name)).values()
        ]
        for name in names
    }


def _record(option: Option) -> tuple[str, str]:
    return " or ".join(reversed(option.names)), f"{option.meaning}  [default: {option.default}]".replace("`", "")
