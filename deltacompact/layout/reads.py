"""Reads of a table, whoever tells of them, and what they say of its columns: pure. No value that was asked for is kept.

    at 12:00    orders    asked by day                240 files opened, 0 skipped
    at 12:05    orders    asked by day, customer       30 files opened, 210 skipped
    weights     day 2, customer 1                     a read of a week ago counts for half

Reads decide by which columns it may pay to cluster, and how often each is asked for; never what rows there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.layout.cluster_by import COLUMNS_MAX, ClusterColumn

HALF_LIFE_S = 7 * 86_400.0
WEIGHT_MIN = 0.05
"""Of the weight of the column that is asked for most: those below are left out."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read: the columns with a predicate, the files that were opened and skipped, and when, in Unix seconds.

    `rows`: what it returned, before predicates that only rows can answer. None: nobody says it.
    """

    table: str
    columns: tuple[str, ...]
    files_opened: int
    files_skipped: int
    at_s: float
    rows: int | None = None


def read_document(read: Read) -> dict[str, Any]:
    """A read as JSON, the neutral record of one."""
    said = {"table": read.table, "columns": list(read.columns), "opened": read.files_opened}
    return {"at": read.at_s, "read": said | {"skipped": read.files_skipped, "rows": read.rows}}


def read_from_document(document: Mapping[str, Any]) -> Read:
    """Raises KeyError, TypeError or ValueError for a document of another shape."""
    said, rows = document["read"], document["read"].get("rows")
    columns = tuple(map(str, said["columns"]))
    opened, skipped, at_s = int(said["opened"]), int(said["skipped"]), float(document["at"])
    return Read(str(said["table"]), columns, opened, skipped, at_s, None if rows is None else int(rows))


def is_of(table: str, table_id: str) -> bool:
    """Whether a read of `table` is one of this table. Engines put the catalog's name before it, as they know it."""
    return table == table_id or table.endswith(f".{table_id}")


def decay(age_s: float) -> float:
    """What is left of a read of so many seconds ago. Reads to come are read now."""
    return float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


def heat_of(reads: Iterable[Read], now_s: float) -> dict[str, float]:
    """How many reads ask for each column, as they count now."""
    heat: dict[str, float] = defaultdict(float)
    for read in reads:
        for name in read.columns:
            heat[name] += decay(now_s - read.at_s)
    return dict(heat)


def columns_asked(heat: Mapping[str, float]) -> tuple[ClusterColumn, ...]:
    """The columns that are asked for most, with weights above those of the least."""
    hottest = sorted(heat, key=lambda name: (-heat[name], name))[:COLUMNS_MAX]
    kept = [name for name in hottest if heat[name] >= WEIGHT_MIN * heat[hottest[0]] and heat[name] > 0.0]
    return tuple(ClusterColumn(name, round(heat[name] / heat[kept[-1]], 1)) for name in kept)
