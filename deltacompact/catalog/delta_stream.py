"""The default catalog: delta streams as objects in a store, and nothing else.

    catalog = open_catalog("s3://lake/tables")
    catalog.create_table("orders", partition_keys=["day"], primary_keys=["id"])
    catalog.append("orders", rows, partition={"day": "1995-04-03"})         one commit, one delta, one file a table
    catalog.read("orders")                                                  the live rows

Data is written first, under names used once; the log entry that names it makes it visible.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from deltacompact import expect, schemas
from deltacompact import files as tabular
from deltacompact.catalog.entries import Committed, Entry, Opened, check_format, dump
from deltacompact.catalog.log import StreamLog
from deltacompact.catalog.paths import TablePaths, table_name
from deltacompact.catalog.state import StreamState
from deltacompact.errors import ConflictError, CorruptionError, InputError, NotFoundError, PositionError
from deltacompact.model import (
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
)
from deltacompact.s3_store import S3Settings
from deltacompact.settings import at_least
from deltacompact.storage import ObjectStore, copy_into, open_store

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

    def __init__(self, store: ObjectStore, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock
        self._logs: dict[tuple[str, Partition], StreamLog] = {}
        self._tables: dict[str, Table] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "clock": self.clock, "_logs": {}, "_tables": {}}

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
        table = Table(table_id, partition_keys, keys, tombstone_retention)
        paths = TablePaths.of(table_id)
        if not self.store.put_if_absent(paths.table, dump(_table_document(table))):
            existing = self.table(table_id)
            if replace(existing, source_table_id=None) != table:
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
        if known.source_table_id is None:
            known = replace(known, source_table_id=self._source_of(paths))
        if known.keys is not None and known.source_table_id is not None:
            self._tables[table_id] = known
        return known

    def tables(self) -> list[str]:
        """Names of all tables."""
        return [table_name(folder) for folder in self.store.folders() if self._is_table(folder)]

    def partitions(self, table_id: str) -> list[Partition]:
        """The partitions that hold a stream."""
        table, paths = self.table(table_id), TablePaths.of(table_id)
        marks = [stat.path for stat in self.store.list(paths.partitions)]
        marked = [paths.partition_of(mark, table.partition_keys) for mark in marks]
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

    def declare_source(self, table_id: str, source_table_id: str) -> None:
        """Make the table a destination of another, for ever. Raises InputError where it has another source."""
        paths = TablePaths.of(table_id)
        document = dump({"format": FORMAT_VERSION, "source_table_id": source_table_id})
        self.store.put_if_absent(paths.source, document)
        if (source := self._source_of(paths)) != source_table_id:
            raise InputError(f"table {table_id!r} is the destination of {source!r}, not of {source_table_id!r}")

    # Streams

    def log(self, table_id: str, partition: Partition) -> StreamLog:
        """The log of a partition stream, whether or not it was begun."""
        key = (table_id, partition)
        if key not in self._logs:
            self._logs[key] = StreamLog(self.store, TablePaths.of(table_id).stream(partition))
        return self._logs[key]

    def state(self, table_id: str, partition: Partition) -> StreamState:
        """The active version of a partition stream. Raises NotFoundError."""
        try:
            return self.log(table_id, partition).active()
        except NotFoundError as error:
            if self.log(table_id, partition).exists():
                raise CorruptionError(str(error)) from error
            raise NotFoundError(f"table {table_id!r} has no partition {partition}") from None

    def begin_stream(self, table_id: str, partition: Partition) -> StreamLog:
        """The log of a partition stream, begun if need be."""
        log = self.log(table_id, partition)
        if not log.exists():
            # The mark comes first: a mark without a stream is an empty partition, a stream without a mark is lost.
            self.store.put_if_absent(TablePaths.of(table_id).partition_mark(partition), b"")
            log.begin()
        return log

    # Writing

    def append(
        self,
        table_id: str,
        tables: pa.Table | Iterable[pa.Table],
        partition: Mapping[str, Any] | Partition | None = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: str | None = None,
    ) -> Delta:
        """Commit one delta: each table becomes one file. Returns the committed delta.

        If it raises StoreError the outcome is unknown: call it again with the same `token`, which commits once.
        Raises PositionError where `stream_position` (int64) is not greater than all before it.
        """
        if isinstance(tables, pa.Table):
            tables = [tables]
        place, kind = self._appending(table_id, partition, operation)
        begun_s = self.clock()
        paths = TablePaths.of(table_id).stream(place)
        if (known := self._known(table_id, place, token, kind)) is not None:
            return known
        options = tabular.WriteOptions()
        files = []
        for table in tables:
            path = paths.fresh("data", tabular.suffix_of(options.content_type))
            tabular.check_columns(table.schema, "the appended table")
            files.append(tabular.write_table(self.store, path, table, options))
        return self.commit(table_id, place, [(kind, files)], stream_position, token, begun_s)[0]

    def append_files(
        self,
        table_id: str,
        sources: Sequence[str | os.PathLike[str]],
        partition: Mapping[str, Any] | Partition | None = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: str | None = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
    ) -> Delta:
        """Commit files (local paths or URIs) as one delta: copied into the catalog, or with `reference` left in place.

        CSV and JSON columns take the types that the stream's schema knows.
        """
        place, kind = self._appending(table_id, partition, operation)
        begun_s = self.clock()
        if (known := self._known(table_id, place, token, kind)) is not None:
            return known
        paths = TablePaths.of(table_id).stream(place)
        types = self._known_types(table_id, place)
        inspected = []
        for source in [os.fspath(each) for each in sources]:
            format_ = content_type or tabular.content_type_of(source)
            uri = source if "://" in source else os.path.abspath(source)
            described = tabular.inspect(self.store, _absolute(uri), format_, types)
            inspected.append((source, described))
        files = []
        for source, described in inspected:  # everything was looked at before anything is written
            if reference:
                files.append(described)
            else:
                path = paths.fresh("data", os.path.splitext(source)[1])
                copy_into(self.store, source, path)
                files.append(replace(described, path=path))
        return self.commit(table_id, place, [(kind, files)], stream_position, token, begun_s)[0]

    def commit(
        self,
        table_id: str,
        partition: Partition,
        deltas: Sequence[tuple[OperationType, Sequence[DataFile]]],
        stream_position: int | None = None,
        token: str | None = None,
        begun_s: float | None = None,
    ) -> tuple[Delta, ...]:
        """Commit written files as one entry; its deltas (a CDC batch: deletes, then upserts) become visible at once.

        `stream_position` is that of the first delta, the next ones follow it. `begun_s` says when the files were
        begun (store's clock, seconds): too old files are refused, a vacuum may have seen them as garbage.
        """
        expect.text_or_none("token", token)
        if stream_position is not None and not -INT64_MAX - 1 <= stream_position <= INT64_MAX - len(deltas) + 1:
            raise PositionError(f"stream position {stream_position} is not an int64")
        log = self.begin_stream(table_id, partition)
        commit_id = uuid.uuid4().hex
        outcome: list[tuple[Delta, ...]] = []

        def decide(state: StreamState) -> Entry | None:
            outcome.clear()
            known = state.tokens.position_of(token)
            if known is not None:
                outcome.append(tuple(_committed_before(state, token, known, kind) for kind, _ in deltas))
                return None
            if state.compacted and state.compacted.source_table_id != table_id:
                raise _is_destination(table_id, state.compacted.source_table_id)
            self.check_age(begun_s)
            first = self._position(stream_position, state.last_position)
            if first > INT64_MAX - len(deltas) + 1:
                raise PositionError(f"no stream position follows {state.last_position}, the last one of the stream")
            positioned = tuple(
                Delta(first + place, kind, tuple(replace(file, number=n) for n, file in enumerate(files)))
                for place, (kind, files) in enumerate(deltas)
            )
            outcome.append(positioned)
            return Committed(Commit(commit_id, int(self.clock() * 1000), positioned, token))

        log.extend(decide)
        return outcome[0]

    def restate(
        self, table_id: str, tables: pa.Table | Iterable[pa.Table], partition: Mapping[str, Any] | None = None
    ) -> StreamState:
        """Replace a partition's contents by these rows. Deltas that are committed meanwhile stay, on top of them."""
        if isinstance(tables, pa.Table):
            tables = [tables]
        place, _ = self._appending(table_id, partition, "upsert")
        log = self.begin_stream(table_id, place)
        base, begun_s = log.active(), self.clock()
        paths = TablePaths.of(table_id).stream(place)
        options = tabular.WriteOptions()
        files = [
            replace(tabular.write_table(self.store, paths.fresh("data", ".parquet"), table, options), number=number)
            for number, table in enumerate(tables)
        ]
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
        from deltacompact.merge_on_read import Scan, read_table

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
        from deltacompact.merge_on_read import Scan, scan_table

        return scan_table(self, Scan(table_id, partition, columns, filter, version))

    # Inside

    def _appending(
        self, table_id: str, partition: Mapping[str, Any] | Partition | None, operation: str
    ) -> tuple[Partition, OperationType]:
        table = self.table(table_id)
        if table.source_table_id is not None:
            raise _is_destination(table_id, table.source_table_id)
        try:
            kind = OperationType(str(operation).lower())
        except ValueError:
            raise InputError(f"operation {operation!r} is neither 'upsert' nor 'delete'") from None
        return Partition.of(table.partition_keys, partition), kind

    def _known(self, table_id: str, partition: Partition, token: str | None, kind: OperationType) -> Delta | None:
        """What the token committed, without writing the data first."""
        expect.text_or_none("token", token)
        log = self.log(table_id, partition)
        if token is None or not log.exists():
            return None
        state = log.active()
        position = state.tokens.position_of(token)
        return None if position is None else _committed_before(state, token, position, kind)

    def _known_types(self, table_id: str, partition: Partition) -> pa.Schema | None:
        log = self.log(table_id, partition)
        if not log.exists():
            return None
        return stream_schema(log.active())

    def _position(self, asked: int | None, last: int | None) -> int:
        if asked is None:
            now_ms = int(self.clock() * 1000)
            asked = now_ms if last is None else max(now_ms, last + 1)
        elif last is not None and asked <= last:
            raise PositionError(f"stream position {asked} is not greater than {last}, the last one of the stream")
        return asked

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

    def _source_of(self, paths: TablePaths) -> str | None:
        try:
            return str(_document(self.store.get(paths.source), paths.source)["source_table_id"])
        except NotFoundError:
            return None


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


def _committed_before(state: StreamState, token: str | None, position: int, kind: OperationType) -> Delta:
    """The delta that a token committed; its files are not named any more once it was compacted."""
    for commit in state.commits:
        if commit.token == token:
            for delta in commit.deltas:
                if delta.operation is kind:
                    return delta
    return Delta(position, kind)


def _absolute(path: str) -> str:
    from pathlib import Path

    return path if "://" in path else Path(path).as_uri()


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
