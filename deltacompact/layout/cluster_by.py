"""The columns by which rows are clustered, and how often each is asked for.

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
"""More columns would get so few cuts each that none of them helped."""
_ITEM = re.compile(rf"(?:(?P<quoted>{QUOTED})\s*|(?P<plain>[^\"*].*?|))(?:\*(?P<weight>[^*]*))?", re.S)


@dataclass(frozen=True, slots=True)
class ClusterColumn:
    """A column to divide rows by. Weight 0: only where no other column can."""

    name: str
    weight: float = 1.0
    nulls_first: bool = True

    def __str__(self) -> str:
        return quoted(self.name) if self.weight == 1.0 else f"{quoted(self.name)}*{self.weight:g}"


def cluster_columns(said_by: str, value: Any) -> tuple[ClusterColumn, ...]:
    """The columns of a text or a list; an empty one: rows are not clustered. `said_by` is named in errors.

    Raises InputError for more than four, for one that comes twice, and for a weight that is no number above 0.
    """
    items = value if isinstance(value, (list, tuple)) else list(parts(str(value))) if str(value).strip() else []
    columns = tuple(_column(said_by, str(item).strip()) for item in items)
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"{said_by} names {len(columns)} columns: at most {COLUMNS_MAX} help readers")
    _refuse_repeats(said_by, [column.name for column in columns])
    return columns


def text_of_columns(columns: Sequence[ClusterColumn]) -> str:
    """The columns as one text, which `cluster_columns` reads: the same for all spellings of the same columns."""
    return ",".join(map(str, columns))


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
