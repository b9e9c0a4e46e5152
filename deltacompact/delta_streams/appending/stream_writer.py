"""Writing to one partition stream: first data under names used once, then the log entry that makes it visible.

    append    check the rows · write data/5c….parquet · put `committed`
    files     check all files · copy each, or leave it in place · put `committed`
    restate   write data/77….parquet · write a successor that holds it · seal the base in its favour

The writer checks rows against the shape of the stream (shape.py) before it writes anything, and again against the state
below the new entry. It deletes the data of a refused commit.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base.errors import ConflictError, DeltaCompactError, InputError, PositionError, SchemaError
from deltacompact.base.model import (
    INT64_MAX,
    Commit,
    ContentType,
    DataFile,
    Delta,
    OperationType,
    Partition,
    SchemaMode,
    TableKeys,
    Token,
)
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.delta_streams.appending.incoming import Rows, check_compactable, incoming, key_columns, write_rows
from deltacompact.delta_streams.appending.new_columns import added, adding_to, check_fixed, check_names
from deltacompact.delta_streams.appending.other_partitions import OtherPartitions
from deltacompact.delta_streams.appending.shape import StreamShape, lengths_of, shape_of
from deltacompact.delta_streams.appending.sources import canonical_name
from deltacompact.delta_streams.log.entries import CommittedEntry, Entry, Opened
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.log.tokens import TokenCommit
from deltacompact.delta_streams.paths import TablePaths, refuse_files_of_other_streams
from deltacompact.delta_streams.table_documents import is_destination
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured_file
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.identity import is_uri
from deltacompact.storage.opening import as_uri, copy_into
from deltacompact.tabular import formats, schemas, stamps
from deltacompact.tabular.far_files import with_far_values
from deltacompact.tabular.inspecting import inspect
from deltacompact.tabular.published_types import types_of
from deltacompact.tabular.row_groups import WriteOptions

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_LOOK_AGAIN_AFTER_S = 5.0
"""A writer reads table.json when it begins, and again before it commits, if at least this time has passed."""

Deltas = Sequence[tuple[OperationType, Sequence[DataFile]]]
"""The deltas of one commit: (operation, files) of each."""


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """The token of a commit, and the stream position of its first delta (None: from the clock).

    `schema_mode`: whether it may add columns. None: as the table says.
    """

    position: int | None = None
    token: Token | None = None
    schema_mode: SchemaMode | None = None


class StreamWriter:
    """Writes to one partition stream. It remembers the stream's shape."""

    def __init__(self, catalog: Streams, table_id: str, partition: Partition) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._table_id = table_id
        self._table = catalog.remembered_table(table_id)
        self._partition = partition
        self._paths = TablePaths.of(table_id).stream(partition)
        self._known_shape: StreamShape | None = None
        self.others = OtherPartitions(catalog, table_id, partition, self._shape_of)

    def append(self, tables: Any, operation: OperationType, keys: TableKeys | None, terms: CommitTerms) -> Delta:
        """Write rows, a file for each table, and commit them as one delta."""
        begun_s = self._catalog.clock()
        if (known := self.committed_by(terms.token, (operation,))) is not None:
            return known[0]
        written = (self.write(rows, operation, keys) for rows in incoming(tables))
        return self._commit_taken(operation, written, terms, begun_s)

    def append_files(
        self,
        sources: Sequence[str],
        operation: OperationType,
        keys: TableKeys | None,
        terms: CommitTerms,
        reference: bool,
        content_type: ContentType | None,
    ) -> Delta:
        """Commit files as one delta: copies, or with `reference` the files themselves."""
        begun_s = self._catalog.clock()
        if (known := self.committed_by(terms.token, (operation,))) is not None:
            return known[0]
        is_text = any((content_type or formats.content_type_of(source)) in formats.UNTYPED for source in sources)
        types, inspected = self.known_types() if is_text else None, list[DataFile]()
        for source in _distinct_names(sources):
            file = self._inspected(source, content_type, types, keys, reference)
            if types is not None and (more := self._types_of_others(file, types)) is not types:
                types = more
                file = self._inspected(source, content_type, types, keys, reference)
            inspected.append(file)
            if len(inspected) == 1 or file.schema != inspected[-2].schema:
                if operation is OperationType.UPSERT:
                    check_compactable(file)
                types = schemas.with_types(types, file.schema, keys.columns if keys else ())
        self._check_fits([(operation, inspected)])
        # All files have passed the check before the first copy.
        taken = iter(inspected) if reference else (self._copied(file, types, keys) for file in inspected)
        return self._commit_taken(operation, taken, terms, begun_s)

    def write(self, rows: Rows, operation: OperationType, keys: TableKeys | None) -> DataFile:
        """Write rows as one file, for `commit_files`. Raises SchemaError if they do not fit the stream."""
        options = WriteOptions()
        path = self._paths.fresh("data", formats.suffix_of(options.content_type))
        self._shape(None).with_file(operation, rows.described(options.content_type), self._measured)
        return write_rows(self._store, path, rows, self._partition, options, keys)

    def check(self, deltas: Deltas, terms: CommitTerms, called: Mapping[str, str]) -> list[DataFile]:
        """The upserts that add to the columns of the stream, with what is new alone, under the caller's names.

        Raises SchemaError for written files that the stream would refuse now. `called` as in `commit_files`.
        """
        log = self._catalog.log(self._table_id, self._partition)
        state = log.active() if log.exists() else None
        with _calling([file for _, files in deltas for file in files], called):
            self._check_first(deltas, terms.schema_mode)
            self._new_columns(self._check_fits(deltas, state), state, terms.schema_mode)
        added = adding_to(self._shape(state).rows, _upserts(deltas))
        return [replace(file, path=called.get(file.path, file.path)) for file in added]

    def commit_files(
        self, deltas: Deltas, terms: CommitTerms, begun_s: float, called: Mapping[str, str] | None = None
    ) -> tuple[Delta, ...]:
        """Commit written or copied files. Deletes them if they are refused, or if another process was first.

        `called`: the names of files for messages, by path.
        """
        files = [file for _, files in deltas for file in files]
        with _calling(files, called), self._discarding(files, InputError):  # after another error the log may name them
            committed = self.commit(deltas, terms, begun_s)
        if not committed[0].committed:  # another process has committed the token since this one read the log
            self.discard(files)
        return committed

    def commit(self, deltas: Deltas, terms: CommitTerms, begun_s: float | None) -> tuple[Delta, ...]:
        """Put one entry for all deltas; try again after each lost slot. A known token commits nothing."""
        self._check_fits(deltas)
        self._check_first(deltas, terms.schema_mode)
        commit_id = uuid.uuid4().hex
        kinds = tuple(kind for kind, _ in deltas)
        outcome: list[tuple[Delta, ...]] = []

        def decide(state: StreamState) -> Entry | None:
            outcome.clear()
            if terms.token and (known := state.known(terms.token)):
                outcome.append(_skipped(self._table_id, terms.token, known, kinds))
                return None
            if state.compacted and state.compacted.source_table_id != self._table_id:
                raise is_destination(self._table_id, state.compacted.source_table_id)
            fitting = self._check_fits(deltas, state)
            new = self._new_columns(fitting, state, terms.schema_mode)
            self._catalog.check_age(begun_s)
            positioned = _positioned(fitting, self._first_position(terms.position, state.last_position, len(deltas)))
            outcome.append(tuple(replace(delta, new_columns=new.get(delta.operation, ())) for delta in positioned))
            return CommittedEntry(Commit(commit_id, self._now_ms(), positioned, terms.token))

        with telling_interrupts():
            self._refuse_another_table(begun_s)
            self._catalog.begin_stream(self._table_id, self._partition).extend(decide)
            return outcome[0]

    def restate(self, tables: Any, keys: TableKeys | None) -> StreamState:
        """Replace the contents by these rows; deltas that are committed meanwhile stay on top."""
        restating = incoming(tables)
        first = next(restating, None)
        if first is None:
            raise InputError("a restatement needs at least one table: one of zero rows empties the partition")
        log = self._catalog.begin_stream(self._table_id, self._partition)
        base, begun_s = log.active(strictly=True), self._catalog.clock()
        files = self._restated(base, chain((first,), restating), keys)
        now_ms, lineage = self._now_ms(), uuid.uuid4().hex
        # Not above the position of any delta that is carried over on top.
        position = -INT64_MAX - 1 if base.last_position is None else base.last_position
        number = base.opened.number + 1
        opened = Opened(number, base.version, lineage, log.tokens_inherited(base, now_ms), position, now_ms)
        commit = Commit(lineage, now_ms, (Delta(position, OperationType.UPSERT, files),))
        successor = log.write_version(number, [opened, CommittedEntry(commit)])

        def check(state: StreamState) -> None:
            if state.sealed:
                where = f"table {self._table_id!r}, partition {self._partition}"
                raise ConflictError(f"{where}: compacted or restated meanwhile")
            self._check_carried(files, state, state.commits[len(base.commits) :])
            self._catalog.check_age(begun_s)
            self._refuse_another_table(begun_s)

        with telling_interrupts(), self._discarding(files, SchemaError):  # raised before the seal
            return log.release(base, successor, check, now_ms)

    def _refuse_another_table(self, begun_s: float | None) -> None:
        """Raise ConflictError if the table was dropped, and created again, while large files were written."""
        if begun_s is not None and self._catalog.clock() - begun_s > _LOOK_AGAIN_AFTER_S:
            self._catalog.refuse_another(self._table)

    # Data

    def _restated(self, base: StreamState, tables: Iterator[Rows], keys: TableKeys | None) -> tuple[DataFile, ...]:
        """The files of a restatement. They must fit each other; earlier files of the stream do not count."""
        options, files = WriteOptions(), list[DataFile]()
        shape = StreamShape.of(self._catalog.described(self._table_id))
        with self._discarding(files, BaseException), _calling(files):
            for number, rows in enumerate(tables):
                check_names(rows.schema.names, rows.name)
                shape.with_file(OperationType.UPSERT, rows.described(options.content_type), self._measured)
                path = self._paths.fresh("data", formats.suffix_of(options.content_type))
                written = write_rows(self._store, path, rows, self._partition, options, keys)
                files.append(replace(self._as_logged(written), number=DeltaFileNumber(number)))
                shape = shape.with_file(OperationType.UPSERT, written, self._measured)
            before = base.compacted.schema if base.compacted else pa.schema([])
            self._check_published(adding_to(before, files), pa.schema([]))
        return tuple(files)

    def _check_carried(self, files: Sequence[DataFile], state: StreamState, late: Sequence[Commit]) -> None:
        """Raise SchemaError if deltas that came meanwhile do not fit a restatement's files."""
        if late:
            shape = StreamShape.of(self._catalog.described(self._table_id))
            shape = shape.with_files([(OperationType.UPSERT, files)], self._measured)
            shape.check_carried(state, late, self._measured, "restated: restate again")

    def _inspected(
        self,
        source: str,
        content_type: ContentType | None,
        types: pa.Schema | None,
        keys: TableKeys | None,
        reference: bool,
    ) -> DataFile:
        uri = as_uri(source if is_uri(source) else os.path.abspath(source))
        format_ = content_type or formats.content_type_of(source)
        digested = key_columns(keys, self._partition)
        file = inspect(
            self._store,
            uri,
            format_,
            types,
            self._partition,
            managed=False,
            hashed=reference,
            keys=digested,
            exact=keys.columns if keys else (),
            decoded=True,
        )
        if keys is None:
            file = replace(file, nulls=None)
        if reference:
            refuse_files_of_other_streams(self._store, file.path, self._paths)
        return measured_file(self._store, replace(file, name=_readable(source)), keys)

    def _copied(self, source: DataFile, types: pa.Schema | None, keys: TableKeys | None) -> DataFile:
        """Copy an inspected file. If the file changed meanwhile, inspect the copy instead."""
        name, suffix = source.name or source.path, formats.stored_suffix(source.path)
        path = self._paths.fresh("data", suffix)
        copy = replace(source, path=path, stamp=None, managed=True)
        with self._discarding([copy], BaseException):
            if copy_into(self._store, source.path, path) == source.bytes and stamps.is_untouched(self._store, source):
                return copy
            try:
                digested = key_columns(keys, self._partition)
                described = inspect(
                    self._store,
                    path,
                    source.content_type,
                    types,
                    self._partition,
                    keys=digested,
                    exact=keys.columns if keys else (),
                    decoded=True,
                )
                return measured_file(self._store, replace(described, name=name), keys)
            except InputError as error:
                raise type(error)(f"{name} was written to while it was copied: {error}") from error

    def _commit_taken(
        self, operation: OperationType, taken: Iterator[DataFile], terms: CommitTerms, begun_s: float
    ) -> Delta:
        """Write or copy the files, then commit them. If one is refused, delete all of them."""
        files: list[DataFile] = []
        with self._discarding(files, BaseException):
            for file in taken:
                files.append(file)
        return self.commit_files([(operation, files)], terms, begun_s)[0]

    @contextlib.contextmanager
    def _discarding(self, files: Sequence[DataFile], refusal: type[BaseException]) -> Iterator[None]:
        """Delete the managed files among these if the block raises `refusal`."""
        try:
            yield
        except refusal:
            self.discard(files)
            raise

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the files among these that the table owns. No log may name them."""
        with contextlib.suppress(DeltaCompactError):  # a vacuum deletes what stays
            self._store.delete([file.path for file in files if file.managed])

    # What the stream holds

    def knows(self, token: Token | None) -> bool:
        """Whether a commit with this token is in the log."""
        log = self._catalog.log(self._table_id, self._partition)
        return token is not None and log.exists() and log.recent().known(token) is not None

    def committed_by(self, token: Token | None, kinds: tuple[OperationType, ...]) -> tuple[Delta, ...] | None:
        """The deltas that the token committed before: their data need not be written again. None: the token is new.

        Raises InputError if the token stands for other operations.
        """
        log = self._catalog.log(self._table_id, self._partition)
        if token is None or not log.exists():
            return None
        known = log.recent().known(token)
        return None if known is None else _skipped(self._table_id, token, known, kinds)

    def known_types(self) -> pa.Schema:
        """The types for the columns of a text file. A new stream takes those of the table's last other partition."""
        log = self._catalog.log(self._table_id, self._partition)
        shape = self._shape(log.active() if log.exists() else None)
        if shape.columns != shape.declared:
            return shape.columns
        return schemas.with_types(shape.columns, self.others.last_columns, ())

    def _types_of_others(self, file: DataFile, types: pa.Schema) -> pa.Schema:
        """`types`, with those that the table's last other partition has for columns which the file adds to a stream."""
        new = set(file.schema.names).difference(types.names)
        if not new or not self._partition.names or not len(self._shape(None).rows):
            return types
        found = schemas.known_types(self.others.last_columns)
        more = [(name, type_) for name, type_ in found.items() if name in new]
        return schemas.with_types(types, pa.schema(more), ()) if more else types

    def _check_fits(self, deltas: Deltas, state: StreamState | None = None) -> Deltas:
        """The deltas, with the lengths of sort values that the caller lacks if the keys are younger than the files.

        Raises SchemaError for files with which the stream could not be folded or read, before the log names them.
        """
        shape = self._shape(state)
        fitting = [
            (kind, [lengths_of(self._as_logged(file), shape.keys, self._measured) for file in files])
            for kind, files in deltas
        ]
        shape.with_files(fitting, self._measured)
        return fitting

    def _check_first(self, deltas: Deltas, mode: SchemaMode | None) -> None:
        """Raise SchemaError, before anything is begun, for first files of a partition that it would refuse, or that do
        not fit other partitions."""
        log = self._catalog.log(self._table_id, self._partition)
        if not log.was_absent and log.exists():
            return
        self._new_columns(deltas, None, mode)
        if self._partition.names:
            self.others.check_fit(_upserts(deltas))

    def _as_logged(self, file: DataFile) -> DataFile:
        """The file as the log tells of it. If it has no rows, its partition columns are left out: the partition's value
        need not fit their types."""
        names = self._partition.names
        if file.rows or not any(name in names for name in file.schema.names):
            return file
        return replace(file, schema=pa.schema([field for field in file.schema if field.name not in names]))

    def _new_columns(
        self, deltas: Deltas, state: StreamState | None, mode: SchemaMode | None
    ) -> dict[OperationType, tuple[str, ...]]:
        """The columns that upserts add to a stream with columns. Raises SchemaError for those that may not be added.

        Columns of deletes do not become columns of the table.
        """
        table, columns, new = self._catalog.remembered_table(self._table_id), self._shape(state).rows, list[str]()
        checked: pa.Schema | None = None
        is_fixed = (mode or table.schema_mode) is SchemaMode.FIXED
        declared = {*table.partition_keys, *(table.keys.columns if table.keys else ())}
        known = self.others.last_columns if is_fixed and not len(columns) else columns
        for file in _upserts(deltas):
            if file.schema == checked:
                continue
            after, checked = schemas.union([file], known), file.schema
            names = [name for name in added(known, after) if name not in declared]
            self._check_names(file, known)
            if is_fixed and len(known):
                check_fixed(known, after, declared, file.path, self._table_id)
            new += names if len(columns) else []
            known = after
        if more := adding_to(columns, _upserts(deltas)):
            if state is not None and self._partition.names:
                self.others.check_fit(more)
            self._check_published(more, columns)
        return {OperationType.UPSERT: tuple(dict.fromkeys(new))}

    def _check_published(self, adding: Sequence[DataFile], columns: pa.Schema) -> None:
        """Raise SchemaError for what files add to these columns, if the table to which this one is published could not
        show it. A partition may begin with columns that other partitions have."""
        if (target := self._catalog.remembered_table(self._table_id).publication) is None:
            return
        types, known = types_of(target), pa.schema(schemas.decided_types(columns))
        for file in [file for file in adding if file.rows]:
            known = schemas.union([file], known)
            added = pa.schema([known.field(name) for name in file.schema.names])
            try:
                types.check(added, file.path)
                types.check_struct(known, file.path)
            except SchemaError as error:
                if self._partition.names and not adding_to(self.others.last_columns, [replace(file, schema=added)]):
                    continue
                raise SchemaError(
                    f"{error}: {target} shows this table, so write another type, leave the column out, or stop the "
                    "publication (publish --stop)"
                ) from None

    def _check_names(self, file: DataFile, known: pa.Schema) -> None:
        """Raise SchemaError for a column without a name, unless the stream has it. A new stream may take it from the
        table's other partitions."""
        try:
            check_names(file.schema.names, file.path, known.names)
        except SchemaError:
            if len(known) or not self._partition.names:
                raise
            check_names(file.schema.names, file.path, self.others.last_columns.names)

    @property
    def declared_columns(self) -> pa.Schema:
        """The columns whose types the table declares; empty: none."""
        return StreamShape.of(self._catalog.remembered_table(self._table_id)).declared

    def _shape_of(self, partition: Partition) -> StreamShape:
        log = self._catalog.log(self._table_id, partition)
        return StreamWriter(self._catalog, self._table_id, partition)._shape(log.active())

    def _measured(self, file: DataFile) -> DataFile:
        """The file with the longest values of its sort columns, and its far values: read, if they are unknown."""
        keys = self._catalog.remembered_table(self._table_id).keys
        return with_far_values(self._store, measured_file(self._store, file, keys))

    def _shape(self, state: StreamState | None) -> StreamShape:
        """The shape of a state of the stream. State None: the shape that this process remembers, without a request."""
        table, known = self._catalog.remembered_table(self._table_id), self._known_shape
        if state is None:
            return known if known is not None and known.keys == table.keys else StreamShape.of(table)
        if table.keys is None and state.compacted:
            table = self._catalog.described(self._table_id)  # the first compaction came after we last read the table
        self._known_shape = shape_of(table, state, known, self._indexed(state), self._measured)
        return self._known_shape

    def _indexed(self, state: StreamState) -> Callable[[], Encoding]:
        def indexed() -> Encoding:
            assert state.compacted is not None
            return read_manifest(self._store, state.index or state.compacted.index).encoding

        return indexed

    # Time

    def _now_ms(self) -> int:
        return int(self._catalog.clock() * 1000)

    def _first_position(self, position: int | None, last: int | None, deltas: int) -> int:
        """The position of the first of `deltas` deltas, after the last position of the stream."""
        if position is None:
            now_ms = self._now_ms()
            position = now_ms if last is None else max(now_ms, last + 1)
        elif last is not None and position <= last:
            raise PositionError(f"stream position {position} is not greater than {last}, the last one of the stream")
        if position > INT64_MAX - deltas + 1:
            raise PositionError(f"no stream position follows {last}, the last one of the stream")
        return position


