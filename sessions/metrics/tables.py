"""Metrics of tables, from the last look of a watcher. A scrape makes no request.

    deltacompact_table_backlog_age_seconds{catalog="s3://lake/tables",table="orders",branch=""} 340
    deltacompact_table_delete_files{catalog="iceberg://prod",table="db.orders",branch="main"} 120

Values are those of a whole table: sums over its partitions, the oldest delta, the last compaction. If there are more
than 200 tables, those have series whose deltas wait longest, then those with most dead rows. A value that a kind of
table does not have is left out. So is a table that could not be read: its old numbers would look like new ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sessions.metrics.families import gauge

TABLES_MAX = 200
_LABELS = ["catalog", "table", "branch"]


@dataclass(frozen=True, slots=True)
class TableSizes:
    """The sizes of a partition, a branch, or a table. Times are Unix seconds. None: this kind of table has no such
    size.

    backlog_rows, backlog_bytes    of waiting deltas; for an Iceberg branch, bytes added since its last compaction
    dead_rows                      deleted rows in data files; for Iceberg, those that delete files name
    orphan_bytes                   bytes that vacuum, or the removal of orphans, would delete. None: not counted
    """

    oldest_delta_s: float | None = None
    deltas: int | None = None
    backlog_rows: int | None = None
    backlog_bytes: int | None = None
    rows: int | None = None
    dead_rows: int | None = None
    data_files: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None
    compacted_s: float | None = None
    orphan_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TablesSeen:
    """All tables of a watcher, by catalog, table and branch. `unreadable`: how many could not be read at the last
    look. `looked_s`: when it had looked at all; `alive_s`: when it last had looked at one of them."""

    looked_s: float | None = None
    tables: Mapping[tuple[str, str, str], TableSizes] = field(default_factory=dict)
    unreadable: int = 0
    alive_s: float | None = None


def total(parts: Iterable[TableSizes]) -> TableSizes:
    """The sizes of a table from those of its partitions: sums, the oldest delta, and the last compaction."""
    columns: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in asdict(part).items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    folds: dict[str, Callable[[list[Any]], Any]] = {"oldest_delta_s": min, "compacted_s": max}
    return TableSizes(**{name: folds.get(name, sum)(values) for name, values in columns.items()})


class TablesCollector(Collector):
    """Makes gauges of the watcher's last look. Ages are as of the scrape. The first look is awaited from the start."""

    def __init__(self, seen: Callable[[], TablesSeen], clock: Callable[[], float]) -> None:
        self._seen = seen
        self._clock = clock
        self._began_s = clock()

    def collect(self) -> Iterator[Metric]:
        seen, now_s = self._seen(), self._clock()
        looked_s = self._began_s if seen.looked_s is None else seen.looked_s
        since = {(): max(0.0, now_s - looked_s)}
        yield gauge("watch_look_age_seconds", "Since the watcher has looked at all tables", [], since)
        yield gauge(
            "tables", "Tables and branches that policies name and that could be read", [], {(): len(seen.tables)}
        )
        yield gauge("tables_unreadable", "Those that could not be looked at", [], {(): seen.unreadable})
        worst = dict(heapq.nsmallest(TABLES_MAX, seen.tables.items(), key=_worst_first))
        for name, text, value in _GAUGES:
            known = {key: found for key, sizes in worst.items() if (found := value(sizes, now_s)) is not None}
            yield gauge(f"table_{name}", text, _LABELS, known)

    def describe(self) -> Iterable[Metric]:
        return ()


def _worst_first(named: tuple[tuple[str, str, str], TableSizes]) -> tuple[float, int, tuple[str, str, str]]:
    key, sizes = named
    oldest_s = sizes.oldest_delta_s
    return math.inf if oldest_s is None else oldest_s, -(sizes.dead_rows or 0), key


def _backlog_age(sizes: TableSizes, now_s: float) -> float | None:
    """The age of the oldest waiting delta; 0 if none waits. None for an Iceberg branch, where only a plan would
    tell."""
    if sizes.deltas is None:
        return None
    return 0.0 if sizes.oldest_delta_s is None else max(0.0, now_s - sizes.oldest_delta_s)


_GAUGES: tuple[tuple[str, str, Callable[[TableSizes, float], float | None]], ...] = (
    ("backlog_age_seconds", "Since the oldest delta that waits was committed; 0: none waits", _backlog_age),
    ("deltas", "Deltas that wait", lambda sizes, _: sizes.deltas),
    ("backlog_rows", "Rows of deltas that wait", lambda sizes, _: sizes.backlog_rows),
    ("backlog_bytes", "Bytes that came since the last compaction", lambda sizes, _: sizes.backlog_bytes),
    ("rows", "Rows of data files, dead ones as well", lambda sizes, _: sizes.rows),
    ("dead_rows", "Rows that lie in files and are deleted", lambda sizes, _: sizes.dead_rows),
    ("data_files", "Data files", lambda sizes, _: sizes.data_files),
    ("delete_files", "Delete files of an Iceberg table", lambda sizes, _: sizes.delete_files),
    ("snapshots", "Snapshots of an Iceberg table", lambda sizes, _: sizes.snapshots),
    ("orphan_bytes", "Bytes that vacuum, or the removal of orphans, would delete", lambda sizes, _: sizes.orphan_bytes),
    ("last_compaction_timestamp_seconds", "When it was compacted last", lambda sizes, _: sizes.compacted_s),
)
