"""Appends change events, or rows of many partitions: one commit for each partition.

    op  day   id             day=1   delete data/9a….parquet  id 2          position 41
    c   1     1                      upsert data/5c….parquet  id 1          position 42
    d   1     2              day=2   upsert data/e1….parquet  id 3          position 41
    u   2     3

All rows are read, checked and written before the first commit, so a bad row commits nothing. Each partition's log knows
the token of its commit: after a crash between two commits the same call, before any later batch, commits the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Appended, Delta
from deltacompact.base.errors import ConflictError, DeltaCompactError, SchemaError, TokenError
from deltacompact.base.model import ContentType, OperationType, Partition, Table
from deltacompact.base.partitions import all_done, done_for_each
from deltacompact.base.tokens import Token
from deltacompact.base.wording import one_line
from deltacompact.change_events.envelopes import unwrapped
from deltacompact.change_events.events import Events, Origin, all_places, joined
from deltacompact.change_events.formats import Envelope
from deltacompact.change_events.last_events import last_events
from deltacompact.change_events.messages import read_messages
from deltacompact.change_events.operations import Operations
from deltacompact.change_events.partitions import by_partition, check_partition_columns
from deltacompact.change_events.sort_texts import compared_as_texts, in_their_order
from deltacompact.change_events.source_tables import SourceTable
from deltacompact.delta_streams.appending.change_options import ChangeOptions
from deltacompact.delta_streams.appending.incoming import incoming, rows_of
from deltacompact.delta_streams.appending.known_partitions import KnownPartitions, known_partitions
from deltacompact.delta_streams.appending.sources import canonical_name
from deltacompact.delta_streams.appending.stream_fit import StreamFit
from deltacompact.delta_streams.appending.stream_writer import CommitTerms, StreamWriter, writer_of
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.identity import is_uri
from deltacompact.storage.opening import as_uri, open_object
from deltacompact.tabular import files, formats, partition_texts, schemas
from deltacompact.tabular.avro_files import read_avro
from deltacompact.tabular.damage import naming
from deltacompact.tabular.file_text import whole_text
from deltacompact.tabular.inferred_keys import KeyTexts
from deltacompact.tabular.inspecting import Asked, contradicted, inspect

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_KINDS = (OperationType.DELETE, OperationType.UPSERT)
"""In the order of their deltas."""


@dataclass(slots=True)
class _PartitionRows:
    """What is written to one partition. `is_known`: its log knows the token, so nothing is written.

    `committed`: the deltas that the token has committed, now or before.
    """

    partition: Partition
    writer: StreamWriter
    is_known: bool
    deltas: list[tuple[OperationType, list[DataFile]]] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)
    committed: tuple[Delta, ...] = ()

    @property
    def files(self) -> list[DataFile]:
        return [file for _, files in self.deltas for file in files]

    def add(self, kind: OperationType, file: DataFile | None, name: str) -> None:
        """Add a file. Successive files of one operation are one delta."""
        if not self.deltas or self.deltas[-1][0] is not kind:
            self.deltas.append((kind, []))
        if file is not None:
            self.deltas[-1][1].append(file)
            self.called[file.path] = name

    def put_deletes_first(self) -> None:
        """One delta has all deletes, and the next one all upserts."""
        together: dict[OperationType, list[DataFile]] = {}
        for kind, added in self.deltas:
            together.setdefault(kind, []).extend(added)
        self.deltas = [(kind, together[kind]) for kind in _KINDS if kind in together]


class ChangesWriter:
    """Writes one batch of change events to the partitions of a table."""

    def __init__(self, catalog: Streams, table: Table, options: ChangeOptions, terms: CommitTerms) -> None:
        self._catalog = catalog
        self._table = table
        self._options = options
        self._terms = replace(terms, one_operation=options.says_operation is None)
        self._begun_s = catalog.clock()
        self._parts: dict[Partition, _PartitionRows] = {}
        self._known: KnownPartitions | None = None
        self._source = SourceTable()
        self._compared_as_texts: dict[str, None] = {}

    def append(self, tables: Any) -> Appended:
        """Commit the rows. Raises InputError, before anything is committed, naming table and row."""
        known = self._known_types() if self._options.says_operation is not None else pa.schema([])
        self._prepare(self._events(table, origin, known) for table, origin in _numbered(tables))
        return self._commit_all()

    def append_files(self, sources: Sequence[str], content_type: ContentType | None) -> Appended:
        """Commit the rows of files. Raises InputError, before anything is committed, naming file and row or line.

        Files of one partition are not read if its log knows the token, whatever operations it stood for.
        """
        if not self._options.routed and (known := self._committed_before()) is not None:
            return Appended((known,))
        says = self._options.says_operation
        if isinstance(says, Operations):
            sources = says.in_order(sources)
        distinct = {canonical_name(source): source for source in sources}
        while True:
            try:
                self._prepare(self._events_of(distinct.values(), content_type))
            except SchemaError:
                if not self._learns_types():
                    raise
                self._parts, self._source, self._compared_as_texts = {}, SourceTable(), {}
            else:
                return self._commit_all()

    def _prepare(self, batches: Iterable[Events]) -> None:
        """Write files, and check that they can be committed."""
        try:
            for events in joined(batches):
                self._write(events)
            if not self._options.in_order:
                for part in self._parts.values():
                    part.put_deletes_first()
            known = [part for part in self._parts.values() if part.is_known]
            all_done(known, self._look_up, self._catalog.at_once)
            new = [part for part in self._parts.values() if not part.is_known]
            added = all_done(new, self._check, self._catalog.at_once)
            schemas.union(chain.from_iterable(added))  # raises where two partitions would get one column with two types
        except BaseException:
            for part in self._parts.values():
                part.writer.discard(part.files)
            raise

    def _commit_all(self) -> Appended:
        committed = self._committed(sorted(self._parts.values(), key=lambda part: str(part.partition)))
        return Appended(tuple(committed), tuple(self._compared_as_texts))

    def _committed_before(self) -> tuple[Partition, tuple[Delta, ...]] | None:
        """The only partition, and what its log has of the token."""
        partition = self._partition({})
        deltas = self._writer(partition).committed_by(self._terms)
        return None if deltas is None else (partition, deltas)

    # Reading

    def _events_of(self, sources: Iterable[str], content_type: ContentType | None) -> Iterator[Events]:
        """The events of files. Text takes the types that earlier files have."""
        known, keys = self._known_types(), self._table.keys
        texts = KeyTexts.of(known)
        for source in sources:
            for table, origin in self._read(source, content_type, known, texts):
                yield (events := self._events(table, origin, known))
                for schema in events.schemas:
                    known = schemas.with_types(known, schema, keys.columns if keys else ())

    def _events(self, table: pa.Table, origin: Origin, known: pa.Schema) -> Events:
        options, keys = self._options, self._table.keys
        table = schemas.computable(table, origin.name)
        schemas.check_columns(table.schema, origin.name)
        if isinstance(options.says_operation, Envelope):
            assert keys is not None
            with naming(origin.name):
                events = unwrapped(
                    table, options.says_operation, origin, keys, options.routed, self._fixed(), self._source
                )
            return self._in_order(events, known)
        check_partition_columns(table, options.routed, origin, options.null_is_partition)
        if options.says_operation is not None:
            assert keys is not None
            events = options.says_operation.events(table, origin, keys, self._table.partition_keys)
            return self._in_order(events, known)
        rows, nothing = all_places(table), all_places(table.slice(0, 0))
        is_upsert = options.operation is OperationType.UPSERT
        return Events(origin.name, rows if is_upsert else nothing, nothing if is_upsert else rows)

    def _in_order(self, events: Events, known: pa.Schema) -> Events:
        """The events, with sort keys that are texts in the order of what they say. A net change keeps its types."""
        if not self._options.in_order:
            return events
        keys = self._table.keys
        assert keys is not None
        types, untyped = schemas.known_types(known), self._known_of_table().untyped
        events = in_their_order(events, keys, types, untyped, isinstance(self._options.says_operation, Envelope))
        self._compared_as_texts |= dict.fromkeys(compared_as_texts(events, keys))
        return events

    def _read(
        self, source: str, content_type: ContentType | None, known: pa.Schema, texts: KeyTexts
    ) -> Iterator[tuple[pa.Table, Origin]]:
        uri = as_uri(source if is_uri(source) else os.path.abspath(source))
        says, keys = self._options.says_operation, self._table.keys
        if says is not None and formats.is_avro(source):
            store, path = open_object(self._catalog.store, uri)
            with naming(source), store.open(path) as opened:
                yield read_avro(opened, source), Origin(source)
            return
        format_ = content_type or formats.content_type_of(source)
        if isinstance(says, Envelope) and format_ is ContentType.JSON:
            assert keys is not None
            store, path = open_object(self._catalog.store, uri)
            with naming(source), contradicted(store, path, format_):
                with store.open(path) as opened:
                    text = whole_text(opened, source)
                messages = read_messages(text, source, says, known, keys)
            yield messages
            return
        asked = Asked.of(keys, self._table.partition_keys, texts, known)
        inspected = partial(inspect, self._catalog.store, uri, format_, managed=False)
        file = inspected(asked)
        if names := self._known_of_table().texts_of(file):
            known = pa.schema([*known, *((name, pa.string()) for name in names)])
            file = inspected(replace(asked, known=known))
        if not file.rows and format_ is ContentType.CSV:  # its header may lack the operation
            yield file.schema.empty_table(), Origin(source)
        for first, table in files.read(self._catalog.store, file):
            yield table, _origin(source, first, table)

    def _known_types(self) -> pa.Schema:
        """The types for the columns of text files: those of the partition, or of the table's last partition."""
        if not self._options.routed:
            return self._writer(self._partition({})).fit.known_types()
        return self._known_of_table().columns

    def _learns_types(self) -> bool:
        """Ask the partitions that rows went to for types that the last partition lacks. False: they have none."""
        if not self._options.routed:
            return False
        known, keys = self._known_of_table(), self._table.keys
        types = known.columns
        fits = [part.writer.fit for part in self._parts.values()]
        for found in all_done(fits, StreamFit.known_types, self._catalog.at_once):
            types = schemas.with_types(types, found, keys.columns if keys else ())
        self._known = replace(known, columns=types)
        return schemas.known_types(types) != schemas.known_types(known.columns)

    def _known_of_table(self) -> KnownPartitions:
        if self._known is None:
            fit = StreamFit(self._catalog, self._table.table_id, Partition())
            self._known = known_partitions(fit, self._options.routed)
        return self._known

    # Writing

    def _fixed(self) -> dict[str, str | None]:
        """The partition values that the caller gives, as texts."""
        values = self._partition(dict.fromkeys(self._options.routed)).values
        return {name: text for name, text in values if name not in self._options.routed}

    def _partition(self, values: Mapping[str, str | None]) -> Partition:
        return Partition.of(self._table.partition_keys, {**self._options.fixed, **values})

    def _writer(self, partition: Partition) -> StreamWriter:
        return writer_of(self._catalog, self._table.table_id, partition)

    def _write(self, events: Events) -> None:
        work = []
        for values, here in by_partition(events, self._options.routed, self._known_of_table().routes):
            partition = self._partition(values)
            if here.count and partition not in self._parts:
                self._parts[partition] = _PartitionRows(partition, self._writer(partition), False)
                work.append((self._parts[partition], here, True))
            elif here.count:
                work.append((self._parts[partition], here, False))
        all_done(work, lambda of_part: self._write_part(*of_part), self._catalog.at_once)

    def _write_part(self, part: _PartitionRows, events: Events, is_new: bool) -> None:
        if is_new:
            part.is_known = part.writer.knows(self._terms.token)
        keys = self._table.keys
        if self._options.says_operation is not None:
            assert keys is not None
            partition_texts.check_partition_values(events.deletes.rows, part.partition, events.name)
            if self._options.in_order:
                events = last_events(events, keys, self._table.partition_keys)
        for kind, rows in zip(_KINDS, (events.deletes.rows, events.upserts.rows), strict=True):
            if not rows.num_rows:
                continue
            given = None if part.is_known else rows_of(rows, events.name)
            part.add(kind, part.writer.write(given, kind, keys) if given else None, events.name)

    def _look_up(self, part: _PartitionRows) -> None:
        """Take the deltas of a known token from the log. Raises TokenError if it stands for another batch."""
        # The token of a net change names the change. Another release may divide it into other operations.
        kinds = tuple(kind for kind, _ in part.deltas) if self._options.in_order else None
        committed = part.writer.committed_by(self._terms, kinds)
        if committed is None:
            raise ConflictError(f"partition {part.partition}: the log forgot token {self._terms.token}: append again")
        part.committed = committed

    def _check(self, part: _PartitionRows) -> list[DataFile]:
        return part.writer.check(part.deltas, self._terms, part.called)

    # Committing

    def _committed(self, parts: Sequence[_PartitionRows]) -> list[tuple[Partition, tuple[Delta, ...]]]:
        earlier = sum(part.is_known for part in parts)
        # Without a token the user has to know each partition that is committed.
        told = partial(committed_so_far, of=len(parts), token=self._terms.token)
        summary = (lambda count: told(earlier + count)) if self._terms.token else None
        with telling_interrupts(summary):
            done, errors = done_for_each(parts, self._commit, self._catalog.at_once)
        if not errors:
            return done
        part, error = errors[0]
        raise of_partition(part.partition, error, len(done), len(parts), self._terms.token) from error

    def _commit(self, part: _PartitionRows) -> tuple[Partition, tuple[Delta, ...]]:
        if not part.is_known:
            part.committed = part.writer.commit_files(part.deltas, self._terms, self._begun_s, part.called)
        return part.partition, part.committed


def committed_so_far(count: int, of: int, token: Token | None) -> str:
    """How many partitions are committed, and what to do about the others."""
    again = "repeat the append with the same token" if token else "append their rows again"
    return f"{count:,} of {of:,} partitions are committed; for the others {again}, before any later batch"


def of_partition(partition: Partition, error: Exception, count: int, of: int, token: Token | None) -> Exception:
    """The error of a partition, which says how many others are committed."""
    if not count:
        return error
    if isinstance(error, TokenError):  # another process was faster: the same token would be refused again
        token = None
    kind = type(error) if isinstance(error, DeltaCompactError) else DeltaCompactError
    return kind(f"partition {partition}: {one_line(error)} ({committed_so_far(count, of, token)})")


def _numbered(tables: Any) -> Iterator[tuple[pa.Table, Origin]]:
    for rows in incoming(tables):
        first = 0
        for table in rows.tables:
            yield table, _origin(rows.name, first, table)
            first += table.num_rows


def _origin(name: str, first: int, table: pa.Table) -> Origin:
    return Origin(name, np.arange(first + 1, first + 1 + table.num_rows) if first else None)
