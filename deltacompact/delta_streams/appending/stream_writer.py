"""Writing to one partition stream: first data under names used once, then the log entry that makes it visible.

    append    check the rows · write data/5c….parquet · put `committed`
    files     check all files · copy each, or leave it in place · put `committed`
    restate   write data/77….parquet · write a successor that holds it · seal the base in its favour

The writer checks rows against the stream (stream_fit.py) before it writes anything, and again against the state below
the new entry. It deletes the data of a refused commit (written_files.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit, Delta
from deltacompact.base.errors import ConflictError, InputError, PositionError, SchemaError, TokenError
from deltacompact.base.model import INT64_MAX, ContentType, OperationType, Partition, SchemaMode
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.tokens import Token, TokenLike
from deltacompact.delta_streams.appending.incoming import Rows, check_compactable, incoming, write_rows
from deltacompact.delta_streams.appending.new_columns import adding_to, check_names
from deltacompact.delta_streams.appending.positions import checked_position
from deltacompact.delta_streams.appending.shape import StreamShape
from deltacompact.delta_streams.appending.source_files import SourceFiles, distinct_names
from deltacompact.delta_streams.appending.stream_fit import Deltas, StreamFit
from deltacompact.delta_streams.appending.written_files import calling, discard, discarding
from deltacompact.delta_streams.log.entries import CommittedEntry, Entry
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.log.tokens import TokenCommit
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.table_documents import is_destination
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.tabular import formats, schemas
from deltacompact.tabular.inferred_keys import KeyTexts
from deltacompact.tabular.row_groups import WriteOptions

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_LOOK_AGAIN_AFTER_S = 5.0
"""A writer reads table.json when it begins, and again before it commits, if at least this time has passed."""

_FILES_AT_ONCE = 8
"""Files of a remote store that are looked at or copied at a time: each takes a few requests, and buffers."""


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """The token of a commit, and the stream position of its first delta (None: from the clock).

    `schema_mode`: whether it may add columns. None: as the table says.
    `one_operation`: the caller named the operation. What a batch of several leaves depends on the release.
    """

    position: int | None = None
    token: Token | None = None
    schema_mode: SchemaMode | None = None
    one_operation: bool = False

    @classmethod
    def of(
        cls,
        position: int | None,
        token: TokenLike,
        now_s: float,
        *,
        deltas: int = 1,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
    ) -> CommitTerms:
        """What a caller says. Raises PositionError for a position without room for the deltas: see checked_position."""
        first = checked_position(position, deltas, force_position, now_s)
        return cls(first, Token.of(token), None if schema_mode is None else SchemaMode.of(schema_mode))

    def stand_for(self, committed: tuple[OperationType, ...], kinds: tuple[OperationType, ...]) -> bool:
        """Whether deltas of these kinds may be a batch that the token has committed before.

        How many deltas have a kind does not count. Of events that are read together, a release may supersede all that
        make deltas of one kind.
        """
        return {*kinds} == {*committed} if self.one_operation else {*kinds} <= {*committed}


class StreamWriter:
    """Writes to one partition stream. `fit` says what the stream holds, and what may be added."""

    def __init__(self, catalog: Streams, table_id: str, partition: Partition) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._table_id = table_id
        self._table = catalog.remembered_table(table_id)
        self._partition = partition
        self._paths = TablePaths.of(table_id).stream(partition)
        self._files_at_once = min(_FILES_AT_ONCE, catalog.at_once)
        self.fit = StreamFit(catalog, table_id, partition)

    def append(self, tables: Any, operation: OperationType, keys: TableKeys | None, terms: CommitTerms) -> Delta:
        """Write rows, a file for each table, and commit them as one delta."""
        terms = replace(terms, one_operation=True)
        begun_s = self._catalog.clock()
        if (known := self.committed_by(terms, (operation,))) is not None:
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
        terms = replace(terms, one_operation=True)
        begun_s = self._catalog.clock()
        if (known := self.committed_by(terms, (operation,))) is not None:
            return known[0]
        kinds = {content_type or formats.content_type_of(source) for source in sources}
        is_text = not kinds.isdisjoint(formats.UNTYPED)
        types, inspected, names = self.fit.known_types() if is_text else None, list[DataFile](), distinct_names(sources)
        files = SourceFiles(self._store, self._paths, self._partition, keys, reference, KeyTexts.of(types))
        # The types of a text are those of the texts before. Of Parquet footers are enough, others may be fetched whole.
        ahead = names if kinds == {ContentType.PARQUET} else []
        typed = side_by_side(ahead, lambda name: files.inspected(name, content_type, None), self._files_at_once)
        for source, found in zip_longest(names, typed):
            file = found or files.inspected(source, content_type, types)
            if types is not None and (more := self.fit.types_with_others(types, file)) is not types:
                types = more
                file = files.inspected(source, content_type, types)
            inspected.append(file)
            if len(inspected) == 1 or file.schema != inspected[-2].schema:
                if operation is OperationType.UPSERT:
                    check_compactable(file)
                types = schemas.with_types(types, file.schema, keys.columns if keys else ())
        self.fit.checked([(operation, inspected)])
        # All files have passed the check before the first copy.
        taken = iter(inspected) if reference else self._copied(files, inspected, types)
        return self._commit_taken(operation, taken, terms, begun_s)

    def _copied(self, files: SourceFiles, inspected: Sequence[DataFile], types: pa.Schema | None) -> Iterator[DataFile]:
        """Copies of the files, a few at a time. Those that are made come before an error, so that they are deleted."""
        for first in range(0, len(inspected), self._files_at_once):
            some = inspected[first : first + self._files_at_once]
            copies, errors = done_for_each(some, lambda file: files.copied(file, types), self._files_at_once)
            yield from copies
            if errors:
                raise errors[0][1]

    def write(self, rows: Rows, operation: OperationType, keys: TableKeys | None) -> DataFile:
        """Write rows as one file, for `commit_files`. Raises SchemaError if they do not fit the stream."""
        options = WriteOptions()
        path = self._paths.fresh("data", formats.suffix_of(options.content_type))
        self.fit.check_file(operation, rows.described(options.content_type))
        return write_rows(self._store, path, rows, self._partition, options, keys)

    def check(self, deltas: Deltas, terms: CommitTerms, called: Mapping[str, str]) -> list[DataFile]:
        """The upserts that add to the columns of the stream, with what is new alone, under the caller's names.

        Raises SchemaError for written files that the stream would refuse now. `called` as in `commit_files`.
        """
        log = self._catalog.log(self._table_id, self._partition)
        state = log.active() if log.exists() else None
        with calling([file for _, files in deltas for file in files], called):
            self.fit.check_first(deltas, terms.schema_mode)
            self.fit.new_columns(self.fit.checked(deltas, state), state, terms.schema_mode)
        adding = self.fit.adding(deltas, state)
        return [replace(file, path=called.get(file.path, file.path)) for file in adding]

    def commit_files(
        self, deltas: Deltas, terms: CommitTerms, begun_s: float, called: Mapping[str, str] | None = None
    ) -> tuple[Delta, ...]:
        """Commit written or copied files. Deletes them if they are refused, or if another process was first.

        `called`: the names of files for messages, by path.
        """
        files = [file for _, files in deltas for file in files]
        refused = discarding(self._store, files, InputError)  # after another error the log may name them
        with calling(files, called), refused:
            committed = self.commit(deltas, terms, begun_s)
        if not committed[0].committed:  # another process has committed the token since this one read the log
            self.discard(files)
        return committed

    def commit(self, deltas: Deltas, terms: CommitTerms, begun_s: float | None) -> tuple[Delta, ...]:
        """Put one entry for all deltas; try again after each lost slot. A known token commits nothing."""
        self.fit.checked(deltas)
        self.fit.check_first(deltas, terms.schema_mode)
        commit_id = uuid.uuid4().hex
        kinds = tuple(kind for kind, _ in deltas)
        outcome: list[tuple[Delta, ...]] = []

        def decide(state: StreamState) -> Entry | None:
            outcome.clear()
            if terms.token and (known := state.known(terms.token)):
                outcome.append(_skipped(self._table_id, terms, known, kinds))
                return None
            if state.compacted and state.compacted.source_table_id != self._table_id:
                raise is_destination(self._table_id, state.compacted.source_table_id)
            fitting = self.fit.checked(deltas, state)
            new = self.fit.new_columns(fitting, state, terms.schema_mode)
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
        now_ms = self._now_ms()
        # Not above the position of any delta that is carried over on top.
        position = -INT64_MAX - 1 if base.last_position is None else base.last_position
        opened = log.opened_after(base, now_ms, position)
        commit = Commit(opened.lineage, now_ms, (Delta(position, OperationType.UPSERT, files),))
        successor = log.write_version(opened.number, [opened, CommittedEntry(commit)])

        def check(state: StreamState) -> None:
            if state.sealed:
                where = f"table {self._table_id!r}, partition {self._partition}"
                raise ConflictError(f"{where}: compacted or restated meanwhile")
            self.fit.check_carried(files, state, state.commits[len(base.commits) :])
            self._catalog.check_age(begun_s)
            self._refuse_another_table(begun_s)

        with telling_interrupts(), discarding(self._store, files, SchemaError):  # raised before the seal
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
        with discarding(self._store, files, BaseException), calling(files):
            for number, rows in enumerate(tables):
                check_names(rows.schema.names, rows.name)
                shape.with_file(OperationType.UPSERT, rows.described(options.content_type), self.fit.measured)
                path = self._paths.fresh("data", formats.suffix_of(options.content_type))
                written = write_rows(self._store, path, rows, self._partition, options, keys)
                files.append(replace(self.fit.as_logged(written), number=DeltaFileNumber(number)))
                shape = shape.with_file(OperationType.UPSERT, written, self.fit.measured)
            before = base.compacted.schema if base.compacted else pa.schema([])
            self.fit.check_published(adding_to(before, files), pa.schema([]))
        return tuple(files)

    def _commit_taken(
        self, operation: OperationType, taken: Iterator[DataFile], terms: CommitTerms, begun_s: float
    ) -> Delta:
        """Write or copy the files, then commit them. If one is refused, delete all of them."""
        files: list[DataFile] = []
        with discarding(self._store, files, BaseException):
            for file in taken:
                files.append(file)
        return self.commit_files([(operation, files)], terms, begun_s)[0]

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the files among these that the table owns. No log may name them."""
        discard(self._store, files)

    # Tokens

    def knows(self, token: Token | None) -> bool:
        """Whether a commit with this token is in the log."""
        log = self._catalog.log(self._table_id, self._partition)
        return token is not None and log.exists() and log.recent().known(token) is not None

    def committed_by(
        self, terms: CommitTerms, kinds: tuple[OperationType, ...] | None = None
    ) -> tuple[Delta, ...] | None:
        """The deltas that the token committed before: their data need not be written again. None: the token is new.

        `kinds` None: the operations are not known, because nothing is read yet, or do not count. Raises TokenError if
        the token stands for other operations.
        """
        log = self._catalog.log(self._table_id, self._partition)
        if terms.token is None or not log.exists():
            return None
        known = log.recent().known(terms.token)
        if known is None:
            return None
        return _skipped(self._table_id, terms, known, kinds or known.operations or (OperationType.UPSERT,))

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


