"""Reads of a table, whoever tells of them, and what they say of its columns: pure. No value that was asked for is kept.

    at 12:00    orders    asked by day                240 files opened, 0 skipped
    at 12:05    orders    asked by day, customer       30 files opened, 210 skipped
    weights     day 2, customer 1                     a read of a week ago counts for half

Reads decide by which columns it may pay to cluster, and how often each is asked for; never what rows there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.layout.cluster_by import COLUMNS_MAX, ClusterColumn

HALF_LIFE_S = 7 * 86_400.0
WEIGHT_MIN = 0.05
"""Of the weight of the column that is asked for most: those below are left out."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read: the columns with a predicate, the files that were opened and skipped, and when, in Unix seconds."""

    table: str
    columns: tuple[str, ...]
    files_opened: int
    files_skipped: int
    at_s: float


def columns_asked(reads: Iterable[Read], now_s: float, half_life_s: float = HALF_LIFE_S) -> tuple[ClusterColumn, ...]:
    """The columns that are asked for most, with weights above those of the least. Reads to come are read now."""
    heat: dict[str, float] = defaultdict(float)
    for read in reads:
        for name in read.columns:
            heat[name] += 0.5 ** (max(0.0, now_s - read.at_s) / half_life_s)
    hottest = sorted(heat, key=lambda name: (-heat[name], name))[:COLUMNS_MAX]
    kept = [name for name in hottest if heat[name] >= WEIGHT_MIN * heat[hottest[0]] and heat[name] > 0.0]
    return tuple(ClusterColumn(name, round(heat[name] / heat[kept[-1]], 1)) for name in kept)
