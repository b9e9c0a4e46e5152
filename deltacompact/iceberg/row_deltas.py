"""Upserts and deletes by key, committed to a branch as one snapshot: data files, and equality deletes of their keys.

    batch 7      upsert 1 "a", 2 "b" · delete 3
    a.parquet    1 "a" · 2 "b"                    sequence number 5
    d.parquet    1 · 2 · 3, equality ids (1)      sequence number 5: deletes rows of 1 to 4, and none of a
    summary      deltacompact.token: batch 7      a batch with the same token is not committed again

An equality delete applies to older rows of its spec and partition (spec, "Scan Planning"), so one is written for each
spec that the branch has rows in. A branch without rows gets none. Later, `convert` marks the rows that they delete.

If the snapshot with the token has expired, a repeated batch is committed again: it replaces the rows by the same rows.
Before each attempt, a caller may check that no later batch has come.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.batching import batched
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import ConflictError, InputError, OutcomeUnknownError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.wording import columns_shown
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import APPEND, DELETE, OVERWRITE, Proposal, addition
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.codec import codec_of, delete_codec_of
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestContent, PartitionTuple
from deltacompact.iceberg.table.metadata import MAIN, TOKEN, Snapshot, TableMetadata
from deltacompact.iceberg.table.nan_counts import nan_counts
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.pyiceberg_door.transforms import (
    PartitionColumn,
    check_orders,
    partition_columns,
    partitions_of,
)
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.tabular import files, parquet_read, schemas, writing
from deltacompact.tabular.row_groups import WriteOptions

_PARTITION = "_deltacompact_partition"
_AT_ONCE_BYTES = 128 << 20
"""Bytes of rows that are divided by partition together. They are in memory a few times."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Upserts, which replace the rows of their keys, and deletes, whose keys get no row.

    No key occurs twice. Both tables have the columns of `matched_columns`.
    """

    upserts: pa.Table
    deletes: pa.Table

    @property
    def bytes(self) -> int:
        return int(self.upserts.nbytes + self.deletes.nbytes)


def key_of(metadata: TableMetadata) -> tuple[str, ...]:
    """The identifier fields. Raises InputError if the table has none, or if its format version has no deletes."""
    table = f"Iceberg table {metadata.table_id!r}"
    if metadata.format_version < 2:
        raise InputError(f"{table} has format version 1, in which no row can be deleted: upgrade it to 2")
    columns = [metadata.columns[number] for number in metadata.identifier_ids]
    if not columns:
        raise InputError(f"{table} names no identifier fields: set them, for rows are found by them")
    if nested := [column.field.name for column in columns if not column.is_top_level]:
        raise InputError(f"{table} is identified by {nested[0]!r} inside of a struct: rows are found by whole columns")
    return tuple(column.field.name for column in columns)


def matched_columns(table: IcebergTable) -> tuple[str, ...]:
    """The columns by which older rows are found: the identifier fields, and those that tell a row's partition."""
    head = table.metadata.branch(MAIN)
    listed = StateReader(table.store).listed(head) if head else []
    live = [line for line in listed if line.content is ManifestContent.DATA and line.added_files + line.existing_files]
    return _matched(table.metadata, {line.spec_id for line in live})


def _matched(metadata: TableMetadata, spec_ids: Set[int]) -> tuple[str, ...]:
    """`spec_ids`: of older rows. Other specs may have lost their columns."""
    needed = sorted(spec_ids | {metadata.default_spec_id})
    specs = [partition_columns(metadata.specs[spec_id], metadata.columns) for spec_id in needed]
    return tuple(dict.fromkeys([*key_of(metadata), *(part.source for spec in specs for part in spec if part.source)]))


def equal_columns(metadata: TableMetadata) -> tuple[str, ...]:
    """The columns that are equal in all rows that an equality delete takes from the current spec."""
    same = (part.source for part in _parts(metadata) if part.transform == "identity")
    return tuple(dict.fromkeys([*key_of(metadata), *same]))


def alike(metadata: TableMetadata, rows: pa.Table) -> pa.Table:
    """These columns, and the partition, where it is made of others: rows of two days may lie in one month."""
    equal = equal_columns(metadata)
    others = [part for part in _parts(metadata) if part.source and part.source not in equal]
    found = rows.select(list(equal))
    if not others:
        return found
    sources = pa.schema([metadata.schema.field(part.source).with_nullable(True) for part in others])
    aligned = schemas.align(rows, sources, Partition(), f"Iceberg table {metadata.table_id!r}")
    numbers, partitions = partitions_of(aligned, others)
    texts = pa.array(map(repr, partitions), pa.string())
    return found.append_column(_PARTITION, texts.take(pa.array(numbers)))


