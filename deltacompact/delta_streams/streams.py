"""The partition streams of all tables below the root of a store: their names, their logs and their states.

    streams.partitions("orders")                      day=1995-04-03, day=1995-04-04
    streams.log("orders", partition)                  the log of one stream, which may not exist yet
    streams.state("orders", partition)                its active version

Readers, compactions and vacuums find streams here. Users have the catalog: see catalog/delta_streams.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import ConflictError, CorruptionError, InputError, NotFoundError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import FORMAT_VERSION, Partition, PartitionLike, Table
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.listing import Listing, read_listing
from deltacompact.delta_streams.log.entries import dump
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.objects import LOG_LIMITS, LogLimits
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths, check_path
from deltacompact.delta_streams.spellings import Spellings
from deltacompact.delta_streams.table_documents import is_destination, of_source
from deltacompact.delta_streams.tables import Tables
from deltacompact.storage.certain_put import put_certainly
from deltacompact.storage.objects import ObjectStore

VACUUM_AGE_MIN_S = 3 * 24 * 3600
"""Vacuum never deletes objects younger than this (seconds); writers refuse to commit files older than half of it."""


class Streams(Tables):
    """Partition streams of tables. Safe to use from several threads and processes."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
        log_limits: LogLimits = LOG_LIMITS,
        read_limits: ReadLimits = READ_LIMITS,
    ) -> None:
        super().__init__(store)
        self.clock = clock
        self.wait = wait
        self.log_limits = log_limits
        self.read_limits = read_limits
        self._logs: dict[tuple[str, Partition], StreamLog] = {}
        self._listings: dict[str, Listing] = {}
        self._fitting: dict[str, pa.Schema] = {}
        self._spellings: dict[str, Spellings] = {}
        self.writers: dict[tuple[str, Partition], Any] = {}
        """Those of streams that this process has appended to: see writer_of in appending/stream_writer.py."""

    def __getstate__(self) -> dict[str, Any]:
        remembered = ("_logs", "_listings", "_fitting", "_spellings", "writers")
        return {**super().__getstate__(), **{name: {} for name in remembered}}

    def partitions(self, table_id: str) -> list[Partition]:
        """The partitions that hold a stream."""
        table, paths = self.remembered_table(table_id), TablePaths.of(table_id)
        if not table.partition_keys:
            return [Partition()] if self.log(table_id, Partition()).exists() else []
        marks = [paths.partition_of(stat.path, table.partition_keys) for stat in self.store.list(paths.partitions)]
        marked = [partition for partition in marks if partition is not None]
        listed = self.listing(table_id) if self.is_remote and len(marked) >= self.log_limits.streams_listed_min else {}
        # A writer may have died between the mark and the stream.
        unlisted = [partition for partition in marked if partition not in listed]
        exist = side_by_side(unlisted, lambda unknown: self.log(table_id, unknown).exists(), self.at_once)
        missing = {partition for partition, exists in zip(unlisted, exist, strict=True) if not exists}
        return [partition for partition in marked if partition not in missing]

    def listing(self, table_id: str) -> Listing:
        """The listing of a table as this process first read it, or wrote it: see listing.py."""
        if table_id not in self._listings:
            self._listings[table_id] = read_listing(
                self.store, table_id, self.remembered_table(table_id).partition_keys
            )
        return self._listings[table_id]

    def remember_listing(self, table_id: str, listing: Listing) -> None:
        self._listings[table_id] = listing

    def fitting_columns(self, table_id: str) -> pa.Schema:
        """Columns that fit the partitions of the table, as far as this process knows. Empty: it knows none."""
        return self._fitting.get(table_id, pa.schema([]))

    def remember_fitting(self, table_id: str, columns: pa.Schema) -> None:
        self._fitting[table_id] = columns

    def spellings(self, table_id: str) -> Spellings:
        """The partitions as this process last listed them for a writer, and those that it has begun since."""
        return self._spellings.setdefault(table_id, Spellings())

    def partition(self, table_id: str, values: PartitionLike) -> Partition:
        """A partition that exists. Raises NotFoundError."""
        partition = Partition.of(self.remembered_table(table_id).partition_keys, values)
        if not self.log(table_id, partition).exists():
            raise _no_partition(table_id, partition)
        return partition

    def forget(self, table_id: str) -> None:
        """Remember nothing of a table that was dropped, nor of its streams."""
        super().forget(table_id)
        self._listings.pop(table_id, None)
        self._fitting.pop(table_id, None)
        self._spellings.pop(table_id, None)
        for of_stream in (self._logs, self.writers):
            for key in list(of_stream):  # other threads may add some meanwhile
                if key[0] == table_id:
                    of_stream.pop(key, None)

    def chosen(self, table_id: str, partition: PartitionLike) -> list[Partition]:
        """All partitions, or the named one. A Partition that the catalog has named is not looked for again."""
        if partition is None:
            return self.partitions(table_id)
        if isinstance(partition, Partition):
            return [partition]
        return [self.partition(table_id, partition)]

    def declare_source(self, table_id: str, source_table_id: str | None) -> None:
        """Make the table a destination of another table for ever, or (None) a table with its own streams.

        Raises InputError if it is something else already.
        """
        table = self.remembered_table(table_id)  # may be out of date: the put decides
        self.check_source(table, source_table_id)
        if table.source_table_id is None and not table.holds_streams:
            data = dump({"format": FORMAT_VERSION, "source_table_id": source_table_id})
            if put_certainly(self.store, TablePaths.of(table_id).source, data):
                self._tables[table_id] = of_source(table, source_table_id)
            else:
                self.check_source(self.described(table_id), source_table_id)

    def check_source(self, table: Table, source_table_id: str | None) -> None:
        """Raise InputError for a table that cannot be a destination of this source, or (None) hold its own streams."""
        holds_streams = table.holds_streams
        if source_table_id and not table.source_table_id and not holds_streams and self.partitions(table.table_id):
            # A writer puts source.json before it begins a stream. If there is none now, release 0.1 began the stream.
            table = self.described(table.table_id)
            holds_streams = table.source_table_id is None
        if table.source_table_id not in (None, source_table_id):
            assert table.source_table_id is not None
            if source_table_id is None:
                raise is_destination(table.table_id, table.source_table_id)
            raise InputError(
                f"table {table.table_id!r} is the destination of {table.source_table_id!r}, not of {source_table_id!r}"
            )
        if source_table_id and holds_streams:
            raise InputError(
                f"table {table.table_id!r} holds data of its own: it cannot be a destination of {source_table_id!r}"
            )

    def log(self, table_id: str, partition: Partition) -> StreamLog:
        """The log of a partition stream, which may not exist yet."""
        key = (table_id, partition)
        if key not in self._logs:
            paths = TablePaths.of(table_id).stream(partition)
            self._logs[key] = StreamLog(self.store, paths, self.log_limits, self.wait)
        return self._logs[key]

    def state(self, table_id: str, partition: Partition, strictly: bool = False) -> StreamState:
        """The active version of a partition stream; `strictly` as in StreamLog.active. Raises NotFoundError."""
        try:
            return self.log(table_id, partition).active(strictly)
        except NotFoundError as error:
            if self.log(table_id, partition).exists():
                raise CorruptionError(str(error)) from error
            raise _no_partition(table_id, partition) from None

    def begin_stream(self, table_id: str, partition: Partition, source_table_id: str | None = None) -> StreamLog:
        """Begin a partition stream if it does not exist; returns its log. `source_table_id`: for a destination.

        Raises InputError if the table is the other kind: a destination, or a table with its own streams.
        """
        log = self.log(table_id, partition)
        if log.was_absent or not log.exists():
            check_path(f"table {table_id!r}, partition {str(partition)[:80]}", log.paths.root)
            # The mark comes first: a mark without a stream is an empty partition, a stream without a mark is lost.
            self.store.put_if_absent(TablePaths.of(table_id).partition_mark(partition), b"")
            self.declare_source(table_id, source_table_id)
            log.begin()
        return log

    def check_age(self, begun_s: float | None) -> None:
        """Raise ConflictError for objects so old that a vacuum may have deleted them."""
        if begun_s is not None and self.clock() - begun_s > VACUUM_AGE_MIN_S / 2:
            raise ConflictError("the files took so long to write that a vacuum may have removed them: write them again")


def stream_files(state: StreamState) -> list[DataFile]:
    """Every file that a reader of the version needs, in fold order."""
    compacted = list(state.compacted.files) if state.compacted else []
    return compacted + [file for delta in state.deltas for file in delta.files]


def _no_partition(table_id: str, partition: Partition) -> NotFoundError:
    missing = f"has no partition {partition}" if partition.values else "holds no data"
    return NotFoundError(f"table {table_id!r} {missing}")
