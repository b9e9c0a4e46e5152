"""The default catalog: delta streams as objects in a store, and nothing else.

    catalog = open_catalog("s3://lake/tables")
    catalog.create_table("orders", partition_keys=["day"], primary_keys=["id"])
    catalog.append("orders", rows, partition={"day": "1995-04-03"})         one commit, one delta, one file
    catalog.read("orders")                                                  the live rows

Data is written first, under names used once; the log entry that names it makes it visible.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import (
    ConflictError,
    CorruptionError,
    DeltaCompactError,
    InputError,
    NotFoundError,
    PositionError,
    SchemaError,
)
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import (
    FORMAT_VERSION,
    INT64_MAX,
    Commit,
    ContentType,
    DataFile,
    Delta,
    Direction,
    OperationType,
    Partition,
    SortKey,
    Table,
    TableKeys,
    Token,
    whole_number,
)
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.base.settings import at_least
from deltacompact.catalog.delta_stream.certain_put import Effect, put_certainly, telling_interrupts
from deltacompact.catalog.delta_stream.entries import Committed, Entry, Opened, check_format, dump
from deltacompact.catalog.delta_stream.incoming import incoming, write_rows
from deltacompact.catalog.delta_stream.log import LOG_LIMITS, LogLimits, StreamLog
from deltacompact.catalog.delta_stream.paths import (
    TablePaths,
    check_path,
    refuse_files_of_other_streams,
    table_name,
    table_root,
)
from deltacompact.catalog.delta_stream.shape import StreamShape, shape_of
from deltacompact.catalog.delta_stream.sources import canonical_name
from deltacompact.catalog.delta_stream.state import StreamState
from deltacompact.catalog.delta_stream.tokens import Known
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured_file
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import as_uri, copy_into, is_uri, open_store
from deltacompact.storage.s3 import S3Settings
from deltacompact.tabular import files as tabular
from deltacompact.tabular import formats, schemas, stamps
from deltacompact.tabular.row_groups import WriteOptions

TokenLike = Token | str | tuple[str, int] | None
"""A token as callers give it: a name, or a producer and the number of its batch."""
_POSITION_AHEAD_MAX_MS = 365 * 24 * 3600 * 1000
CATALOG_VARIABLE = "DELTACOMPACT_CATALOG"
VACUUM_AGE_MIN_S = 3 * 24 * 3600
"""Objects younger than this are never vacuumed (seconds); writers refuse to commit files older than half of it."""


def open_catalog(uri: str | os.PathLike[str] | None = None, *, s3: S3Settings | None = None) -> DeltaStreamCatalog:
    """The catalog at "file:///path", "s3://bucket/prefix" or a local path; default: $DELTACOMPACT_CATALOG."""
    uri = uri if uri is not None else os.environ.get(CATALOG_VARIABLE)
    if s3 is not None:
        expect.instance("s3", s3, S3Settings)
    if uri is None or uri == "":
        raise InputError(f"no catalog: give its URI or set {CATALOG_VARIABLE}")
    expect.path("the catalog's URI", uri)
    return DeltaStreamCatalog(open_store(uri, s3))


class DeltaStreamCatalog:
    """Tables of partition streams below the root of a store. Safe to use from several threads and processes."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Callable[[], float] = time.time,
        log_limits: LogLimits = LOG_LIMITS,
        read_limits: ReadLimits = READ_LIMITS,
    ) -> None:
        self.store = store
        self.clock = clock
        self.log_limits = log_limits
        self.read_limits = read_limits
        self._logs: dict[tuple[str, Partition], StreamLog] = {}
        self._tables: dict[str, Table] = {}
        self._shapes: dict[tuple[str, Partition], StreamShape] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": {}, "_tables": {}, "_shapes": {}}

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def where(self) -> str:
        """The URI as people read it: a local folder as its path."""
        return unquote(self.uri.removeprefix("file://")) if self.uri.startswith("file://") else self.uri

    # Tables

    def create_table(
        self,
        table_id: str,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        sort_keys: Sequence[SortKey | str | Sequence[str]] = (),
        *,
        tombstone_retention: int | None = None,
    ) -> Table:
        """Create a table. Keys may be declared here, else the first compaction does.

        `tombstone_retention` in stream positions: for how long a keyed delete blocks older upserts (None: for ever).
        Raises ConflictError where the table exists and was declared otherwise.
        """
        partition_keys = expect.names("partition_keys", partition_keys)
        for place, name in enumerate(partition_keys):
            if not name or name in partition_keys[:place]:
                raise InputError(f"partition key {name!r} is empty or named twice")
        primary_keys = () if primary_keys is None else expect.names("primary_keys", primary_keys)
        if sort_keys and not primary_keys:
            raise InputError("sort keys without primary keys: declare both or none")
        if tombstone_retention is not None and at_least("tombstone_retention", tombstone_retention, 0) > INT64_MAX:
            raise InputError(f"tombstone_retention is {tombstone_retention}, {INT64_MAX} at most")
        keys = TableKeys.of(primary_keys, sort_keys) if primary_keys else None
        check_path(f"table {str(table_id)[:40]!r}", table_root(table_id))
        table = Table(table_id, partition_keys, keys, tombstone_retention)
        paths = TablePaths.of(table_id)
        effect = Effect(f"table {table_id!r}", "created", "repeat the command")
        with telling_interrupts():
            created = put_certainly(self.store, paths.table, dump(_table_document(table)), effect)
        if not created:
            existing = self.table(table_id)
            if replace(existing, source_table_id=None, holds_streams=False) != table:
                raise ConflictError(f"table {table_id!r} exists and is declared otherwise")
        return table

    def table(self, table_id: str) -> Table:
        """The table as declared, with the keys of its first compaction where none were. Raises NotFoundError."""
        paths = TablePaths.of(table_id)
        known = self._tables.get(table_id)
        if known is None:
            try:
                document = _document(self.store.get(paths.table), paths.table)
            except NotFoundError as error:
                if "bucket" in str(error):
                    raise
                raise NotFoundError(f"table {table_id!r} does not exist in {self.where}") from None
            known = _table_from(table_id, document)
            self._tables[table_id] = known
        if known.keys is None:
            known = known.with_keys(self._first_compaction_keys(paths))
        if known.source_table_id is None and not known.holds_streams:
            known = self._with_source(known)
        self._tables[table_id] = known  # what is declared stays; what is not is asked for again
        return known

    def tables(self) -> list[str]:
        """Names of all tables."""
        return [table_name(folder) for folder in self.store.folders() if self._is_table(folder)]

    def partitions(self, table_id: str) -> list[Partition]:
        """The partitions that hold a stream."""
        table, paths = self.table(table_id), TablePaths.of(table_id)
        marks = [paths.partition_of(stat.path, table.partition_keys) for stat in self.store.list(paths.partitions)]
        marked = [partition for partition in marks if partition is not None]
        return [each for each in marked if self.log(table_id, each).exists()]  # a writer may have died in between

    def partition(self, table_id: str, given: Mapping[str, Any] | Partition | None) -> Partition:
        """A partition that exists. Raises NotFoundError."""
        partition = Partition.of(self.table(table_id).partition_keys, given)
        if not self.log(table_id, partition).exists():
            raise NotFoundError(f"table {table_id!r} has no partition {partition}")
        return partition

    def chosen(self, table_id: str, partition: Mapping[str, Any] | Partition | None) -> list[Partition]:
        """All partitions, or the one that is named."""
        if partition is None:
            return self.partitions(table_id)
        if isinstance(partition, Partition):
            return [partition]
        return [self.partition(table_id, partition)]

    def declare_keys(self, table_id: str, keys: TableKeys | None) -> TableKeys:
        """The table's keys; `keys` become them where it had none. Raises InputError where others are in force."""
        table, paths = self.table(table_id), TablePaths.of(table_id)
        if table.keys is None:
            if keys is None:
                raise InputError(f"table {table_id!r} has no primary keys yet: name them")
            self.store.put_if_absent(paths.keys, dump({"format": FORMAT_VERSION, **_keys_document(keys)}))
            table = self.table(table_id)
        assert table.keys is not None
        check_keys(table, keys)
        return table.keys

    def declare_source(self, table_id: str, source_table_id: str | None) -> None:
        """Make the table a destination of another for ever, or (None) one that holds streams of its own.

        Raises InputError where it is something else already.
        """
        table = self._tables.get(table_id) or self.table(table_id)  # as it was last read: the put decides
        self.check_source(table, source_table_id)
        if table.source_table_id is None and not table.holds_streams:
            document = dump({"format": FORMAT_VERSION, "source_table_id": source_table_id})
            if put_certainly(self.store, TablePaths.of(table_id).source, document):
                self._tables[table_id] = _of_source(table, source_table_id)
            else:
                self.check_source(self.table(table_id), source_table_id)

    def check_source(self, table: Table, source_table_id: str | None) -> None:
        """Refuse a table that cannot be a destination of this source, or (None) hold streams of its own."""
        holds_streams = table.holds_streams
        if source_table_id and not table.source_table_id and not holds_streams and self.partitions(table.table_id):
            # Whoever begins a stream puts source.json first: so it is there by now, or release 0.1 began the stream.
            table = self.table(table.table_id)
            holds_streams = table.source_table_id is None
        if table.source_table_id not in (None, source_table_id):
            assert table.source_table_id is not None
            if source_table_id is None:
                raise _is_destination(table.table_id, table.source_table_id)
            raise InputError(
                f"table {table.table_id!r} is the destination of {table.source_table_id!r}, not of {source_table_id!r}"
            )
        if source_table_id and holds_streams:
            raise InputError(
                f"table {table.table_id!r} holds data of its own: it cannot be a destination of {source_table_id!r}"
            )

    # Streams

    def log(self, table_id: str, partition: Partition) -> StreamLog:
        """The log of a partition stream, whether or not it was begun."""
        key = (table_id, partition)
        if key not in self._logs:
            paths = TablePaths.of(table_id).stream(partition)
            self._logs[key] = StreamLog(self.store, paths, self.log_limits)
        return self._logs[key]

    def state(self, table_id: str, partition: Partition, strictly: bool = False) -> StreamState:
        """The active version of a partition stream; `strictly` as of StreamLog.active. Raises NotFoundError."""
        try:
            return self.log(table_id, partition).active(strictly)
        except NotFoundError as error:
            if self.log(table_id, partition).exists():
                raise CorruptionError(str(error)) from error
            raise NotFoundError(f"table {table_id!r} has no partition {partition}") from None

    def begin_stream(self, table_id: str, partition: Partition, source_table_id: str | None = None) -> StreamLog:
        """The log of a partition stream, begun if need be; `source_table_id` where the table is a destination.

        Raises InputError where the table holds streams of the other sort.
        """
        log = self.log(table_id, partition)
        if not log.exists():
            check_path(f"table {table_id!r}, partition {str(partition)[:80]}", log.paths.root)
            # The mark comes first: a mark without a stream is an empty partition, a stream without a mark is lost.
            self.store.put_if_absent(TablePaths.of(table_id).partition_mark(partition), b"")
            self.declare_source(table_id, source_table_id)
            log.begin()
        return log

    # Writing

    def append(
        self,
        table_id: str,
        tables: Any,
        partition: Mapping[str, Any] | Partition | None = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        force_position: bool = False,
    ) -> Delta:
        """Commit one delta: `tables` is anything that holds rows (see incoming.py), or a list of such: one file each.

        Returns the delta, whose `committed` says if this call did it. `token` is a name, or a producer and the number
        of its batch: ("etl", 7). A token that is known is skipped. Raises OutcomeUnknownError where the delta may be
        there or not: repeat it with the same token. Raises PositionError where `stream_position` (int64) is not
        greater than all before it, or more than a year ahead of the clock (milliseconds since the epoch) without
        `force_position`, and SchemaError where the rows do not fit those of the stream.
        """
        known_by = Token.of(token)
        stream_position = self.checked_position(stream_position, 1, force_position)
        place, kind, keys = self._appending(table_id, partition, operation)
        begun_s = self.clock()
        if (known := self._known(table_id, place, known_by, kind)) is not None:
            return known
        paths, options = TablePaths.of(table_id).stream(place), WriteOptions()

        def written() -> Iterator[DataFile]:
            for rows in incoming(tables):
                path = paths.fresh("data", formats.suffix_of(options.content_type))
                self._check_fits(table_id, place, [(kind, [rows.described(options.content_type)])])
                yield write_rows(self.store, path, rows, place, options, keys)

        return self._commit_written(
            table_id, place, kind, written(), stream_position, known_by, begun_s, force_position
        )

    def append_files(
        self,
        table_id: str,
        sources: Sequence[str | os.PathLike[str]],
        partition: Mapping[str, Any] | Partition | None = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        force_position: bool = False,
    ) -> Delta:
        """Commit files (local paths or URIs) as one delta: copied into the catalog, or with `reference` left in place.

        CSV and JSON columns take the types that the stream's schema knows. A file that is left in place must stay as
        it is: whoever reads it later refuses another one.
        """
        if not sources:
            raise InputError("there is nothing to append: name at least one file")
        known_by = Token.of(token)
        stream_position = self.checked_position(stream_position, 1, force_position)
        place, kind, keys = self._appending(table_id, partition, operation)
        begun_s = self.clock()
        if (known := self._known(table_id, place, known_by, kind)) is not None:
            return known
        types = self._known_types(table_id, place)
        inspected = []
        for source in _distinct(sources):
            format_ = content_type or formats.content_type_of(source)
            described = tabular.inspect(
                self.store, _absolute(source), format_, types, place, managed=False, hashed=reference
            )
            if reference:
                refuse_files_of_other_streams(self.store, described.path, TablePaths.of(table_id).stream(place))
            inspected.append(measured_file(self.store, replace(described, name=_readable(source)), keys))
        self._check_fits(table_id, place, [(kind, inspected)])
        # Every file was looked at before anything is written.
        taken = (
            iter(inspected) if reference else (self._copied(table_id, place, file, types, keys) for file in inspected)
        )
        return self._commit_written(table_id, place, kind, taken, stream_position, known_by, begun_s, force_position)

    def commit(
        self,
        table_id: str,
        partition: Partition,
        deltas: Sequence[tuple[OperationType, Sequence[DataFile]]],
        stream_position: int | None = None,
        token: TokenLike = None,
        begun_s: float | None = None,
        *,
        force_position: bool = False,
    ) -> tuple[Delta, ...]:
        """Commit written files as one entry; its deltas (a CDC batch: deletes, then upserts) become visible at once.

        `stream_position` is that of the first delta, the next ones follow it. `begun_s` says when the files were
        begun (store's clock, seconds): too old files are refused, a vacuum may have seen them as garbage. Raises
        InputError for a commit without deltas, and for a token that stands for another operation. A delta without files
        is legal: its position and token count.
        """
        if not deltas:
            raise InputError("a commit needs at least one delta")
        known_by = Token.of(token)
        stream_position = self.checked_position(stream_position, len(deltas), force_position)
        self._check_fits(table_id, partition, deltas)
        commit_id = uuid.uuid4().hex
        kinds = tuple(kind for kind, _ in deltas)
        outcome: list[tuple[Delta, ...]] = []

        def decide(state: StreamState) -> Entry | None:
            outcome.clear()
            if known_by and (known := state.known(known_by)):
                outcome.append(_skipped(table_id, known_by, known, kinds))
                return None
            if state.compacted and state.compacted.source_table_id != table_id:
                raise _is_destination(table_id, state.compacted.source_table_id)
            self._check_fits(table_id, partition, deltas, state)
            self.check_age(begun_s)
            first = self._position(stream_position, state.last_position)
            if first > INT64_MAX - len(deltas) + 1:
                raise PositionError(f"no stream position follows {state.last_position}, the last one of the stream")
            positioned = tuple(
                Delta(
                    first + place, kind, tuple(replace(file, number=DeltaFileNumber(n)) for n, file in enumerate(files))
                )
                for place, (kind, files) in enumerate(deltas)
            )
            outcome.append(positioned)
            return Committed(Commit(commit_id, int(self.clock() * 1000), positioned, known_by))

        with telling_interrupts():
            self.begin_stream(table_id, partition).extend(decide)
            return outcome[0]

    def restate(self, table_id: str, tables: Any, partition: Mapping[str, Any] | None = None) -> StreamState:
        """Replace a partition's contents by these rows. Deltas that are committed meanwhile stay, on top of them."""
        place, kind, keys = self._appending(table_id, partition, "upsert")
        given = incoming(tables)
        first = next(given, None)
        if first is None:
            raise InputError("a restatement needs at least one table: one of zero rows empties the partition")
        log = self.begin_stream(table_id, place)
        base, begun_s = log.active(strictly=True), self.clock()
        paths, options = TablePaths.of(table_id).stream(place), WriteOptions()
        files: list[DataFile] = []
        shape = StreamShape.of(self.table(table_id))
        with self._discarding(files, BaseException):
            for number, rows in enumerate(chain((first,), given)):
                shape = shape.with_file(kind, rows.described(options.content_type))
                written = write_rows(self.store, paths.fresh("data", ".parquet"), rows, place, options, keys)
                files.append(replace(written, number=DeltaFileNumber(number)))
        now_ms = int(self.clock() * 1000)
        # Below all that is carried over on top of it, at whatever position.
        position = -INT64_MAX - 1 if base.last_position is None else base.last_position
        lineage = uuid.uuid4().hex
        number = base.opened.number + 1
        opened = Opened(number, base.version, lineage, base.tokens_inherited(now_ms), position, now_ms)
        delta = Delta(position, OperationType.UPSERT, tuple(files))
        successor = log.write_version(number, [opened, Committed(Commit(lineage, now_ms, (delta,)))])

        def check(state: StreamState) -> None:
            if state.sealed:
                raise ConflictError(f"table {table_id!r}, partition {place}: compacted or restated meanwhile")
            self.check_age(begun_s)

        with telling_interrupts():
            return log.release(base, successor, check, now_ms)

    # Reading

    def read(
        self,
        table_id: str,
        partition: Mapping[str, Any] | Partition | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        version: str | None = None,
    ) -> pa.Table:
        """The live rows of one partition, or of all: one snapshot for each partition.

        Of the active version, or of one that is still retained (name or number). `filter` is an expression of
        pyarrow.compute, or a list of (column, operator, value) of which only the columns are read.
        """
        from deltacompact.catalog.delta_stream.scan import Scan, read_table

        return read_table(self, Scan(table_id, partition, columns, filter, version))

    def scan(
        self,
        table_id: str,
        partition: Mapping[str, Any] | Partition | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        version: str | None = None,
    ) -> pa.RecordBatchReader:
        """The same batch by batch, for tables that do not fit the memory."""
        from deltacompact.catalog.delta_stream.scan import Scan, scan_table

        return scan_table(self, Scan(table_id, partition, columns, filter, version))

    # Inside

    def _appending(
        self, table_id: str, partition: Mapping[str, Any] | Partition | None, operation: str
    ) -> tuple[Partition, OperationType, TableKeys | None]:
        table = self.table(table_id)
        if table.source_table_id is not None:
            raise _is_destination(table_id, table.source_table_id)
        try:
            kind = OperationType(str(operation).lower())
        except ValueError:
            raise InputError(f"operation {operation!r} is neither 'upsert' nor 'delete'") from None
        return Partition.of(table.partition_keys, partition), kind, table.keys

    def _known(self, table_id: str, partition: Partition, token: Token | None, kind: OperationType) -> Delta | None:
        """What the token committed, without writing the data first."""
        log = self.log(table_id, partition)
        if token is None or not log.exists():
            return None
        known = log.active().known(token)
        return None if known is None else _skipped(table_id, token, known, (kind,))[0]

    def _known_types(self, table_id: str, partition: Partition) -> pa.Schema | None:
        log = self.log(table_id, partition)
        if not log.exists():
            return None
        return self._shape(table_id, partition, log.active()).columns

    def _shape(self, table_id: str, partition: Partition, state: StreamState | None) -> StreamShape:
        """The shape of a stream's state; of None, as far as this process remembers it without a request."""
        table = self._tables.get(table_id) or self.table(table_id)
        known = self._shapes.get((table_id, partition))
        if state is None:
            return known if known is not None and known.keys == table.keys else StreamShape.of(table)
        if table.keys is None and state.compacted:
            table = self.table(table_id)  # compacted since this process asked for the keys

        def indexed() -> Encoding:
            assert state.compacted is not None
            return read_manifest(self.store, state.index or state.compacted.index).encoding

        shape = shape_of(table, state, known, indexed)
        self._shapes[table_id, partition] = shape
        return shape

    def _check_fits(
        self,
        table_id: str,
        partition: Partition,
        deltas: Sequence[tuple[OperationType, Sequence[DataFile]]],
        state: StreamState | None = None,
    ) -> None:
        """Refuse files that the stream could not be folded or read with, before the log names them."""
        self._shape(table_id, partition, state).with_files(deltas)

    def _copied(
        self, table_id: str, partition: Partition, source: DataFile, types: pa.Schema | None, keys: TableKeys | None
    ) -> DataFile:
        """The copy of an inspected file. One that was written to meanwhile is described by what was copied of it."""
        name, suffix = source.name or source.path, formats.stored_suffix(source.path)
        path = TablePaths.of(table_id).stream(partition).fresh("data", suffix)
        copy = replace(source, path=path, stamp=None, managed=True)
        with self._discarding([copy], BaseException):
            if copy_into(self.store, source.path, path) == source.bytes and stamps.is_untouched(self.store, source):
                return copy
            try:
                described = tabular.inspect(self.store, path, source.content_type, types, partition)
                return measured_file(self.store, replace(described, name=name), keys)
            except InputError as error:
                raise type(error)(f"{name} was written to while it was copied: {error}") from error

    def _commit_written(
        self,
        table_id: str,
        partition: Partition,
        operation: OperationType,
        written: Iterator[DataFile],
        stream_position: int | None,
        token: Token | None,
        begun_s: float,
        force_position: bool,
    ) -> Delta:
        """Commit files as they are written. Where one is refused nothing is left behind."""
        files: list[DataFile] = []
        with self._discarding(files, BaseException):
            for file in written:
                files.append(file)
        deltas = [(operation, files)]
        try:
            with self._discarding(files, InputError):  # after another error the log may name them
                return self.commit(
                    table_id, partition, deltas, stream_position, token, begun_s, force_position=force_position
                )[0]
        except SchemaError as error:
            raise SchemaError(_as_called(str(error), files)) from error

    @contextlib.contextmanager
    def _discarding(self, files: Sequence[DataFile], refusal: type[BaseException]) -> Iterator[None]:
        """Delete the files that are managed where the block ends by such an exception."""
        try:
            yield
        except refusal:
            with contextlib.suppress(DeltaCompactError):  # a vacuum takes what stays
                self.store.delete([file.path for file in files if file.managed])
            raise

    def _position(self, asked: int | None, last: int | None) -> int:
        if asked is None:
            now_ms = int(self.clock() * 1000)
            asked = now_ms if last is None else max(now_ms, last + 1)
        elif last is not None and asked <= last:
            raise PositionError(f"stream position {asked} is not greater than {last}, the last one of the stream")
        return asked

    def checked_position(self, asked: int | None, deltas: int, force: bool) -> int | None:
        """Refuse a position that no later one could follow, or that is probably in another unit than milliseconds."""
        if asked is None:
            return None
        first = whole_number(asked)
        if first is None:
            raise PositionError(f"stream position {asked!r} is not a whole number")
        if not -INT64_MAX - 1 <= first <= INT64_MAX - deltas + 1:
            raise PositionError(f"stream position {first} is not an int64")
        if first > int(self.clock() * 1000) + _POSITION_AHEAD_MAX_MS and not force:
            raise PositionError(
                f"stream position {first} is more than a year ahead of the clock, in milliseconds since the epoch, "
                "and all later ones would have to be greater: force_position (--force-position) allows it"
            )
        return first

    def check_age(self, begun_s: float | None) -> None:
        """Refuse to commit objects that a vacuum may have taken for garbage by now."""
        if begun_s is not None and self.clock() - begun_s > VACUUM_AGE_MIN_S / 2:
            raise ConflictError("the files took so long to write that a vacuum may have removed them: write them again")

    def _is_table(self, folder: str) -> bool:
        try:
            return self.store.stat(f"{folder}/table.json").bytes > 0
        except NotFoundError:
            return False

    def _first_compaction_keys(self, paths: TablePaths) -> TableKeys | None:
        try:
            return _keys_from(_document(self.store.get(paths.keys), paths.keys))
        except NotFoundError:
            return None

    def _with_source(self, table: Table) -> Table:
        """The table with what source.json says, if it is there."""
        path = TablePaths.of(table.table_id).source
        try:
            return _of_source(table, _document(self.store.get(path), path)["source_table_id"])
        except NotFoundError:
            return table


