"""Reading a table as it is now: compacted files, folded with the deltas that are not compacted yet.

    compacted  k1 k2 k3      delta 90: upsert k1, delete k3      ->  k2 of the compacted file, k1 of the delta

The same steps as a compaction, in this process, publishing nothing. A table without keys returns its upsert rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltacompact import _kernels
from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, DataFile, OperationType, Partition, Table
from deltacompact.catalog.delta_stream.advice import advising
from deltacompact.index.live_bitmaps import live_bits, live_mask
from deltacompact.index.primary_key_index import empty_manifest, read_manifest
from deltacompact.index.remap import Relocator
from deltacompact.index.sort_widths import measured
from deltacompact.planning.plan import Arguments, Capacity, CompactionPlan, NothingToDo, Source, plan, session_input
from deltacompact.steps.dedupe import BaseIndex, Folded
from deltacompact.steps.hash_bucket import SourceSlice, hash_bucket, slices
from deltacompact.storage.opening import open_object
from deltacompact.tabular import files, schemas

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
    from deltacompact.catalog.delta_stream.state import StreamState
    from deltacompact.storage.objects import ObjectStore

_HERE = Capacity(1, 1 << 40, 1 << 40)


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read of a table: a partition (None: all), columns (None: all), rows that a filter lets through.

    `filter` is an expression of pyarrow.compute, or a list of (column, operator, value) as pyarrow.parquet.read_table
    takes it, of which only the columns are read. `version` names a version of one partition (None: the active one).
    """

    table_id: str
    partition: Mapping[str, Any] | Partition | None = None
    columns: Sequence[str] | None = None
    filter: Any = None
    version: str | None = None

    def __post_init__(self) -> None:
        expect.text_or_none("version", self.version)
        if self.columns is not None:
            columns = expect.several("columns", self.columns)
            for name in columns:
                expect.text("a name in columns", name)
            object.__setattr__(self, "columns", columns)  # an iterator is gone through once


def read_table(catalog: DeltaStreamCatalog, scan: Scan) -> pa.Table:
    """The live rows: a snapshot of each partition, none across them."""
    schema, found = scanned(catalog, scan)
    tables = list(found)
    return pa.concat_tables(tables) if tables else schema.empty_table()


def scan_table(catalog: DeltaStreamCatalog, scan: Scan) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    schema, tables = scanned(catalog, scan)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def scanned(catalog: DeltaStreamCatalog, scan: Scan) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema, and the live rows in fold order, partition by partition.

    Raises NotFoundError for an unknown table, partition or version, InputError for an unknown column.
    """
    table = catalog.table(scan.table_id)
    states = [(place, _state(catalog, scan, place)) for place in _chosen(catalog, scan, table)]
    table = with_keys_of(catalog, table, [state for _, state in states])
    described = []
    for place, state in states:
        with advising(catalog.uri, scan.table_id, place, state):
            described.append(DataFile(0, f"{scan.table_id}/{place}", ContentType.PARQUET, 1, 0, schema_of(state)))
    whole = schemas.unmarked(schemas.union(described))
    wanted = _selected(scan.table_id, whole, scan.columns)
    expression, filtered = _filter(scan.filter)
    needed = whole
    if filtered is not None:
        extra = _selected(scan.table_id, whole, filtered).names if filtered else []
        names = dict.fromkeys([*wanted.names, *extra])
        needed = pa.schema([field for field in whole if field.name in names])

    def tables() -> Iterator[pa.Table]:
        for place, state in states:
            with advising(catalog.uri, scan.table_id, place, state):
                for rows in live_batches(catalog.store, state, table, place, needed):
                    kept = rows if expression is None else _filtered(rows, expression)
                    yield kept.select(wanted.names)

    return wanted, tables()


def _chosen(catalog: DeltaStreamCatalog, scan: Scan, table: Table) -> list[Partition]:
    if scan.partition is not None:
        return [catalog.partition(scan.table_id, scan.partition)]
    if scan.version is not None and table.partition_keys:
        raise InputError(f"version {scan.version!r}: versions are those of one partition, name it")
    return catalog.partitions(scan.table_id)


def _state(catalog: DeltaStreamCatalog, scan: Scan, partition: Partition) -> StreamState:
    from deltacompact.catalog.delta_stream.versions import state_of_version

    if scan.version is None:
        return catalog.state(scan.table_id, partition)
    return state_of_version(catalog, scan.table_id, partition, scan.version)


def with_keys_of(catalog: DeltaStreamCatalog, table: Table, states: Sequence[StreamState]) -> Table:
    """A table that was read before these states, with the keys by which they are folded.

    The first compaction declares the keys before its seal: a compacted state says that there are some by now.
    """
    if table.keys is None and any(state.compacted for state in states):
        return catalog.table(table.table_id)
    return table


def _selected(table_id: str, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if not columns:
        raise InputError("columns: name at least one column (leave them out for all)")
    for name in columns:
        if name not in schema.names:
            known = ", ".join(schema.names)
            raise InputError(f"table {table_id!r} has no column {name!r} (columns: {known})")
    return pa.schema([schema.field(name) for name in columns])


def _filter(given: Any) -> tuple[pc.Expression | None, list[str] | None]:
    """The expression, and the columns that it needs (None: it does not say)."""
    if given is None:
        return None, []
    if isinstance(given, pc.Expression):
        return given, None
    try:
        flat = [term for terms in given for term in (terms if isinstance(terms, list) else [terms])]
        return pq.filters_to_expression(given), [name for name, _, _ in flat]
    except (TypeError, ValueError) as error:
        raise InputError(f"filter {given!r} is no list of (column, operator, value): {error}") from None


def _filtered(rows: pa.Table, expression: pc.Expression) -> pa.Table:
    try:
        return rows.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InputError(f"filter {expression}: {' '.join(str(error).split())}") from None


def schema_of(state: StreamState) -> pa.Schema:
    """Columns of the rows: the union over upserts. Deletes add none."""
    upserts = [f for d in state.deltas if d.operation is OperationType.UPSERT for f in d.files]
    compacted = list(state.compacted.files) if state.compacted else []
    return schemas.union([*compacted, *upserts], state.compacted.schema if state.compacted else None)


def live_batches(
    store: ObjectStore, state: StreamState, table: Table, partition: Partition, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The live rows of a stream's state in fold order, file by file, with the columns of `schema`."""
    if table.keys is None or not state.deltas:
        upserts = [f for d in state.deltas if d.operation is OperationType.UPSERT for f in d.files]
        for file in [*(state.compacted.files if state.compacted else ()), *upserts]:
            if (bits := live_bits(store, file)) is not None:
                yield from live_rows_of(store, file, bits, partition, schema)
                continue
            for _, rows in files.read(store, file, schema.names):
                schemas.check_partition_values(rows, partition, file.path)
                yield schemas.align(rows, schema, partition, file.path)
        return
    for source, bits in live_sources(store, state, table, partition):
        yield from live_rows_of(store, source.file, bits, partition, schema)


