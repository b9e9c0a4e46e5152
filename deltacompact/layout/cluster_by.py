"""Parses the columns by which rows are clustered, with a weight for how often readers ask for each.

"day*3,customer,amount"     day with weight 3, customer and amount with 1
["day*3", "customer"]       the same, as a list
"\"a,b\"*2"                  the column a,b with weight 2
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.layout.quoting import QUOTED, parts, quoted, unquoted

COLUMNS_MAX = 4
"""With more columns, each would get too few cuts to help readers."""
_ITEM = re.compile(rf"(?:(?P<quoted>{QUOTED})\s*|(?P<plain>[^\"*].*?|))(?:\*(?P<weight>[^*]*))?", re.S)


@dataclass(frozen=True, slots=True)
class ClusterColumn:
    """A column to divide rows by. Weight 0: it divides rows only where no other column can."""

    name: str
    weight: float = 1.0
    nulls_first: bool = True

    def __str__(self) -> str:
        return quoted(self.name) if self.weight == 1.0 else f"{quoted(self.name)}*{self.weight:g}"


def cluster_columns(said_by: str, value: Any) -> tuple[ClusterColumn, ...]:
    """The columns in a text or a list. () if that is empty: rows are not clustered. Errors name `said_by`.

    Raises InputError for more than four columns, for a column that comes twice, and for a weight that is not a number
    above 0.
    """
    items = value if isinstance(value, (list, tuple)) else list(parts(str(value))) if str(value).strip() else []
    columns = tuple(_column(said_by, str(item).strip()) for item in items)
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"{said_by} names {len(columns)} columns: at most {COLUMNS_MAX} help readers")
    _refuse_repeats(said_by, [column.name for column in columns])
    return columns


def text_of_columns(columns: Sequence[ClusterColumn]) -> str:
    """The columns as a text that `cluster_columns` reads. All spellings of the same columns give the same text."""
    return ",".join(map(str, columns))


def heaviest(columns: Sequence[ClusterColumn]) -> int:
    """The place of the first column with the greatest weight. 0: there is none."""
    return max(range(len(columns)), key=lambda place: columns[place].weight, default=0)


def _column(said_by: str, text: str) -> ClusterColumn:
    found = _ITEM.fullmatch(text)
    name = found["quoted"] or found["plain"].strip() if found else ""
    if found is None or name in ("", '""'):
        raise InputError(f"{said_by}: {text!r} names no column: write day*3,customer")
    weight = "1" if found["weight"] is None else found["weight"].strip()
    return ClusterColumn(unquoted(name), _weight(said_by, text, weight))


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