def _of_source(table: Table, source_table_id: str | None) -> Table:
    return replace(table, source_table_id=source_table_id, holds_streams=source_table_id is None)


def stream_files(state: StreamState) -> list[DataFile]:
    """Every file that a reader of the version needs, in fold order."""
    compacted = list(state.compacted.files) if state.compacted else []
    return compacted + [file for delta in state.deltas for file in delta.files]


def stream_schema(state: StreamState) -> pa.Schema:
    """The union of the schemas of all files, in order of appearance."""
    return schemas.union(stream_files(state), state.compacted.schema if state.compacted else None)


def check_keys(table: Table, keys: TableKeys | None) -> None:
    """Refuse keys other than the table's."""
    if keys is None or table.keys is None or keys == table.keys:
        return
    if keys.primary != table.keys.primary:
        raise InputError(
            f"table {table.table_id!r} has the primary keys {list(table.keys.primary)}, not {list(keys.primary)}"
        )
    if keys.sort:  # sort keys that are not named are the table's
        has, asked = ([f"{key.name}:{key.direction.value}" for key in sort] for sort in (table.keys.sort, keys.sort))
        raise InputError(
            f"table {table.table_id!r} has {f'the sort keys {has}' if has else 'no sort keys'}, not {asked}"
        )


def _is_destination(table_id: str, source_table_id: str) -> InputError:
    return InputError(f"table {table_id!r} is a destination of {source_table_id!r}: append there")