def _upserts(deltas: Deltas) -> list[DataFile]:
    """The files with upserts."""
    return [file for kind, files in deltas if kind is OperationType.UPSERT for file in files]


def _positioned(deltas: Deltas, first: int) -> tuple[Delta, ...]:
    """The deltas at consecutive positions, with numbered files."""
    return tuple(
        Delta(
            position,
            kind,
            tuple(replace(file, number=DeltaFileNumber(number)) for number, file in enumerate(files)),
        )
        for position, (kind, files) in enumerate(deltas, first)
    )


def _skipped(table_id: str, token: Token, known: TokenCommit, kinds: tuple[OperationType, ...]) -> tuple[Delta, ...]:
    """The deltas that a known token committed. They have files as long as they are not compacted.

    Raises InputError if the token committed other operations: then two batches have the same token.
    """
    why = f"token {token} known since position {known.position}"
    if token.sequence is not None and token.sequence != known.sequence:
        why = f"{why}, where its producer is at sequence {known.sequence}"
        return tuple(Delta(known.position, kind, skipped=why) for kind in kinds)
    if known.operations and known.operations != kinds:
        committed, asked = ("+".join(operations) for operations in (known.operations, kinds))
        raise InputError(
            f"table {table_id!r}: token {token} stands for the {committed} at position {known.position}, not for this "
            f"{asked}: give every batch a token of its own"
        )
    if known.deltas:
        return tuple(replace(delta, skipped=why) for delta in known.deltas)
    return tuple(Delta(known.position, kind, skipped=why) for kind in kinds)


def _distinct_names(sources: Sequence[str]) -> list[str]:
    """The names of files. Raises InputError if two names stand for the same file."""
    names: dict[str, str] = {}
    for source in sources:
        if (known := names.get(canonical_name(source))) is not None:
            raise InputError(f"{source} is named twice" if known == source else f"{source} and {known} are one file")
        names[canonical_name(source)] = source
    return list(names.values())


@contextlib.contextmanager
def _calling(files: Sequence[DataFile], called: Mapping[str, str] | None = None) -> Iterator[None]:
    """In errors of the block, replace paths of files by the caller's names."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(_as_called(str(error), files, called or {})) from error


def _as_called(text: str, files: Sequence[DataFile], called: Mapping[str, str]) -> str:
    """The text of an error with the caller's names of the files instead of paths, whose files are deleted."""
    for number, file in enumerate(files, 1):
        name = called.get(file.path) or file.name
        text = text.replace(file.path, name or (f"appended table {number}" if files[1:] else "the appended table"))
    return text


def _readable(name: str) -> str:
    """A file name as valid UTF-8 text: names on a disk may be any bytes."""
    return os.fsencode(name).decode(errors="replace")
