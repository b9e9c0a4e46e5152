"""Parses event logs of Spark (`spark.eventLog.enabled`) into reads of one table: pure.

    SQLExecutionStart 7    plan: BatchScan prod.db.orders   filters=day IS NOT NULL, day = 20455   metrics 310, 312
    DriverAccumUpdates 7   310: 4 files, 312: 20 skipped
    StageCompleted         303: 250 rows
    SQLExecutionEnd 7      orders, predicate on day, 4 files opened, 20 skipped, 250 rows

A plan has its predicates as text, with literals, and no parser takes all of these apart. So the text is searched for
names of the table's columns, and nothing else is kept. `IS NOT NULL` does not count: it skips no file, and Spark adds
it to every comparison and every join. A plan that Spark changes while it runs counts once, and so does a scan that is
used twice.

    Iceberg 1.12, Spark 4.1     IcebergScan(table=prod.db.orders, …, filters=day = 20455, runtimeFilters=, …)
    Iceberg 1.3, Spark 3.3      prod.db.orders (branch=null) [filters=day = 20455, groupedBy=]
    Iceberg 0.12, Spark 3.1     prod.db.orders [filters=day = 20455]
    files, any Spark            PartitionFilters: [(day#165 = 2026-01-02)], PushedFilters: [EqualTo(name,x)]
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltacompact.layout.log_lines import LeftOut
from deltacompact.layout.reads import Read, names_table

_SQL = "org.apache.spark.sql.execution.ui.SparkListener"
_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"]+)"')
_READ_EVENTS = frozenset(
    f"{_SQL}{name}".encode()
    for name in ("SQLExecutionStart", "SQLAdaptiveExecutionUpdate", "DriverAccumUpdates", "SQLExecutionEnd")
) | {b"SparkListenerStageCompleted"}
"""The events about reads. Others are not parsed: most lines are about tasks."""
_TABLE = re.compile(r"(?:table=|\] )(?P<table>[^\s,()\[\]]+)(?:,| \(branch=| \[filters=)")
_FILE_SCAN = re.compile(r"(?:FileScan|Scan) (?:parquet|orc|csv|json|avro) (?P<table>\S+)")
_OPENED = ("number of result data files", "number of files read")
_SKIPPED = ("number of skipped data files",)
_ROWS = ("number of output rows",)
_LITERAL = re.compile(r"'[^']*'")
_NOT_NULL = re.compile(r"isnotnull\([^()]*\)|[^,()]+ IS NOT NULL", re.I)


@dataclass(frozen=True, slots=True)
class _LoggedScan:
    """A scan of the table. `opened`, `skipped` and `rows` are ids of metrics; their values come in later events."""

    columns: tuple[str, ...]
    opened: int | None
    skipped: int | None
    rows: int | None

    @property
    def metrics(self) -> frozenset[int]:
        return frozenset(metric for metric in (self.opened, self.skipped, self.rows) if metric is not None)


@dataclass(slots=True)
class _Execution:
    """A query that has begun. `scans`: by the least id of their metrics."""

    at_s: float
    scans: dict[int | None, _LoggedScan] = field(default_factory=dict)


@dataclass(slots=True)
class SparkLog:
    """The reads of a table by one application. `columns`: those of the table.

    `left_out` counts lines that are not events. A query without an end, because the application still runs or was
    killed, is a read with what is known of it.
    """

    table_id: str
    columns: Collection[str]
    left_out: LeftOut
    _running: dict[int, _Execution] = field(default_factory=dict)
    _wanted: set[int] = field(default_factory=set)
    _values: dict[int, int] = field(default_factory=dict)

    def reads(self, lines: Iterable[bytes]) -> Iterator[tuple[int, Read]]:
        """(number of the query, read). Numbers never fall within an application."""
        for line in lines:
            found = _EVENT.match(line)
            if found and found[1] not in _READ_EVENTS and line.rstrip().endswith(b"}"):
                continue
            if (event := self.left_out.document(line)) is None:
                continue
            try:
                yield from self._reads_of(event)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # of a shape that we do not know
                self.left_out.lines += 1
        for number in sorted(self._running):
            yield from self._ended(number)

    def _reads_of(self, event: Mapping[str, Any]) -> Iterator[tuple[int, Read]]:
        match str(event["Event"]).removeprefix(_SQL):
            case "SQLExecutionStart":
                self._running[int(event["executionId"])] = _Execution(float(event["time"]) / 1000)
                self._planned(event)
            case "SQLAdaptiveExecutionUpdate":
                self._planned(event)
            case "DriverAccumUpdates":
                self._add({int(number): int(value) for number, value in event["accumUpdates"]})
            case "SparkListenerStageCompleted":
                updates = event["Stage Info"].get("Accumulables", ())
                self._add({update["ID"]: int(update["Value"]) for update in updates if update["ID"] in self._wanted})
            case "SQLExecutionEnd":
                yield from self._ended(int(event["executionId"]))

    def _planned(self, event: Mapping[str, Any]) -> None:
        """Add the scans of a plan. If Spark changes the plan, the new one repeats scans that have not run yet."""
        if (execution := self._running.get(int(event["executionId"]))) is None:
            return
        for scan in _scans(event["sparkPlanInfo"], self.table_id, self.columns):
            execution.scans[min(scan.metrics, default=None)] = scan
            self._wanted |= scan.metrics

    def _add(self, updates: Mapping[int, int]) -> None:
        self._values |= {number: value for number, value in updates.items() if number in self._wanted}

    def _ended(self, number: int) -> Iterator[tuple[int, Read]]:
        execution = self._running.pop(number, _Execution(0.0))
        for scan in execution.scans.values():
            found = [
                None if metric is None else self._values.get(metric)
                for metric in (scan.opened, scan.skipped, scan.rows)
            ]
            opened, skipped, rows = found
            yield number, Read(self.table_id, scan.columns, opened or 0, skipped or 0, execution.at_s, rows)
            for metric in scan.metrics:
                self._values.pop(metric, None)
                self._wanted.discard(metric)


def _scans(node: Mapping[str, Any], table_id: str, columns: Collection[str]) -> Iterator[_LoggedScan]:
    """The scans of a table in a plan."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        nodes += reversed(node.get("children", ()))
        name, text = str(node["nodeName"]), str(node["simpleString"])
        if "Scan" in name and (table := _table_of(name, text)) is not None and names_table(table, table_id):
            metrics = {str(metric["name"]): int(metric["accumulatorId"]) for metric in node.get("metrics", ())}
            opened, skipped, rows = (_first(metrics, names) for names in (_OPENED, _SKIPPED, _ROWS))
            yield _LoggedScan(
                columns_asked_in(_predicates(text, node.get("metadata") or {}), columns), opened, skipped, rows
            )


