"""A number on the command line, within a range.

0.3, 1e6      0.3, 1,000,000
nan, inf      refused: no comparison would refuse "nan", and a bound of it would never be met
"""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number that is neither infinite nor "nan"."""

    name = "number"  # click's own would be "not a valid float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number