def _skipped(table_id: str, token: Token, known: Known, kinds: tuple[OperationType, ...]) -> tuple[Delta, ...]:
    """The deltas that a known token committed; files are named as long as they are not compacted.

    Raises InputError where the token stands for other operations: then it was given to two batches.
    """
    said = f"token {token} known since position {known.position}"
    if token.sequence is not None and token.sequence != known.sequence:
        said = f"{said}, where its producer is at sequence {known.sequence}"
        return tuple(Delta(known.position, kind, skipped=said) for kind in kinds)
    if known.operations and known.operations != kinds:
        first, asked = ("+".join(operations) for operations in (known.operations, kinds))
        raise InputError(
            f"table {table_id!r}: token {token} stands for the {first} at position {known.position}, not for this "
            f"{asked}: give every batch a token of its own"
        )
    if known.deltas:
        return tuple(replace(delta, skipped=said) for delta in known.deltas)
    return tuple(Delta(known.position, kind, skipped=said) for kind in kinds)


def _absolute(path: str) -> str:
    return path if is_uri(path) else as_uri(os.path.abspath(path))


def _distinct(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The names of files, all of different ones."""
    names: dict[str, str] = {}
    for source in [os.fspath(source) for source in sources]:
        if (known := names.get(canonical_name(source))) is not None:
            raise InputError(f"{source} is named twice" if known == source else f"{source} and {known} are one file")
        names[canonical_name(source)] = source
    return list(names.values())


def _as_called(text: str, files: Sequence[DataFile]) -> str:
    """The text of a refusal with the caller's names of the files, which are deleted by now."""
    for number, file in enumerate(files, 1):
        text = text.replace(file.path, file.name or (f"appended table {number}" if files[1:] else "the appended table"))
    return text


def _readable(name: str) -> str:
    """A file name as text that can be stored: names on a disk need not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def _document(data: bytes, path: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        raise CorruptionError(f"{path} is not JSON: truncated or overwritten") from None
    check_format(document, path)
    assert isinstance(document, dict)
    return document


def _table_document(table: Table) -> dict[str, Any]:
    keys = _keys_document(table.keys) if table.keys else None
    return {
        "format": FORMAT_VERSION,
        "table_id": table.table_id,
        "partition_keys": table.partition_keys,
        "keys": keys,
        "tombstone_retention": table.tombstone_retention,
    }


def _table_from(table_id: str, document: dict[str, Any]) -> Table:
    keys = _keys_from(document["keys"]) if document["keys"] else None
    return Table(table_id, tuple(document["partition_keys"]), keys, document["tombstone_retention"])


def _keys_document(keys: TableKeys) -> dict[str, Any]:
    return {"primary_keys": keys.primary, "sort_keys": [(key.name, key.direction.value) for key in keys.sort]}


def _keys_from(document: dict[str, Any]) -> TableKeys:
    sort = tuple(SortKey(name, Direction(direction)) for name, direction in document["sort_keys"])
    return TableKeys(tuple(document["primary_keys"]), sort)
