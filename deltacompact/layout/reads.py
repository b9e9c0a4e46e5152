"""Reads of a table, and how often they ask for each of its columns: pure. The values they ask for are not kept.

    at 12:00    orders    predicate on day                240 files opened, 0 skipped
    at 12:05    orders    predicates on day, customer      30 files opened, 210 skipped
    weights     day 2, customer 1                         a read of a week ago counts half

Reads decide by which columns rows are clustered, never which rows there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.layout.cluster_by import COLUMNS_MAX, ClusterColumn

HALF_LIFE_S = 7 * 86_400.0
WEIGHT_MIN = 0.05
"""As a share of the hottest column: colder columns are left out."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read: the columns with a predicate, the files that were opened and skipped, and when, in Unix seconds.

    `rows`: the rows of the scan, before predicates are applied to single rows. None: unknown.
    """

    table: str
    columns: tuple[str, ...]
    files_opened: int
    files_skipped: int
    at_s: float
    rows: int | None = None


def read_document(read: Read) -> dict[str, Any]:
    """A read as JSON values, in a format that names no engine."""
    said = {"table": read.table, "columns": list(read.columns), "opened": read.files_opened}
    return {"at": read.at_s, "read": said | {"skipped": read.files_skipped, "rows": read.rows}}


def read_from_document(document: Mapping[str, Any]) -> Read:
    """Raises KeyError, TypeError, ValueError or OverflowError (an infinite number) for a document of another shape."""
    said, rows = document["read"], document["read"].get("rows")
    columns = tuple(map(str, said["columns"]))
    opened, skipped, at_s = int(said["opened"]), int(said["skipped"]), float(document["at"])
    return Read(str(said["table"]), columns, opened, skipped, at_s, None if rows is None else int(rows))


def names_table(table: str, table_id: str) -> bool:
    """Whether `table`, as a read names it, is this table. Engines put their name of the catalog before it."""
    return table == table_id or table.endswith(f".{table_id}")


def decay(age_s: float) -> float:
    """How much a read of so many seconds ago still counts, from 1 down. A read of the future counts as one of now."""
    return float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


def heat_of(reads: Iterable[Read], now_s: float) -> dict[str, float]:
    """For each column, the reads that ask for it, as they count now."""
    heat: dict[str, float] = defaultdict(float)
    for read in reads:
        for name in read.columns:
            heat[name] += decay(now_s - read.at_s)
    return dict(heat)


def columns_asked(heat: Mapping[str, float]) -> tuple[ClusterColumn, ...]:
    """The hottest columns. Weights are relative to the coldest of these, which has 1."""
    hottest = sorted(heat, key=lambda name: (-heat[name], name))[:COLUMNS_MAX]
    kept = [name for name in hottest if heat[name] >= WEIGHT_MIN * heat[hottest[0]] and heat[name] > 0.0]
    return tuple(ClusterColumn(name, round(heat[name] / heat[kept[-1]], 1)) for name in kept)