def writer_of(streams: Streams, table_id: str, partition: Partition) -> StreamWriter:
    """The writer of a stream. It remembers what the stream holds, and `streams` remembers the writer."""
    key = (table_id, partition)
    if key not in streams.writers:
        streams.writers[key] = StreamWriter(streams, table_id, partition)
    writer: StreamWriter = streams.writers[key]
    return writer


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


def _skipped(
    table_id: str, terms: CommitTerms, known: TokenCommit, kinds: tuple[OperationType, ...]
) -> tuple[Delta, ...]:
    """The deltas that a known token committed. They have files as long as they are not compacted.

    Raises TokenError if the token stands for other operations: then two batches have the same token.
    """
    token = terms.token
    assert token is not None
    why = f"token {token} known since position {known.position}"
    if token.sequence is not None and token.sequence != known.sequence:
        why = f"{why}, where its producer is at sequence {known.sequence}"
        return tuple(Delta(known.position, kind, skipped=why) for kind in kinds)
    if known.operations and not terms.stand_for(known.operations, kinds):
        committed, asked = ("+".join(operations) for operations in (known.operations, kinds))
        raise TokenError(
            f"table {table_id!r}: token {token} stands for the {committed} at position {known.position}, not for this "
            f"{asked}: give every batch a token of its own"
        )
    if known.deltas:
        return tuple(replace(delta, skipped=why) for delta in known.deltas)
    return tuple(Delta(known.position, kind, skipped=why) for kind in kinds)
