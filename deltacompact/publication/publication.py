"""Declares where a table is published, and makes the table there show the compacted rows of the streams.

    orders, day=1     version 4-a1…: a, b, d        day=2     version 2-77…: c
    publish           declare; create the table, once there are columns, or check it; add columns
                      head: a, b, c  ->  d is missing  ->  one commit that adds d
    publish           nothing is missing: no commit

The switch of a stream and the commit of the table that shows it are two commits. After a crash between them, that table
shows the old rows until the next run. Every attempt reads the head first and the streams afterwards, and commits on
that head only. So no commit shows an older version than an earlier commit did.

Only compacted rows are shown. After a partition was restated, its old rows are shown until it is compacted. A new
publication does not take them over from a stopped one: since then a vacuum may have deleted their files, or the table
been dropped and made anew.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.data_file import FarValues
from deltacompact.base.errors import ConflictError, InputError, NotFoundError, SchemaError
from deltacompact.base.model import ContentType, OperationType, Partition, PartitionLike, Readers
from deltacompact.base.partitions import done_for_each
from deltacompact.base.wording import counted, one_line
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.snapshots import coarse_files
from deltacompact.publication.columns import (
    check_partition_keys,
    joined,
    partition_values,
    refuse_widened,
)
from deltacompact.publication.port import FilesToShow, PublicationTarget, PublishedTable, ShownFile, Source
from deltacompact.publication.targets import target_of
from deltacompact.tabular import partition_texts, schemas
from deltacompact.tabular.coarse_times import beyond_micros, needs_micros

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_RUNS_MAX = 10


@dataclass(frozen=True, slots=True, repr=False)
class PublicationResult:
    """What a run has changed in the table `target`.

    snapshot                the id of the Iceberg snapshot, or the version of the Delta table. None: nothing to change
    dead_row_files_added    position delete files, or deletion vectors
    deltas_left_out         deltas that are not compacted yet, so the table does not show them
    error                   why a compaction could not publish its result
    awaits_columns          the table is not created yet, because no compacted row has given it columns
    coarse_files            files with times in seconds or milliseconds: Spark's readers of Iceberg lose rows by them
    """

    table_id: str
    target: str
    snapshot: int | None = None
    files_added: int = 0
    files_removed: int = 0
    dead_row_files_added: int = 0
    deltas_left_out: int = 0
    error: Exception | None = None
    awaits_columns: bool = False
    coarse_files: int = 0

    def __repr__(self) -> str:
        """The line that `publish` prints."""
        if self.error is not None:
            # What is wrong with the request stays so: the error says what to do.
            when = "" if isinstance(self.error, InputError) else " yet, the next run will"
            return f"{self.target} does not show it{when}: {one_line(self.error)}"
        left_out = f"; {counted(self.deltas_left_out, 'delta')} not compacted yet" if self.deltas_left_out else ""
        if self.coarse_files:
            files = f"{counted(self.coarse_files, 'file')} with times in seconds or milliseconds"
            left_out += f"; {files}, of which filters in Spark lose rows: run compact --purge"
        if self.awaits_columns:
            return f"{self.target}: the first compacted rows will create it{left_out}"
        if self.snapshot is None:
            return f"{self.target}: nothing to change{left_out}"
        commit = "version" if self.target.startswith("delta:") else "snapshot"
        files = f"{counted(self.files_added, 'file')} added, {self.files_removed:,} removed"
        dead = f"{counted(self.dead_row_files_added, 'file')} of dead rows"
        return f"{self.target}: {commit} {self.snapshot}, {files}, {dead}{left_out}"


def publish(
    catalog: Streams,
    table_id: str,
    to: str | None = None,
    partition: PartitionLike = None,
) -> PublicationResult:
    """See DeltaStreamTable.publish."""
    declared = catalog.publication(table_id)
    if to is not None:
        to = str(target_of(to))
    if declared is None and to is None:
        raise InputError(
            f"table {table_id!r} is not published: name an Iceberg table (iceberg://NAME/ns.table) or a folder (delta://PATH)"
        )
    if declared and to and declared != to:
        raise InputError(f"table {table_id!r} is published to {declared}: stop that first (publish --stop)")
    declare = declared is None
    one = None if partition is None else catalog.chosen(table_id, partition)
    return _Publishing(catalog, table_id, target_of(declared or to or ""), None if declare else one).run(declare)


def show_compacted(catalog: Streams, table_id: str, target: str, partitions: Sequence[Partition]) -> PublicationResult:
    """Show the versions that a compaction has switched to. An exception becomes the result's `error`: the next run
    repairs it."""
    try:
        return _Publishing(catalog, table_id, target_of(target), partitions).run()
    except Exception as error:
        return PublicationResult(table_id, target, error=error)


@dataclass(frozen=True, slots=True)
class _ShownStream:
    """The active version of a partition, and its columns in the types of the target."""

    partition: Partition
    state: StreamState
    columns: pa.Schema


def _is_read_by_others(where: str) -> bool:
    """Whether other engines find files below this URI. On S3 they refuse empty names, or follow `.` and `..`."""
    scheme, _, path = where.partition("://")
    if scheme == "s3" and not {"", ".", ".."}.isdisjoint(path.rstrip("/").split("/")):
        return False
    return scheme in ("file", "s3") and not set(path) & set("?#") and min(path) >= " "


class _ColumnsChangedError(Exception):
    """A compaction came meanwhile, with columns that the target did not get in this run."""


class _Publishing:
    """One run. `partitions`: None for all."""

    def __init__(
        self, catalog: Streams, table_id: str, target: PublicationTarget, partitions: Sequence[Partition] | None
    ) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._target = target
        self._partitions = partitions
        self._keys = catalog.described(table_id).partition_keys
        self._where = catalog.location

    @property
    def _source(self) -> Source:
        root, now_s = TablePaths.of(self._table_id).root, self._catalog.clock()
        return Source(self._catalog.store, self._where, root, tuple(self._keys), now_s)

    def run(self, declare: bool = False) -> PublicationResult:
        """Compare and commit. If some streams cannot be shown, show the others, and then raise the first error.

        `declare`: the publication is new. Then nothing is declared unless all streams can be shown.
        """
        if not _is_read_by_others(self._where):
            raise InputError(
                f"{self._where!r} cannot be read by other engines: a disk or S3, without ?, # and line breaks in the "
                "path, and on S3 without //, /./ and /../"
            )
        for _ in range(_RUNS_MAX):
            with contextlib.suppress(_ColumnsChangedError):
                return self._run(declare)
        raise ConflictError(f"table {self._table_id!r} gets new columns faster than they can be shown")

    def _run(self, declare: bool) -> PublicationResult:
        table = self._target.open(self._source)
        if table.shows_nothing:  # somebody may have dropped it: then the other partitions are missing, too
            self._partitions = None
        partitions = self._listed()
        streams, errors = self._streams(partitions)
        if declare and errors:
            raise errors[0][1]
        if declare:
            self._check_waiting(streams)
        columns, existing = self._columns(streams), table.columns
        # Deletes alone leave no columns, and no reader opens a Delta table without columns.
        awaits_columns = existing is None and not columns.names
        if existing is not None:
            try:
                columns = joined([existing, columns], f"{self._target.kind} table {self._target}")
                refuse_widened(existing, columns, self._keys, self._target.kind)
            except SchemaError as error:
                if declare:
                    raise
                raise SchemaError(
                    f"{error}: stop the publication, drop that table without purge, and publish again"
                ) from None
        columns = partition_texts.with_partition_keys(columns, self._keys)
        check_partition_keys(columns, self._keys)
        errors += self._unfit(streams, columns)
        if declare and errors:
            raise errors[0][1]
        if awaits_columns:
            waiting = _waiting(streams)
            result = PublicationResult(self._table_id, str(self._target), deltas_left_out=waiting, awaits_columns=True)
            if declare:
                self._declare()
        else:
            compacted = (stream.state.compacted for stream in streams)
            table.prepare(columns, (file.schema for version in compacted if version for file in version.files))
            result = self._committed(table, partitions, columns, declare)
        if errors:
            raise errors[0][1]
        if not needs_micros(str(self._target)):
            return result
        shown = [stream.state.compacted for stream in streams if stream.state.compacted]
        return replace(result, coarse_files=sum(len(coarse_files(version)) for version in shown))

    def _committed(
        self, table: PublishedTable, partitions: Sequence[Partition], columns: pa.Schema, declare: bool
    ) -> PublicationResult:
        if declare:
            table.check(self._wanted(partitions, columns, declare).files)  # refuses unfit files
            self._declare()
            partitions = self._listed()  # a compaction that began before does not show what it brings
        shown = table.show(lambda: self._wanted(partitions, columns, declare))
        return PublicationResult(
            self._table_id,
            str(self._target),
            shown.snapshot,
            shown.files_added,
            shown.files_removed,
            shown.dead_row_files_added,
            shown.deltas_left_out,
        )

    def _declare(self) -> None:
        """Declare the publication. This comes before the first commit, because a vacuum must know what the target
        needs.

        Readers of the target honour its deletes. If lists of plain files were published, other readers may not.
        """
        lists = self._catalog.store.list(TablePaths.of(self._table_id).lists)
        readers = Readers.VECTORS if next(lists, None) is None else None
        self._catalog.declare_publication(self._table_id, str(self._target), readers)

    # The streams

    def _listed(self) -> Sequence[Partition]:
        return self._catalog.partitions(self._table_id) if self._partitions is None else self._partitions

    def _streams(self, partitions: Sequence[Partition]) -> tuple[list[_ShownStream], list[tuple[Partition, Exception]]]:
        """The streams that can be shown, and why the others cannot."""
        found, errors = done_for_each(partitions, self._stream, self._catalog.at_once)
        return [stream for stream in found if stream is not None], errors

    def _stream(self, partition: Partition) -> _ShownStream | None:
        """None: the table is a destination, and this partition of its source was never compacted into it."""
        try:
            state = self._catalog.state(self._table_id, partition, strictly=True)
        except NotFoundError:
            return None
        if state.compacted is None:
            return _ShownStream(partition, state, pa.schema([]))
        where = self._where_is(partition)
        for file in state.compacted.files:
            if file.content_type is not ContentType.PARQUET:
                raise InputError(
                    f"{where}: {file.path} is {file.content_type.value}: {self._target.kind} readers want Parquet"
                )
        columns, types = pa.schema(schemas.decided_types(state.compacted.schema)), self._target.types
        try:
            types.check(columns, where)
        except SchemaError as error:
            raise SchemaError(f"{error}: {self._remedy(columns)}") from None
        self._check_times(columns, state.compacted.far, f"{where}: ")
        if state.compacted.files:
            self._check_values(partition, columns)
        return _ShownStream(partition, state, types.columns(columns, where))

    def _remedy(self, columns: pa.Schema) -> str:
        """What to do about columns that cannot be shown. No restatement is without a key."""
        keys = self._catalog.described(self._table_id).keys
        names = {*self._keys, *((*keys.primary, *(sort.name for sort in keys.sort)) if keys else ())}
        try:
            self._target.types.check(pa.schema([field for field in columns if field.name in names]), self._table_id)
        except SchemaError:
            return "it is a key: restate the partition with another type of it, or append the rows to a new table"
        return "restate the partition without it (catalog.restate)"

    def _check_waiting(self, streams: Iterable[_ShownStream]) -> None:
        """Raise SchemaError for columns of deltas that could not be shown once they are compacted."""
        for stream in streams:
            upserts = [delta for delta in stream.state.deltas if delta.operation is OperationType.UPSERT]
            files = [file for delta in upserts for file in delta.files if file.rows]
            columns = stream.columns
            with contextlib.suppress(SchemaError):  # of a delta that no compaction can fold: that will name it
                columns = schemas.union(files, columns)
            self._target.types.check(columns, self._where_is(stream.partition))
            for file in files:
                self._check_times(file.schema, file.far, f"{file.path}: ")
            if files:
                self._check_values(stream.partition, columns)

    def _unfit(self, streams: Iterable[_ShownStream], columns: pa.Schema) -> list[tuple[Partition, Exception]]:
        """The partitions with values that do not fit the table's columns of their names, and why."""
        filled = [stream.partition for stream in streams if stream.state.compacted and stream.state.compacted.files]
        return done_for_each(filled, lambda partition: self._check_values(partition, columns))[1]

    def _check_times(self, columns: pa.Schema, far: FarValues | None, where: str) -> None:
        """Raise SchemaError for times that the target does not hold."""
        if needs_micros(str(self._target)) and (beyond := beyond_micros(columns, far or ())):
            raise SchemaError(f"{where}{beyond}, which Iceberg does not hold: restate the partition without it")

    def _check_values(self, partition: Partition, columns: pa.Schema) -> None:
        """Raise SchemaError for values of a partition that the target cannot have, or in these columns."""
        try:
            self._target.types.check_partition(partition)
            partition_texts.check_fit(partition, columns)
        except SchemaError as error:
            remedy = "append its rows to another partition, and empty this one (catalog.restate)"
            raise SchemaError(f"{self._where_is(partition)}: {error}: {remedy}") from None

    def _where_is(self, partition: Partition) -> str:
        return f"table {self._table_id!r}, partition {partition}"

    def _columns(self, streams: Iterable[_ShownStream]) -> pa.Schema:
        try:
            return joined((stream.columns for stream in streams), f"table {self._table_id!r}")
        except SchemaError as error:  # binaries of a fixed size here, and others there: no reader takes both
            raise SchemaError(f"{error} in other partitions: restate them with one type (catalog.restate)") from None

    def _wanted(self, partitions: Sequence[Partition], columns: pa.Schema, declare: bool) -> FilesToShow:
        """The files of these partitions as they are now. Called after the head was read."""
        paths = TablePaths.of(self._table_id)
        streams, _ = self._streams(partitions)
        if not joined([columns, self._columns(streams)], f"table {self._table_id!r}").equals(columns):
            raise _ColumnsChangedError
        wanted, versions = {}, {}
        unfit = {partition for partition, _ in self._unfit(streams, columns)}
        for stream in streams:
            if stream.partition in unfit or (stream.state.is_restated and not declare):
                continue  # restated: the old rows are shown until it is compacted
            folder = paths.stream(stream.partition).root
            files = stream.state.compacted.files if stream.state.compacted else ()
            values = partition_values(stream.partition, columns) if files else ()
            shown = [ShownFile(self._where + file.path, file, values) for file in files]
            wanted[folder] = {file.location: file for file in shown}
            versions[folder] = stream.state.number

        @functools.cache
        def known() -> frozenset[str]:
            """Called only if the head shows streams of other partitions, because it lists the table's.

            It lists them after the head was read: another run may have shown a new partition before.
            """
            return frozenset(paths.stream(partition).root for partition in self._catalog.partitions(self._table_id))

        return FilesToShow(wanted, versions, _waiting(streams), known)


def _waiting(streams: Iterable[_ShownStream]) -> int:
    """The number of deltas that are not compacted yet."""
    return sum(len(stream.state.deltas) for stream in streams)
