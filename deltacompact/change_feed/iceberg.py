"""Finds candidates for changes in an Iceberg branch between two snapshots, and the commits in between.

from 7     8 append      added files
           9 replace     no change, by definition: the stretches before and after it are compared apart
           10 delete     files with other deletes: their live bitmaps are compared
to 10

A file with the same deletes at both ends is never opened. For other files, dead rows are found as `convert` does it:
equality deletes by the digests of keys, vectors and position deletes as bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.moments import moment_of
from deltacompact.base.settings import Settings
from deltacompact.change_feed.candidates import Bits, Candidates, Numbers, changed
from deltacompact.change_feed.columns import ChangeCommit
from deltacompact.change_feed.steps import ChangeStep
from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.boxes import known_of_files
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.key_index.indexes import is_enabled
from deltacompact.iceberg.live_rows import LiveFile, LiveReader
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID, has_lineage
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.layout.skipping import KnownColumns
from deltacompact.reading.skipping import Skipping
from deltacompact.tabular import schemas

AsOf = str | int | datetime | None
_LINEAGE = pa.schema([ROW_ID, LAST_UPDATED])
_ICEBERG_SINCE = 2017


@dataclass(frozen=True, slots=True)
class DataFileRows:
    """Rows of a data file."""

    live: LiveReader
    task: FileScanTask

    @property
    def rows(self) -> int:
        return self.task.entry.file.rows

    @property
    def row_bytes(self) -> int:
        return 1 + self.task.entry.file.likely_decoded_bytes // max(1, self.rows)

    @property
    def path(self) -> str:
        return self.task.entry.file.path

    def known(self, columns: pa.Schema) -> KnownColumns:
        (found,) = known_of_files(self.live.metadata, [self.task.entry], columns.names)
        return found

    def tables(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        by_id = pa.schema([self.live.metadata.schema.field(name) for name in columns.names])
        for numbers, table in self.live.numbered(self.live.scan(self.task, by_id), by_id, bits, skipping):
            yield numbers, pa.Table.from_arrays(table.columns, schema=columns)

    def lineage(self, bits: Bits | None) -> Iterator[tuple[Numbers, pa.Table]] | None:
        if not has_lineage(self.live.metadata) or self.task.entry.file.first_row_id is None:
            return None
        return self.live.numbered(self.live.scan(self.task, _LINEAGE), _LINEAGE, bits)


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots of a branch after `begin` (None: from the branch's beginning) up to `end`.

    `path` has them in order. It is empty if `end` does not descend from `begin`, or if some have expired.
    """

    table: IcebergTable
    branch: str
    begin: Snapshot | None
    end: Snapshot | None
    path: tuple[Snapshot, ...]
    settings: Settings

    @classmethod
    def of(cls, table: IcebergTable, branch: str, from_: AsOf, to: AsOf, settings: Settings) -> SnapshotRange:
        """Raises NotFoundError for a snapshot that is not there."""
        metadata = table.metadata
        head = metadata.branch(branch)
        end = head if to is None else snapshot_as_of(metadata, to, branch)
        begin = None if from_ is None else begin_of(metadata, from_, branch)
        return cls(table, branch, begin, end, tuple(_path(metadata, begin, end)), settings)

    @property
    def columns(self) -> pa.Schema:
        """Today's columns."""
        return schemas.unmarked(self.table.metadata.schema)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the identifier fields; none where the table has none, or where one lies inside of a struct."""
        metadata = self.table.metadata
        names = {number: column.field.name for number, column in metadata.columns.items() if column.is_top_level}
        found = tuple(names[number] for number in metadata.identifier_ids if number in names)
        return found if len(found) == len(metadata.identifier_ids) else ()

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """None: the columns of partitions are columns of the table."""
        return ()

    def lacking(self, name: str) -> str | None:
        """The snapshot at either end whose schema lacks this column of today's; None: neither."""
        number = next(number for number, column in self.table.metadata.columns.items() if column.field.name == name)
        for snapshot in (self.begin, self.end):
            if snapshot is not None and number not in self.table.field_ids(snapshot):
                return f"snapshot {snapshot.snapshot_id}"
        return None

    def files(self) -> tuple[frozenset[str], frozenset[str]]:
        """The data files and delete files of both ends."""
        states = [self._reader.at(self.table.metadata, self.branch, snapshot) for snapshot in (self.begin, self.end)]
        before, after = (frozenset(entry.file.path for entry in (*state.data, *state.deletes)) for state in states)
        return before, after

    def net(self) -> list[ChangeStep]:
        """One step: all that may have changed."""
        if self.end is None or self.begin == self.end:
            return []
        commit = ChangeCommit(0, self.end.snapshot_id, self.end.timestamp_ms)
        return [ChangeStep(commit, lambda: list(self._of_segments()))]

    def commits(self) -> list[ChangeStep]:
        """A step for each commit that may have changed rows. Raises InputError if one has expired."""
        if self.end is None or self.begin == self.end:
            return []
        if not self.path:
            raise InputError(
                f"{self.table.metadata.table_id}: snapshot {self.end.snapshot_id} does not descend from "
                f"{self.begin.snapshot_id if self.begin else 'an empty table'} by snapshots that are left: ask for the "
                "net change"
            )
        reader, pairs = self._reader, list(zip((self.begin, *self.path), self.path, strict=False))
        changing = [(before, after) for before, after in pairs if not _is_replace(after)]
        return [
            ChangeStep(
                ChangeCommit(ordinal, after.snapshot_id, after.timestamp_ms),
                lambda before=before, after=after: list(self._between(reader, before, after)),  # type: ignore[misc]
            )
            for ordinal, (before, after) in enumerate(changing)
        ]

    @property
    def _reader(self) -> StateReader:
        return StateReader(self.table.store)

    def _of_segments(self) -> Iterator[Candidates]:
        """The candidates of each stretch between `replace` snapshots."""
        reader, before, last = self._reader, self.begin, self.begin
        for snapshot in self.path:
            if _is_replace(snapshot):
                yield from self._between(reader, before, last)
                before = snapshot
            last = snapshot
        yield from self._between(reader, before, self.end)

    def _between(self, reader: StateReader, before: Snapshot | None, after: Snapshot | None) -> Iterator[Candidates]:
        if before == after:
            return
        states = [reader.at(self.table.metadata, self.branch, snapshot) for snapshot in (before, after)]
        metadata = self.table.metadata
        live = LiveReader(
            self.table.store,
            metadata,
            self.settings.limits,
            Sizes.of(self.settings),
            is_enabled(None, metadata.properties),
        )
        yield from candidates_between(live, states[0], states[1])


