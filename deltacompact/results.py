"""What became of each partition: counts, sizes, reasons, or the error. Values that a caller keeps.

day=1995-04-03    rows_in 1,000 = live 990 + superseded 8 + deleted 2      version 4-a1…
day=1995-04-04    nothing_to_do "no deltas since the last compaction"
day=1995-04-05    error SchemaError("…")
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltacompact.base import one_heap
from deltacompact.base.deltas import null_keys
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.events import SessionFinished, logger
from deltacompact.base.model import Partition
from deltacompact.base.notebooks import html_table
from deltacompact.base.wording import counted, noticed, one_line, size
from deltacompact.planning.decisions import DecidedFile, counted_reasons, decided_words
from deltacompact.planning.needs import Needs
from deltacompact.table.ports import PartitionSnapshot

if TYPE_CHECKING:
    from deltacompact.executors.executor import Executor
    from deltacompact.publication.publication import PublicationResult  # importing PyIceberg takes a second
    from deltacompact.session.driver import CompactionSession, PublishedSession

PARTITIONS_PRINTED = 10
"""If there are more partitions, only this many are printed."""


@dataclass(frozen=True, slots=True, repr=False)
class SessionResult:
    """The result of one partition stream: rows_in = live + superseded + deleted.

    `rows_in` counts the live rows of the base and the upserts of the deltas, `delete_rows` the rows of deletes.
    `files_marked` counts files that stay with a deletion vector, `rows_copied` rows of new files that were neither
    decoded nor encoded. Bytes are sizes of stored files. `spilled_bytes` is what Ray's object store wrote to disk
    meanwhile (None: unknown), `measured_peak_bytes` the peak of a process, `cpu_seconds` what processes computed by
    stage: all three include sessions that ran at the same time. `decisions` has an action and a reason for every file.
    `new_columns` are those that the base lacked, and `null_keys` the rows of the deltas with null in a key column,
    where append has counted them. `error` is None on success, and `nothing_to_do` says why no session was needed.
    """

    partition: dict[str, str | None]
    rows_in: int = 0
    live: int = 0
    superseded: int = 0
    deleted: int = 0
    delete_rows: int = 0
    files_kept: int = 0
    files_rewritten: int = 0
    files_marked: int = 0
    files_new: int = 0
    rows_copied: int = 0
    files_before: int = 0
    files_after: int = 0
    rounds: int = 0
    rounds_resumed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    hash_bucket_count: int = 0
    executor: str = ""
    version: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    scheduling_share: float = 0.0
    planned_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    spilled_bytes: int | None = None
    decisions: tuple[DecidedFile, ...] = ()
    new_columns: tuple[str, ...] = ()
    null_keys: dict[str, int] = field(default_factory=dict)
    nothing_to_do: str | None = None
    error: Exception | None = None

    def __repr__(self) -> str:
        """The line that `compact` prints first."""
        return f"{Partition(tuple(self.partition.items()))}: {self.outcome}"

    def __str__(self) -> str:
        """What `compact` prints of a partition."""
        return "\n".join([repr(self), *self._lines()])

    def _lines(self) -> Iterator[str]:
        """What is said below the first line of a partition that was compacted."""
        if self.version is None:
            return
        yield (
            f"  files {self.files_before} -> {self.files_after} ({decided_words(self.decisions)}), "
            f"{size(self.bytes_in)} -> {size(self.bytes_out)}, {counted(self.rounds, 'round')} on {self.executor}"
        )
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items())
        spilled = f"; spilled to disk {size(self.spilled_bytes)}" if self.spilled_bytes else ""
        yield (
            f"  seconds: {stages}; memory: planned {size(self.planned_peak_bytes)}, "
            f"measured {size(self.measured_peak_bytes)}{spilled}"
        )
        yield from (f"  {line}" for line in noticed(self.new_columns, self.null_keys))

    @property
    def outcome(self) -> str:
        """What became of the partition, in words."""
        if self.error is not None:
            return f"failed: {one_line(self.error)}"
        if self.nothing_to_do is not None:
            return f"nothing to do: {self.nothing_to_do}"
        return (
            f"{counted(self.rows_in, 'row')} in, {self.live:,} live, {self.superseded:,} superseded, "
            f"{self.deleted:,} deleted by {counted(self.delete_rows, 'delete row')}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class CompactionResult:
    """One SessionResult for each partition. `publication`: what became of it in the table that shows the rows.

    An error in `publication` is no error of the compaction: the next run repairs it.
    """

    source_table_id: str
    destination_table_id: str
    sessions: tuple[SessionResult, ...]
    publication: PublicationResult | None = None

    @property
    def errors(self) -> tuple[Exception, ...]:
        return tuple(session.error for session in self.sessions if session.error)

    def __repr__(self) -> str:
        idle, failed = sum(session.nothing_to_do is not None for session in self.sessions), len(self.errors)
        done = len(self.sessions) - idle - failed
        counts = f"{done:,} compacted, {idle:,} with nothing to do, {failed:,} failed"
        return f"compaction of {self.source_table_id!r}: {counted(len(self.sessions), 'partition')}: {counts}"

    def __str__(self) -> str:
        """What `compact` prints: totals, each partition, or of many a line for the ten worst, and the publication."""
        totals = self._total_lines() if len(self.sessions) > 1 else ()
        shown = list(map(str, self.sessions))
        if (more := len(self.sessions) - PARTITIONS_PRINTED) > 0:
            worst = heapq.nlargest(PARTITIONS_PRINTED, self.sessions, key=badness)
            shown = [*map(repr, worst), f"and {counted(more, 'more partition')}"]
        return "\n".join([*totals, *shown, *([str(self.publication)] if self.publication else [])])

    def _repr_html_(self) -> str:
        """The partitions, the ten that took longest of many: for notebooks."""
        head = ("rows in", "live", "superseded", "deleted", "files before", "files", "seconds", "partition")
        return html_table(repr(self), head, map(_cells, heapq.nlargest(PARTITIONS_PRINTED, self.sessions, key=badness)))

    def _total_lines(self) -> Iterator[str]:
        """What became of all partitions together."""
        done = [session for session in self.sessions if session.version is not None]
        rows, live = sum(session.rows_in for session in done), sum(session.live for session in done)
        counts = f", {counted(rows, 'row')} in, {live:,} live, {rows - live:,} dead" if done else ""
        yield f"{self.source_table_id}: {counted(len(self.sessions), 'partition')}{counts}"
        if done:
            decided = decided_words(file for session in done for file in session.decisions)
            before, after = sum(session.bytes_in for session in done), sum(session.bytes_out for session in done)
            yield f"  files: {decided}; {size(before)} -> {size(after)}"
            stages = Counter[str]()
            for session in done:
                stages.update(session.seconds)
            yield f"  seconds of all sessions: {', '.join(f'{stage} {took:.1f}' for stage, took in stages.items())}"


def badness(session: SessionResult) -> tuple[bool, float]:
    """Failures first, then what took longest."""
    return session.error is not None, sum(session.seconds.values())


def _cells(session: SessionResult) -> tuple[str, ...]:
    counts = (session.rows_in, session.live, session.superseded, session.deleted)
    files = (session.files_before, session.files_after)
    took = f"{sum(session.seconds.values()):,.1f}"
    return (*(f"{count:,}" for count in (*counts, *files)), took, str(Partition(tuple(session.partition.items()))))


def result_of(
    session: CompactionSession, published: PublishedSession, executor: Executor, spilled_bytes: int | None
) -> SessionResult:
    """The result of a session that has published. `spilled_bytes`: see SessionResult."""
    decided, counts, outputs = session.plan, published.counts, published.outputs
    snapshot, measured = decided.input, session.measured
    base_files = len(snapshot.base.files) if snapshot.base and snapshot.owned else 0
    is_here = executor.name == "local"
    planned_bytes = Needs(decided).process_bytes(
        executor.tasks_per_process, holds=is_here, has_one_heap=not is_here or one_heap.is_shared()
    )
    seconds = sum(measured.seconds.values())
    return SessionResult(
        partition=dict(snapshot.partition.values),
        rows_in=counts.upserts + (snapshot.base.rows if snapshot.base else 0),
        live=counts.live,
        superseded=counts.superseded,
        deleted=counts.deleted,
        delete_rows=counts.deletes,
        files_kept=len(outputs.kept),
        files_rewritten=base_files - len(outputs.marked) - sum(source.in_base for source in outputs.kept),
        files_marked=len(outputs.marked),
        files_new=len(outputs.outputs),
        rows_copied=measured.rows_copied,
        files_before=len(decided.sources),
        files_after=len(published.compacted.files),
        new_columns=decided.new_columns,
        null_keys=null_keys(snapshot.deltas),
        rounds=len(decided.rounds),
        rounds_resumed=session.rounds_resumed,
        bytes_in=snapshot.bytes,
        bytes_out=published.compacted.bytes,
        hash_bucket_count=decided.hash_bucket_count,
        executor=executor.name,
        version=published.version,
        seconds={stage: round(value, 3) for stage, value in measured.seconds.items()},
        cpu_seconds={stage: round(value, 3) for stage, value in measured.cpu_seconds.items()},
        scheduling_share=measured.scheduling_seconds / seconds if seconds else 0.0,
        planned_peak_bytes=planned_bytes,
        measured_peak_bytes=measured.peak_task_bytes,
        spilled_bytes=spilled_bytes,
        decisions=tuple(
            DecidedFile(decided.sources[file.ordinal].file.path, file.action, file.reason)
            for file in outputs.decision.files
        ),
    )


def failed(partition: Partition, error: Exception) -> SessionResult:
    """The result of a failed session. Log an unexpected exception with its traceback."""
    if not isinstance(error, DeltaCompactError):
        logger.error("partition %s failed: %s", partition, one_line(error), exc_info=error)
    return SessionResult(dict(partition.values), error=error)


def finished(
    table_id: str, result: SessionResult, partition: Partition, snapshot: PartitionSnapshot | None
) -> SessionFinished:
    """The event that tells of a result, without row values. `snapshot` tells which names in an error are no values."""
    error = result.error
    if error is None:
        files = counted_reasons(result.decisions)
        return SessionFinished(table_id, partition, None, result.live, files=files, version=result.version)
    named = _named_in(str(error), snapshot) if snapshot else []
    where = ": " + ", ".join(named) if named else ""
    return SessionFinished(table_id, partition, one_line(error), 0, type(error).__name__ + where)


def _named_in(message: str, snapshot: PartitionSnapshot) -> list[str]:
    """The files and columns that an error names. Nothing else of its text is surely not a row value."""
    base, deltas = snapshot.base, snapshot.deltas
    files = [*(base.files if base else ()), *(file for delta in deltas for file in delta.files)]
    columns = dict.fromkeys(name for file in files for name in file.schema.names)
    return [
        *(file.path for file in files if file.path in message),
        *(f"column {name!r}" for name in columns if repr(name) in message),
    ]
