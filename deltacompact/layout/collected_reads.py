"""Collects the reads of one table from scan reports, logs of Spark and our own records, and what they ask for.

    reports.jsonl             2 reads by day                     1 line was cut short: left out, with a note
    eventlog_v2_app-1/        30 reads by day and customer       columns that the table lacks are dropped

Nothing keeps the values that were asked for, who asked, or where a log is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.heat import Heat, SourcedRead
from deltacompact.layout.kept_heat import KeptHeat
from deltacompact.layout.log_lines import LeftOut, lines_of, logs_in, name_of
from deltacompact.layout.reads import Read, columns_asked, heat_of, names_table
from deltacompact.layout.scan_reports import read_of
from deltacompact.layout.spark_logs import SparkLog


@dataclass(slots=True)
class CollectedReads:
    """The reads of a table. `columns`: those that can cluster rows; others are dropped. `sources`: what was read, in
    words."""

    table_id: str
    columns: Collection[str]
    now_s: float
    sourced: list[SourcedRead] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    sources: list[str] = field(default_factory=list)

    @property
    def reads(self) -> list[Read]:
        return [sourced.read for sourced in self.sourced]

    def add_reports(self, reports: Sequence[Any]) -> None:
        """Add scan reports as a REST catalog gets them, or our own records: documents, or lines of JSON.

        Reports that begin with the same report are the same source, which has grown.
        """
        columns, source = frozenset(self.columns), f"reports {reports[0] if reports else ''!r}"
        for number, report in enumerate(reports):
            document = self.left_out.document(report) if isinstance(report, bytes) else report
            read = read_of(document, self.now_s)
            if read is not None and names_table(read.table, self.table_id):
                kept = tuple(name for name in read.columns if name in columns)
                self.sourced.append(SourcedRead(source, number, replace(read, table=self.table_id, columns=kept)))
        self.sources.append(counted(len(reports), "scan report"))

    def add_spark_logs(self, path: str | Path) -> None:
        """Add the event logs at a path. Raises InputError if there is none, or for a compression that we cannot
        read."""
        logs = {name_of(log): log for log in logs_in(Path(path))}
        known = {sourced.source for sourced in self.sourced}
        for name in sorted(logs.keys() - known):  # the user may have named a folder, and a log in it
            self.sourced += self._of_spark(name, logs[name])
        self.sources.append(counted(len(logs), "log"))

    def _of_spark(self, name: str, log: tuple[Path, ...]) -> Iterator[SourcedRead]:
        events = SparkLog(self.table_id, self.columns, self.left_out)
        for number, read in events.reads(lines_of(log, self.left_out)):
            yield SourcedRead(name, number, read)

    def columns_asked(self) -> tuple[ClusterColumn, ...]:
        """The columns that reads ask for. Raises InputError if no read asks for any."""
        if found := columns_asked(heat_of(self.reads, self.now_s)):
            return found
        of = " and ".join(self.sources)
        raise InputError(f"no read in {of} has a predicate on a column of table {self.table_id!r}")

    def added_to(self, kept: KeptHeat) -> tuple[Heat, tuple[str, ...]]:
        """The heat of now, to which these reads are added, and what could not be read."""
        if not self.sources:
            return kept.read().now(self.now_s), ()
        return kept.keep(self.sourced, self.now_s), self.notes

    def refuse_none(self) -> None:
        """Raise InputError if no source was given, for `simulate`."""
        if not self.sources:
            raise InputError("simulate replays reads: give --spark-log or --scan-reports")

    @property
    def notes(self) -> tuple[str, ...]:
        return self.left_out.words


def collected_reads(
    table_id: str,
    columns: Collection[str],
    now_s: float,
    scan_reports: Iterable[Any] = (),
    spark_logs: Iterable[str | Path] = (),
) -> CollectedReads:
    """The reads of a table in scan reports, and in the logs at these paths. `columns`: those that can cluster rows."""
    collected = CollectedReads(table_id, columns, now_s)
    if reports := list(scan_reports):
        collected.add_reports(reports)
    for path in spark_logs:
        collected.add_spark_logs(path)
    return collected
