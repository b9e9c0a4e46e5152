"""Declares where a table is published, and makes the Iceberg table show what the streams have.

    orders, day=1     version 4-a1…: a, b, d        day=2     version 2-77…: c
    publish           declare; create the Iceberg table or check it; add columns
                      head: a, b, c  ->  d is missing  ->  one snapshot that adds d
    publish           nothing is missing: no snapshot

The switch of a stream and the commit of the Iceberg table are two commits. A crash between them leaves the Iceberg
table with what it had; the next run compares again. Every attempt reads the head first and the streams afterwards, and
commits on that head only. So no commit shows an older version than an earlier one did.

Only compacted rows are shown. A partition that was restated shows its former rows until it is compacted.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base.errors import ConflictError, InputError, NotFoundError, OutcomeUnknownError
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.partitions import done_for_each
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import APPEND, DELETE, OVERWRITE, Proposal, addition
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.metadata import MAIN, PUBLICATION
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.publication.columns import (
    check_partition_keys,
    joined,
    partition_tuple,
    refuse_required,
    refuse_widened,
    shown_columns,
    with_partition_keys,
)
from deltacompact.publication.difference import Difference, ShownFile, difference
from deltacompact.publication.files import ListedFiles
from deltacompact.publication.target import PublicationTarget

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_FORMAT_VERSION = 2
_RUNS_MAX = 10


@dataclass(frozen=True, slots=True)
class PublicationResult:
    """What a run has changed in the Iceberg table `target`. `snapshot` is None if nothing was left to change.

    `dead_row_files` are position-delete files. `deltas_left_out` are not compacted yet, so the Iceberg table does not
    show them. `error` is there where a compaction could not publish its result.
    """

    table_id: str
    target: str
    snapshot: int | None = None
    files_added: int = 0
    files_removed: int = 0
    dead_row_files_added: int = 0
    deltas_left_out: int = 0
    error: Exception | None = None


def publish(
    catalog: Streams,
    table_id: str,
    to: str | None = None,
    partition: Mapping[str, Any] | Partition | None = None,
) -> PublicationResult:
    """See DeltaStreamCatalog.publish."""
    declared = catalog.publication(table_id)
    if to is not None:
        to = str(PublicationTarget.of(to))
    if declared is None and to is None:
        raise InputError(f"table {table_id!r} is not published: name an Iceberg table (iceberg://NAME/ns.table)")
    if declared and to and declared != to:
        raise InputError(f"table {table_id!r} is published to {declared}: stop that first")
    publishing = _Publishing(
        catalog, table_id, PublicationTarget.of(declared or to or ""), catalog.chosen(table_id, partition)
    )
    return publishing.run(declare=declared is None)


def show_compacted(catalog: Streams, table_id: str, target: str, partitions: Sequence[Partition]) -> PublicationResult:
    """Show what a compaction has switched to. Whatever goes wrong is the result's `error`: the next run repairs it."""
    try:
        return _Publishing(catalog, table_id, PublicationTarget.of(target), partitions).run()
    except Exception as error:
        return PublicationResult(table_id, target, error=error)


@dataclass(frozen=True, slots=True)
class _Stream:
    """The active version of a partition, and its columns in the types that Iceberg has for them."""

    partition: Partition
    state: StreamState
    columns: pa.Schema


class _ColumnsChangedError(Exception):
    """A compaction that came meanwhile has columns that the Iceberg table did not get in this run."""