def _parts(metadata: TableMetadata) -> tuple[PartitionColumn, ...]:
    return partition_columns(metadata.specs[metadata.default_spec_id], metadata.columns)


def commit_row_delta(
    table: IcebergTable,
    batch: Iterable[KeyedRows],
    columns: Sequence[str],
    token: str,
    check: Callable[[], None],
) -> Snapshot | None:
    """Commit a batch to the main branch. None: it was committed before, or is empty.

    `columns` are those of the upserts; the table's other columns get their write defaults, or null. `check` is called
    once the head of an attempt is known; if it raises, nothing is committed. Raises InputError for columns that the
    table lacks or requires, SchemaError for a value that does not fit, ConflictError if other commits came first, and
    OutcomeUnknownError if the catalog did not say what happened: then the written files stay.
    """
    check_orders(table.metadata)
    _check_columns(table.metadata, columns)
    reader = StateReader(table.store)
    state = reader.read(table.metadata, MAIN)
    if _has(state, token):
        return None
    writer = _RowDeltaWriter(table, state)
    name = f"append-{uuid.uuid4().hex[:8]}"
    committer = Committer(table.store, reader, MAIN, name, before_attempt=lambda snapshot_id: check)
    try:
        for changes in batched(batch, lambda rows: rows.bytes, _AT_ONCE_BYTES):
            writer.write(
                pa.concat_tables(change.upserts for change in changes),
                pa.concat_tables(change.deletes for change in changes),
            )
        done = committer.commit(table, lambda head: _proposal(head, writer, token))
    except OutcomeUnknownError:
        raise  # the snapshot may be there, so its files stay
    except Exception:
        writer.discard(keep=())
        raise
    writer.discard(keep=done.outcome)
    return done.snapshot


def _has(state: TableState, token: str) -> bool:
    return any(snapshot.summary.get(TOKEN) == token for snapshot in state.metadata.ancestors(state.snapshot))


def _proposal(head: TableState, writer: _RowDeltaWriter, token: str) -> Proposal[tuple[ContentFile, ...]]:
    """Add the written files, unless the batch was committed before. The outcome: the files that it adds."""
    if _has(head, token):
        return Proposal(APPEND, (), (), ())
    if missing := {entry.file.spec_id for entry in head.data} - writer.spec_ids:
        raise ConflictError(
            f"another writer added rows of partition spec {min(missing)} to {head.metadata.table_id!r} meanwhile: "
            "run it again"
        )
    deletes = writer.deletes if head.data else []
    added = (*writer.data, *deletes)
    operation = APPEND if not deletes else OVERWRITE if writer.data else DELETE
    return Proposal(operation, (), tuple(map(addition, added)), added, {TOKEN: token})


def _check_columns(metadata: TableMetadata, columns: Sequence[str]) -> None:
    table = f"Iceberg table {metadata.table_id!r}"
    if unknown := [name for name in columns if name not in metadata.schema.names]:
        known = columns_shown(metadata.schema.names)
        raise InputError(f"{table} has no column {unknown[0]!r}: add it there, or leave it out ({known})")
    defaults = _write_defaults(metadata)
    for column in metadata.schema:
        if column.name not in columns and not column.nullable and column.name not in defaults:
            raise InputError(f"{table} needs a value in column {column.name!r}, which the rows lack")


def _write_defaults(metadata: TableMetadata) -> dict[str, pa.Scalar]:
    """What stands in rows that come without a column (spec, "Default values")."""
    today = [column for column in metadata.columns.values() if column.is_top_level and not column.is_dropped]
    return {column.field.name: column.write_default for column in today if column.write_default is not None}


def _without_uuid_bounds(file: ContentFile, metadata: TableMetadata) -> ContentFile:
    """The file without bounds of UUIDs, by which readers would skip a delete that applies.

    Iceberg's Java compares the halves of a UUID as signed numbers, and Parquet orders its bytes without a sign. So for
    Java, nothing lies between bounds 0… and f….
    """

    def known(bounds: Mapping[int, bytes]) -> dict[int, bytes]:
        return {number: bound for number, bound in bounds.items() if metadata.columns[number].type != "uuid"}

    return replace(file, lower_bounds=known(file.lower_bounds), upper_bounds=known(file.upper_bounds))


