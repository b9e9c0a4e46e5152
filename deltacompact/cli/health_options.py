"""The options of `check --health`: the thresholds, in the units of people.

--max-age-hours 6     age_s=21600
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from deltacompact.base.options import declared
from deltacompact.base.settings import Between, Count
from deltacompact.base.thresholds import Thresholds
from deltacompact.cli.arguments import all_of
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.cli.sections import health_option

NEEDS_PLOT = "It needs matplotlib: pip install 'deltacompact[plot]'."

_DECLARED, _DEFAULTS = declared(Thresholds), Thresholds()
_UNITS = {"age_s": 3600, "small_file_bytes": 1 << 20}
"""How much of a threshold one of its option is."""


def _threshold(flag: str, name: str, metavar: str) -> Callable[..., Any]:
    default, kind, text = getattr(_DEFAULTS, name), _DECLARED[name].kind, _DECLARED[name].text
    made: Callable[..., Any] = health_option(
        *(flag, name),
        type=_range(kind, name in _UNITS),
        default=default / _UNITS[name] if name in _UNITS else default,
        show_default=True,
        metavar=metavar,
        help=f"{text[0].upper()}{text[1:]}.",
    )
    return made


def _range(kind: Count | Between, in_units: bool) -> click.ParamType[Any]:
    if isinstance(kind, Count) and not in_units:
        return click.IntRange(min=kind.least)
    return FiniteRange(kind.least, None if in_units or kind.most == math.inf else kind.most)


health_options = all_of(
    click.option("--health", is_flag=True, help="Hold file sizes, overlap, dead rows and backlog against thresholds."),
    _threshold("--max-age-hours", "age_s", "HOURS"),
    _threshold("--max-overlap", "overlap", "N"),
    _threshold("--max-dead-share", "dead_share", "SHARE"),
    _threshold("--max-small-files", "small_files", "N"),
    _threshold("--small-file-mib", "small_file_bytes", "MIB"),
    health_option("--plot", metavar="FILE.svg", help=f"Draw the health. {NEEDS_PLOT}"),
    verbose_option,
)
"""--health, its thresholds with their defaults, --plot and --verbose."""


def thresholds_given(options: dict[str, Any]) -> Thresholds:
    """What the command line says."""
    of_kind = {name: type(getattr(_DEFAULTS, name)) for name in _DECLARED}
    return Thresholds(**{name: kind(options[name] * _UNITS.get(name, 1)) for name, kind in of_kind.items()})
