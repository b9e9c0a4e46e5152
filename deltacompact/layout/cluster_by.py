"""The columns by which rows are clustered, and how often each is asked for.

"day*3,customer,amount"     day with weight 3, customer and amount with 1
["day*3", "customer"]       the same, as a list
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError

COLUMNS_MAX = 4
"""More columns would get so few cuts each that none of them helped."""


@dataclass(frozen=True, slots=True)
class ClusterColumn:
    """A column to divide rows by. Weight 0: only where no other column can."""

    name: str
    weight: float = 1.0
    nulls_first: bool = True

    def __str__(self) -> str:
        return self.name if self.weight == 1.0 else f"{self.name}*{self.weight:g}"


def cluster_columns(said_by: str, value: Any) -> tuple[ClusterColumn, ...]:
    """The columns of a text or a list; an empty one: rows are not clustered. `said_by` is named in errors.

    Raises InputError for more than four, for one that comes twice, and for a weight that is no number above 0.
    """
    items = value if isinstance(value, (list, tuple)) else str(value).split(",") if str(value).strip() else []
    columns = tuple(_column(said_by, str(item).strip()) for item in items)
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"{said_by} names {len(columns)} columns: at most {COLUMNS_MAX} help readers")
    _refuse_repeats(said_by, [column.name for column in columns])
    return columns


def _column(said_by: str, text: str) -> ClusterColumn:
    name, star, weight = text.rpartition("*")
    if not star:
        name, weight = text, "1"
    if not name.strip():
        raise InputError(f"{said_by}: {text!r} names no column: write day*3,customer")
    return ClusterColumn(name.strip(), _weight(said_by, text, weight.strip()))


def _weight(said_by: str, text: str, weight: str) -> float:
    try:
        found = float(weight)
    except ValueError:
        found = 0.0
    if not 0.0 < found < math.inf:
        raise InputError(f"{said_by}: the weight {weight!r} of {text!r} is no number above 0")
    return found


def _refuse_repeats(said_by: str, names: Sequence[str]) -> None:
    if repeated := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"{said_by} has {repeated!r} twice")