@dataclass(slots=True)
class _RowDeltaWriter:
    """Writes the files of one snapshot. `spec_ids`: the partition specs whose rows the deletes apply to."""

    table: IcebergTable
    state: TableState
    data: list[ContentFile] = field(default_factory=list)
    deletes: list[ContentFile] = field(default_factory=list)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def spec_ids(self) -> frozenset[int]:
        return frozenset(entry.file.spec_id for entry in self.state.data)

    def write(self, upserts: pa.Table, deletes: pa.Table) -> None:
        """Add files with these rows. Raises InputError for a null in a column that must have a value."""
        metadata, name = self.state.metadata, f"Iceberg table {self.state.metadata.table_id!r}"
        for missing, value in _write_defaults(metadata).items():
            if missing not in upserts.schema.names:
                upserts = upserts.append_column(missing, pa.repeat(value, upserts.num_rows))
        rows = schemas.align(upserts, metadata.schema, Partition(), name)
        for column in metadata.schema:
            if not column.nullable and rows[column.name].null_count:
                raise InputError(f"{name} needs a value in column {column.name!r}, which is null in a row")
        self.data += self._files(rows, metadata.default_spec_id, Content.DATA, metadata.schema)
        if self.spec_ids:
            names = _matched(metadata, self.spec_ids)
            matched = pa.schema([metadata.schema.field(name).with_nullable(True) for name in names])
            gone = pa.concat_tables([schemas.align(table, matched, Partition(), name) for table in (deletes, rows)])
            key = pa.schema([metadata.schema.field(name) for name in key_of(metadata)])
            for column in key.names:  # no stored row has a null in its key, so such a delete hits nothing
                gone = gone.filter(pc.field(column).is_valid())
            for spec_id in sorted(self.spec_ids):
                self.deletes += self._files(gone, spec_id, Content.EQUALITY_DELETES, key)

    def discard(self, keep: Iterable[ContentFile]) -> None:
        """Delete the written files that are not in `keep`."""
        kept = {file.path for file in keep}
        written = (file.path for file in (*self.data, *self.deletes))
        locations.discard_all(self.table.store, (path for path in written if path not in kept))

    def _files(self, rows: pa.Table, spec_id: int, content: Content, columns: pa.Schema) -> Iterator[ContentFile]:
        """A file for each partition of a spec."""
        if not rows.num_rows:
            return
        metadata = self.state.metadata
        numbers, partitions = partitions_of(rows, partition_columns(metadata.specs[spec_id], metadata.columns))
        order = np.argsort(numbers, kind="stable")
        stops = np.cumsum(np.bincount(numbers, minlength=len(partitions)))
        stored = pa.Table.from_arrays([rows[name] for name in columns.names], schema=columns)
        for partition, places in zip(partitions, np.split(order, stops[:-1]), strict=True):
            yield self._file(stored.take(pa.array(places)), spec_id, partition, content)

    def _file(self, rows: pa.Table, spec_id: int, partition: PartitionTuple, content: Content) -> ContentFile:
        store, metadata = self.table.store, self.state.metadata
        kind = "data" if content is Content.DATA else "deletes"
        path = f"{metadata.data_folder}/{self.name}-{uuid.uuid4().hex[:12]}-{kind}.parquet"
        codec = (codec_of if content is Content.DATA else delete_codec_of)(metadata.properties)
        options = WriteOptions(ContentType.PARQUET, codec)
        with writing.writer(store, locations.readable(path), rows.schema, options) as out:
            out.write(rows)
        written = DataFile(
            UNNUMBERED, locations.readable(path), ContentType.PARQUET, rows.num_rows, out.bytes, rows.schema
        )
        with files.opened(store, written) as source:
            footer = parquet_read.described(source).metadata
        key = key_of(metadata)
        nans = nan_counts(store, written, self.table.counted_for_nan(key), READ_LIMITS)
        plain = ContentFile(content, path, "PARQUET", spec_id, partition, rows.num_rows, out.bytes)
        measured = self.table.with_metrics(plain, footer, nans, key)
        if content is Content.DATA:
            return measured
        return replace(_without_uuid_bounds(measured, metadata), equality_ids=metadata.identifier_ids)
