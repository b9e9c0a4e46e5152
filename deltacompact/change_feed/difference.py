"""Counts what differs between two ends of a table's history: changes by type, files that came and went.

orders, 1 to now: 120 inserts, 7 deletes, 30 updates; files +3 -1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.change_feed.columns import counts_of
from deltacompact.change_feed.request import ChangeRange, ChangesRequest, changes_of


@dataclass(frozen=True, slots=True)
class Difference:
    """The net change. Without a key, an update counts as an insert and a delete."""

    inserts: int
    deletes: int
    updates: int
    files_added: int
    files_removed: int


def difference(table_id: str, ranges: Sequence[ChangeRange], whole: pa.Schema, asked: ChangesRequest) -> Difference:
    """The changes of `changes_of`, counted. Raises as it does."""
    counts = counts_of(changes_of(table_id, ranges, whole, asked))
    files = [range_.files() for range_ in ranges]
    added, removed = (sum(len(side[a] - side[b]) for side in files) for a, b in ((1, 0), (0, 1)))
    return Difference(counts["insert"], counts["delete"], counts["update_after"], added, removed)