class _Publishing:
    """One run."""

    def __init__(
        self, catalog: Streams, table_id: str, target: PublicationTarget, partitions: Sequence[Partition]
    ) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._target = target
        self._partitions = partitions
        self._keys = catalog.table(table_id).partition_keys
        self._where = catalog.location

    @property
    def _shows(self) -> str:
        return f"{self._where}{TablePaths.of(self._table_id).root}"

    @property
    def _properties(self) -> dict[str, str]:
        """Whoever expires snapshots or drops the table must not delete the compacted files: they are the stream's."""
        return {PUBLICATION: self._shows, "gc.enabled": "false"}

    def run(self, declare: bool = False) -> PublicationResult:
        """Compare and commit. If some streams cannot be shown, the others are, and the first error is raised.

        Before anything is declared, all must be such that they can be shown.
        """
        if not self._where.startswith(("file://", "s3://")) or set(self._where) & set("?#"):
            raise InputError(
                f"{self._where} cannot be read by other engines: a disk or S3, without ? and # in the path"
            )
        for _ in range(_RUNS_MAX):
            with contextlib.suppress(_ColumnsChangedError):
                return self._run(declare)
        raise ConflictError(f"table {self._table_id!r} gets new columns faster than they can be shown")

    def _run(self, declare: bool) -> PublicationResult:
        iceberg = self._target.open()
        streams, errors = self._streams()
        if declare and errors:
            raise errors[0][1]
        columns = self._columns(streams)
        table = self._opened(iceberg)
        if table is not None:
            self._check(table)
            existing = self._existing(table)
            columns = joined([existing, columns], f"Iceberg table {self._target.table_id!r}")
            refuse_widened(existing, columns, self._keys)
        columns = with_partition_keys(columns, self._keys)
        check_partition_keys(columns, self._keys)
        if table is not None or any(stream.state.compacted for stream in streams):
            table = self._prepared(iceberg, table, columns)
        if table is not None:
            result = self._committed(table, columns, declare)
        else:
            result = PublicationResult(self._table_id, str(self._target), deltas_left_out=_waiting(streams))
            if declare:
                self._declare()
        if errors:
            raise errors[0][1]
        return result

    def _declare(self) -> None:
        """It comes before the first commit: a vacuum has to know what the Iceberg table refers to."""
        self._catalog.declare_publication(self._table_id, str(self._target))

    # The streams

    def _streams(self) -> tuple[list[_Stream], list[tuple[Partition, Exception]]]:
        """The streams that can be shown, and why the others cannot."""
        return done_for_each(self._partitions, self._stream, self._catalog.at_once)

    def _stream(self, partition: Partition) -> _Stream:
        state = self._catalog.state(self._table_id, partition, strictly=True)
        if state.compacted is None:
            return _Stream(partition, state, pa.schema([]))
        where = f"table {self._table_id!r}, partition {partition}"
        for file in state.compacted.files:
            if file.content_type is not ContentType.PARQUET:
                raise InputError(f"{where}: {file.path} is {file.content_type.value}: Iceberg readers want Parquet")
        return _Stream(partition, state, shown_columns(state.compacted.schema, where))

    def _columns(self, streams: Iterable[_Stream]) -> pa.Schema:
        return joined((stream.columns for stream in streams), f"table {self._table_id!r}")

    def _wanted(self, columns: pa.Schema) -> tuple[dict[str, dict[str, ShownFile]], int]:
        """The files that are to be shown now, by stream folder and location, and how many deltas are left out."""
        streams, _ = self._streams()
        if not joined([columns, self._columns(streams)], f"table {self._table_id!r}").equals(columns):
            raise _ColumnsChangedError
        wanted = {}
        for stream in streams:
            compacted = stream.state.compacted
            if compacted is None and stream.state.deltas:
                continue  # restated: the former rows stay until it is compacted
            folder = TablePaths.of(self._table_id).stream(stream.partition).root
            values = partition_tuple(stream.partition, columns)
            files = compacted.files if compacted else ()
            shown = [ShownFile(self._where + file.path, file, values) for file in files]
            wanted[folder] = {file.location: file for file in shown}
        return wanted, _waiting(streams)

    # The Iceberg table

    def _opened(self, iceberg: Any) -> IcebergTable | None:
        try:
            return IcebergTable.load(iceberg, self._target.table_id)
        except NotFoundError:
            return None

    def _check(self, table: IcebergTable) -> None:
        """Raise InputError for an Iceberg table that cannot show these rows, or that is somebody else's."""
        metadata, name = table.metadata, f"Iceberg table {self._target.table_id!r}"
        if metadata.format_version != _FORMAT_VERSION:
            raise InputError(
                f"{name} has format version {metadata.format_version}: publications have version {_FORMAT_VERSION}"
            )
        shows = metadata.properties.get(PUBLICATION)
        if shows not in (None, self._shows):
            raise InputError(f"{name} shows {shows}, not {self._shows}: a publication needs a table of its own")
        if shows is None and metadata.branch(MAIN) is not None:
            raise InputError(f"{name} has rows of its own: a publication needs a new or empty table")
        spec = metadata.specs[metadata.default_spec_id]
        names = {number: column.field.name for number, column in metadata.columns.items()}
        fields = [(names.get(part.source_id, "a column that is gone"), part.transform) for part in spec.fields]
        if fields != [(key, "identity") for key in self._keys]:
            by = ", ".join(f"{transform}({column})" for column, transform in fields) or "nothing"
            raise InputError(f"{name} is partitioned by {by}, the delta table by {list(self._keys)}")
        refuse_required(metadata.schema, self._target.table_id)

    def _existing(self, table: IcebergTable) -> pa.Schema:
        return shown_columns(table.metadata.schema, f"Iceberg table {self._target.table_id!r}")

    def _prepared(self, iceberg: Any, table: IcebergTable | None, columns: pa.Schema) -> IcebergTable:
        """The Iceberg table with all the columns."""
        if table is None:
            version = {"format-version": str(_FORMAT_VERSION)}
            IcebergTable.create(iceberg, self._target.table_id, columns, self._keys, self._properties | version)
            table = IcebergTable.load(iceberg, self._target.table_id)
            self._check(table)  # somebody else may have created it
        known = table.metadata.properties
        if self._existing(table).equals(columns) and (self._properties.items() | known.items()) == known.items():
            return table
        return table.with_columns(columns, self._properties)

    def _committed(self, table: IcebergTable, columns: pa.Schema, declare: bool) -> PublicationResult:
        store = table.store
        files = ListedFiles(self._catalog.store, store, table)
        if declare:
            wanted, _ = self._wanted(columns)
            files.data(tuple(file for stream in wanted.values() for file in stream.values()))  # refuses unfit ones
            self._declare()
        committer = Committer(store, StateReader(store), MAIN, f"publication-{uuid.uuid4().hex[:8]}")

        def propose(head: TableState) -> Proposal[_Proposed]:
            """What is missing on this head. It reads the streams again, after the head."""
            wanted, waiting = self._wanted(columns)
            found = difference(head, self._where, wanted)
            data, dead = files.data(found.data), files.dead(found.dead)
            added = tuple(addition(file) for file in (*data, *dead))
            return Proposal(_operation(found), found.removed, added, _Proposed(found, waiting))

        try:
            done = committer.commit(table, propose)
        except OutcomeUnknownError:
            raise  # the snapshot may be there, so its files stay
        except Exception:
            files.discard()
            raise
        found = done.outcome.found
        files.discard(kept=found.dead)
        return PublicationResult(
            self._table_id,
            str(self._target),
            done.snapshot.snapshot_id if done.snapshot else None,
            len(found.data),
            sum(entry.file.content is Content.DATA for entry in found.removed),
            len(found.dead),
            done.outcome.deltas_left_out,
        )


@dataclass(frozen=True, slots=True)
class _Proposed:
    """What an attempt would change, and the deltas that were not compacted then."""

    found: Difference
    deltas_left_out: int


def _operation(found: Difference) -> str:
    """The word for the snapshot in the spec. Only one without delete files may be an append."""
    if found.dead or (found.data and found.removed):
        return OVERWRITE
    return DELETE if found.removed else APPEND


def _waiting(streams: Iterable[_Stream]) -> int:
    """The deltas that are not compacted yet."""
    return sum(len(stream.state.deltas) for stream in streams)