def live_rows_of(
    store: ObjectStore, file: DataFile, bits: Any, partition: Partition, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of one file whose bit is set."""
    lives = live_mask(bits, file.rows)
    for first, rows in files.read(store, file, schema.names):
        wanted = lives[first : first + rows.num_rows]
        if wanted.any():
            yield schemas.align(rows.filter(pa.array(wanted)), schema, partition, file.path)


def live_sources(
    store: ObjectStore, state: StreamState, table: Table, partition: Partition
) -> list[tuple[Source, Any]]:
    """Every file of which a row lives, with one bit for each of its rows."""
    decided = fold_plan(store, state, table, partition)
    manifest = decided.base_manifest or empty_manifest(decided.encoding, decided.hash_bucket_count)
    base, relocator = BaseIndex(manifest, decided.base_ordinals), Relocator(store, manifest.relocations)
    ordinals = np.arange(len(decided.sources), dtype=np.uint32)
    ranks = _kernels.SurvivorRanks(ordinals, np.array([s.file.rows for s in decided.sources], np.int64))
    for source in decided.sources:
        if source.in_base:
            ranks.fill(source.ordinal, live_bits(store, source.file))
    count = decided.hash_bucket_count
    deltas = [SourceSlice(s.file, s.ordinal, s.operation, (0, s.file.rows)) for s in decided.sources if not s.in_base]
    hashed = [
        next(hash_bucket(store, decided.encoding, partition, work, count, (0, count)))
        for work in slices(deltas, 4_000_000)
    ]
    for bucket in range(count):
        new = [entries for part in hashed for entries in part.of(bucket)]
        found = base.newest(store, bucket, new, decided.encoding, relocator)
        folded = Folded(new, iter([found]), decided.encoding, decided.positions, decided.tombstone_retention)
        run, dead_ordinals, dead_rows = _kernels.changes(found, np.concatenate(list(folded)))
        ranks.unmark(dead_ordinals, dead_rows)
        split = _kernels.PointerSplit(np.zeros(len(ordinals), np.uint32), 1)
        split.push_entries(run)
        ranks.mark(*split.finish()[:2])
    lives = [(source, ranks.mask(source.ordinal)) for source in decided.sources]
    return [(source, mask) for source, mask in lives if mask.any()]


def fold_plan(store: ObjectStore, state: StreamState, table: Table, partition: Partition) -> CompactionPlan:
    """What a compaction of this state would fold."""
    given = session_input(table.table_id, table.table_id, partition, state, state)
    assert not isinstance(given, NothingToDo) and table.keys is not None
    given = replace(given, deltas=measured(store, given.deltas, table.keys))
    manifest = read_manifest(store, state.index) if state.index else None
    return plan(given, table.keys, table.partition_keys, manifest, Arguments(), _HERE, table.tombstone_retention)


def export_table(
    catalog: DeltaStreamCatalog,
    table_id: str,
    target: str,
    partition: Mapping[str, Any] | Partition | None = None,
    version: str | None = None,
) -> int:
    """Write the live rows to one file (local path or URI), batch by batch; the number of rows."""
    target = expect.path("the file to export to", target)
    schema, tables = scanned(catalog, Scan(table_id, partition, version=version))
    store, path = open_object(catalog.store, target if "://" in target else Path(target).absolute().as_uri())
    with files.writer(store, path, schema, files.WriteOptions(files.content_type_of(target))) as out:
        for rows in tables:
            out.write(rows)
        return out.rows