def begin_of(metadata: TableMetadata, from_: str | int | datetime, branch: str) -> Snapshot | None:
    """The snapshot after which changes count. A time before the first one is the empty table.

    Where the first ones have expired, only a time before there was Iceberg is surely before them.
    """
    try:
        return snapshot_as_of(metadata, from_, branch)
    except NotFoundError:
        moment = None if isinstance(from_, int) else moment_of(from_)
        ancestors = list(metadata.ancestors(metadata.branch(branch)))
        if moment is None or not (moment.year < _ICEBERG_SINCE or not ancestors or ancestors[-1].is_first):
            raise
        return None


def _path(metadata: TableMetadata, begin: Snapshot | None, end: Snapshot | None) -> list[Snapshot]:
    """The snapshots after `begin` up to `end`, the oldest first; empty where they are not all there."""
    found: list[Snapshot] = []
    for snapshot in metadata.ancestors(end):
        if begin is not None and snapshot.snapshot_id == begin.snapshot_id:
            return found[::-1]
        found.append(snapshot)
    is_whole = begin is None and found and found[-1].is_first
    return found[::-1] if is_whole else []


def _is_replace(snapshot: Snapshot) -> bool:
    return snapshot.summary.get("operation") == "replace"


def candidates_between(live: LiveReader, before: TableState, after: TableState) -> Iterator[Candidates]:
    """The rows of files that only one side has, or whose deletes differ; in the order of the files."""
    sides = differing(before, after)
    found = [{file.task.entry.file.path: file for file in live.files(side)} for side in sides]
    for path in dict.fromkeys([*found[0], *found[1]]):
        yield from _of_file(live, found[0].get(path), found[1].get(path))


def _of_file(live: LiveReader, before: LiveFile | None, after: LiveFile | None) -> Iterator[Candidates]:
    if before is not None and after is not None:
        yield from changed(DataFileRows(live, after.task), before.bits, after.bits)
        return
    for is_added, file in ((False, before), (True, after)):
        if file is not None and (candidates := Candidates(DataFileRows(live, file.task), is_added, file.bits)).count:
            yield candidates