def _table_of(name: str, text: str) -> str | None:
    """The table of a scan. None: it scans files without a table's name."""
    if found := _FILE_SCAN.match(name):
        return found["table"]
    _, _, named = name.partition("BatchScan ")
    if named:
        return named.strip()
    found = _TABLE.search(text)
    return found and found["table"]


def _predicates(text: str, metadata: Mapping[str, Any]) -> str:
    """The predicates of a plan's node, as text."""
    if "PushedFilters" in metadata or "PartitionFilters" in metadata:
        return f"{metadata.get('PartitionFilters', '')} {metadata.get('PushedFilters', '')}"
    _, _, filters = text.partition("filters=")
    return filters


def columns_asked_in(predicates: str, columns: Collection[str]) -> tuple[str, ...]:
    """The columns among `columns` with a predicate that can skip files, in their order."""
    text = _NOT_NULL.sub("", _LITERAL.sub("''", predicates))
    found = set()
    for name in sorted(columns, key=len, reverse=True):  # a name may be a part of another
        if name in text and (without := _asked(name).sub("", text)) != text:
            text = without
            found.add(name)
    return tuple(name for name in columns if name in found)


def _asked(name: str) -> re.Pattern[str]:
    """Matches a column where predicates have columns: before an operator, as an argument, with an attribute's number.

    "day = 7", "EqualTo(day,7)", "bucket(4, day) = 3", "(day#165 = 7)", not "place.day = 7"
    """
    escaped = re.escape(name)
    operator = r" (?:=|!=|<=?|>=?|IS NULL|NOT (?:IN|LIKE)|IN|LIKE)(?![A-Za-z])"
    return re.compile(rf"(?<![\w.#`]){escaped}(?:{operator}|#\d)|\((?:\d+, ?)?{escaped}[,)]|\"{escaped}\"")


def _first(metrics: Mapping[str, int], names: Iterable[str]) -> int | None:
    return next((metrics[name] for name in names if name in metrics), None)
