"""Writing to one partition stream: data under names used once, and then the log entry that makes it visible.

    append    look at the rows · write data/5c….parquet · put `committed`
    files     look at all files · copy each, or leave it where it is · put `committed`
    restate   write data/77….parquet · write a successor that holds it · seal the base in its favour

Before anything is written, rows are held against what the stream's files have in common (shape.py), and again against
the state that the entry is put upon. Data of a commit that was refused is deleted.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
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
    TableKeys,
    Token,
)
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.catalog.delta_stream.certain_put import telling_interrupts
from deltacompact.catalog.delta_stream.incoming import Rows, incoming, write_rows
from deltacompact.catalog.delta_stream.log_entries import Committed, Entry, Opened
from deltacompact.catalog.delta_stream.paths import TablePaths, refuse_files_of_other_streams
from deltacompact.catalog.delta_stream.shape import StreamShape, shape_of
from deltacompact.catalog.delta_stream.sources import canonical_name
from deltacompact.catalog.delta_stream.state import StreamState
from deltacompact.catalog.delta_stream.table_documents import is_destination
from deltacompact.catalog.delta_stream.tokens import Known
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured_file
from deltacompact.storage.opening import as_uri, copy_into, is_uri
from deltacompact.tabular import files as tabular
from deltacompact.tabular import formats, stamps
from deltacompact.tabular.row_groups import WriteOptions

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog

Deltas = Sequence[tuple[OperationType, Sequence[DataFile]]]
"""What is to be committed together: the files of each delta."""


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """How a commit is to be known: by its token; from which stream position on (None: that of the clock)."""

    position: int | None = None
    token: Token | None = None


class StreamWriter:
    """Of one partition stream. It remembers the shape of what is in the stream already."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._table_id = table_id
        self._partition = partition
        self._paths = TablePaths.of(table_id).stream(partition)
        self._known_shape: StreamShape | None = None

    def append(self, tables: Any, operation: OperationType, keys: TableKeys | None, terms: CommitTerms) -> Delta:
        """Write rows, a file for each table, and commit them as one delta."""
        begun_s = self._catalog.clock()
        if (known := self._committed_by(terms.token, operation)) is not None:
            return known
        written = (self._written(rows, operation, keys) for rows in incoming(tables))
        return self._commit_taken(operation, written, terms, begun_s)

    def append_files(
        self,
        sources: Sequence[str | os.PathLike[str]],
        operation: OperationType,
        keys: TableKeys | None,
        terms: CommitTerms,
        reference: bool,
        content_type: ContentType | None,
    ) -> Delta:
        """Commit files as one delta: copies, or with `reference` the files themselves."""
        begun_s = self._catalog.clock()
        if (known := self._committed_by(terms.token, operation)) is not None:
            return known
        types = self._known_types()
        inspected = [
            self._inspected(source, content_type, types, keys, reference) for source in _distinct_names(sources)
        ]
        self._check_fits([(operation, inspected)])
        # Every file was looked at before anything is written.
        taken = iter(inspected) if reference else (self._copied(file, types, keys) for file in inspected)
        return self._commit_taken(operation, taken, terms, begun_s)

    def commit(self, deltas: Deltas, terms: CommitTerms, begun_s: float | None) -> tuple[Delta, ...]:
        """Put one entry for all deltas, again after each lost put. A known token commits nothing."""
        self._check_fits(deltas)
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
            self._check_fits(deltas, state)
            self._catalog.check_age(begun_s)
            positioned = _positioned(deltas, self._first_position(terms.position, state.last_position, len(deltas)))
            outcome.append(positioned)
            return Committed(Commit(commit_id, self._now_ms(), positioned, terms.token))

        with telling_interrupts():
            self._catalog.begin_stream(self._table_id, self._partition).extend(decide)
            return outcome[0]

    def restate(self, tables: Any, keys: TableKeys | None) -> StreamState:
        """Replace the contents by these rows; what is committed meanwhile stays, on top of them."""
        restating = incoming(tables)
        first = next(restating, None)
        if first is None:
            raise InputError("a restatement needs at least one table: one of zero rows empties the partition")
        log = self._catalog.begin_stream(self._table_id, self._partition)
        base, begun_s = log.active(strictly=True), self._catalog.clock()
        files = self._restated(chain((first,), restating), keys)
        now_ms, lineage = self._now_ms(), uuid.uuid4().hex
        # Below all that is carried over on top of it, at whatever position.
        position = -INT64_MAX - 1 if base.last_position is None else base.last_position
        number = base.opened.number + 1
        opened = Opened(number, base.version, lineage, base.tokens_inherited(now_ms), position, now_ms)
        commit = Commit(lineage, now_ms, (Delta(position, OperationType.UPSERT, files),))
        successor = log.write_version(number, [opened, Committed(commit)])

        def check(state: StreamState) -> None:
            if state.sealed:
                where = f"table {self._table_id!r}, partition {self._partition}"
                raise ConflictError(f"{where}: compacted or restated meanwhile")
            self._catalog.check_age(begun_s)

        with telling_interrupts():
            return log.release(base, successor, check, now_ms)

    # Data

    def _written(self, rows: Rows, operation: OperationType, keys: TableKeys | None) -> DataFile:
        options = WriteOptions()
        path = self._paths.fresh("data", formats.suffix_of(options.content_type))
        self._check_fits([(operation, [rows.described(options.content_type)])])
        return write_rows(self._store, path, rows, self._partition, options, keys)

    def _restated(self, tables: Iterator[Rows], keys: TableKeys | None) -> tuple[DataFile, ...]:
        """The files of a restatement, which fit each other: what was in the stream before does not count."""
        options, files = WriteOptions(), list[DataFile]()
        shape = StreamShape.of(self._catalog.table(self._table_id))
        with self._discarding(files, BaseException):
            for number, rows in enumerate(tables):
                shape = shape.with_file(OperationType.UPSERT, rows.described(options.content_type))
                path = self._paths.fresh("data", formats.suffix_of(options.content_type))
                written = write_rows(self._store, path, rows, self._partition, options, keys)
                files.append(replace(written, number=DeltaFileNumber(number)))
        return tuple(files)

    def _inspected(
        self,
        source: str,
        content_type: ContentType | None,
        types: pa.Schema | None,
        keys: TableKeys | None,
        reference: bool,
    ) -> DataFile:
        uri = source if is_uri(source) else as_uri(os.path.abspath(source))
        format_ = content_type or formats.content_type_of(source)
        file = tabular.inspect(self._store, uri, format_, types, self._partition, managed=False, hashed=reference)
        if reference:
            refuse_files_of_other_streams(self._store, file.path, self._paths)
        return measured_file(self._store, replace(file, name=_readable(source)), keys)

    def _copied(self, source: DataFile, types: pa.Schema | None, keys: TableKeys | None) -> DataFile:
        """The copy of an inspected file. One that was written to meanwhile is described by what was copied of it."""
        name, suffix = source.name or source.path, formats.stored_suffix(source.path)
        path = self._paths.fresh("data", suffix)
        copy = replace(source, path=path, stamp=None, managed=True)
        with self._discarding([copy], BaseException):
            if copy_into(self._store, source.path, path) == source.bytes and stamps.is_untouched(self._store, source):
                return copy
            try:
                described = tabular.inspect(self._store, path, source.content_type, types, self._partition)
                return measured_file(self._store, replace(described, name=name), keys)
            except InputError as error:
                raise type(error)(f"{name} was written to while it was copied: {error}") from error

    def _commit_taken(
        self, operation: OperationType, taken: Iterator[DataFile], terms: CommitTerms, begun_s: float
    ) -> Delta:
        """Commit files as they are written. Where one is refused nothing is left behind."""
        files: list[DataFile] = []
        with self._discarding(files, BaseException):
            for file in taken:
                files.append(file)
        try:
            with self._discarding(files, InputError):  # after another error the log may name them
                return self.commit([(operation, files)], terms, begun_s)[0]
        except SchemaError as error:
            raise SchemaError(_as_called(str(error), files)) from error

    @contextlib.contextmanager
    def _discarding(self, files: Sequence[DataFile], refusal: type[BaseException]) -> Iterator[None]:
        """Delete those of the files that are managed where the block ends by such an exception."""
        try:
            yield
        except refusal:
            with contextlib.suppress(DeltaCompactError):  # a vacuum takes what stays
                self._store.delete([file.path for file in files if file.managed])
            raise

    # What the stream holds

    def _committed_by(self, token: Token | None, operation: OperationType) -> Delta | None:
        """What the token committed, without writing the data first."""
        log = self._catalog.log(self._table_id, self._partition)
        if token is None or not log.exists():
            return None
        known = log.active().known(token)
        return None if known is None else _skipped(self._table_id, token, known, (operation,))[0]

    def _known_types(self) -> pa.Schema | None:
        """By which the columns of a text file are typed."""
        log = self._catalog.log(self._table_id, self._partition)
        return self._shape(log.active()).columns if log.exists() else None

    def _check_fits(self, deltas: Deltas, state: StreamState | None = None) -> None:
        """Refuse files that the stream could not be folded or read with, before the log names them."""
        self._shape(state).with_files(deltas)

    def _shape(self, state: StreamState | None) -> StreamShape:
        """The shape of the stream's state; of None, as far as this process remembers it without a request."""
        table, known = self._catalog.remembered_table(self._table_id), self._known_shape
        if state is None:
            return known if known is not None and known.keys == table.keys else StreamShape.of(table)
        if table.keys is None and state.compacted:
            table = self._catalog.table(self._table_id)  # compacted since this process asked for the keys
        self._known_shape = shape_of(table, state, known, self._indexed(state))
        return self._known_shape

    def _indexed(self, state: StreamState) -> Callable[[], Encoding]:
        def indexed() -> Encoding:
            assert state.compacted is not None
            return read_manifest(self._store, state.index or state.compacted.index).encoding

        return indexed

    # Time

    def _now_ms(self) -> int:
        return int(self._catalog.clock() * 1000)

    def _first_position(self, asked: int | None, last: int | None, deltas: int) -> int:
        """The position of the first of so many deltas, after the last one of the stream."""
        if asked is None:
            now_ms = self._now_ms()
            asked = now_ms if last is None else max(now_ms, last + 1)
        elif last is not None and asked <= last:
            raise PositionError(f"stream position {asked} is not greater than {last}, the last one of the stream")
        if asked > INT64_MAX - deltas + 1:
            raise PositionError(f"no stream position follows {last}, the last one of the stream")
        return asked


def _positioned(deltas: Deltas, first: int) -> tuple[Delta, ...]:
    """The deltas one position after another, their files numbered."""
    return tuple(
        Delta(
            position,
            kind,
            tuple(replace(file, number=DeltaFileNumber(number)) for number, file in enumerate(files)),
        )
        for position, (kind, files) in enumerate(deltas, first)
    )


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


def _distinct_names(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
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
