"""Reading a table as it is now: compacted files, folded with the deltas that are not compacted yet.

    compacted  k1 k2 k3      delta 90: upsert k1, delete k3      ->  k2 of the compacted file, k1 of the delta

The same steps as a compaction, in this process, publishing nothing. A table without keys returns its upsert rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deltacompact import _kernels, files, schemas
from deltacompact.dedupe import BaseIndex, Folded
from deltacompact.entries import GONE, fields
from deltacompact.hash_bucket import SourceSlice, hash_bucket, slices
from deltacompact.masks import live_bits, live_mask
from deltacompact.model import ContentType, DataFile, OperationType, Partition, Table
from deltacompact.plan import Arguments, Capacity, CompactionPlan, NothingToDo, Source, plan, session_input
from deltacompact.primary_key_index import empty_manifest, read_manifest
from deltacompact.relocation import Relocator
from deltacompact.storage import open_object

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream import DeltaStreamCatalog
    from deltacompact.catalog.state import StreamState
    from deltacompact.storage import ObjectStore

_HERE = Capacity(1, 1 << 40, 1 << 40)


def read_table(
    catalog: DeltaStreamCatalog, table_id: str, partition: Mapping[str, Any] | Partition | None = None
) -> pa.Table:
    """The live rows of one partition, or of all: a snapshot of each, none across them."""
    table = catalog.table(table_id)
    everything = partition is None
    chosen = catalog.partitions(table_id) if everything else [catalog.partition(table_id, partition)]
    pieces = [(place, *_read_stream(catalog, table, place)) for place in chosen]
    described = [DataFile(0, f"{table_id}/{place}", ContentType.PARQUET, 0, 0, s) for place, s, _ in pieces]
    schema = schemas.union(described)
    aligned = [schemas.align(rows, schema, place, table_id) for place, _, rows in pieces]
    return pa.concat_tables(aligned) if aligned else schema.empty_table()


def _read_stream(catalog: DeltaStreamCatalog, table: Table, partition: Partition) -> tuple[pa.Schema, pa.Table]:
    state = catalog.state(table.table_id, partition)
    schema = schema_of(state)
    tables = list(live_batches(catalog.store, state, table, partition, schema))
    return schema, pa.concat_tables(tables) if tables else schema.empty_table()


def schema_of(state: StreamState) -> pa.Schema:
    """Columns of the rows: the union over upserts. Deletes add none."""
    upserts = [f for d in state.deltas if d.operation is OperationType.UPSERT for f in d.files]
    compacted = list(state.compacted.files) if state.compacted else []
    return schemas.union([*compacted, *upserts], state.compacted.schema if state.compacted else None)


def live_batches(
    store: ObjectStore, state: StreamState, table: Table, partition: Partition, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The live rows of a stream's state in fold order, file by file."""
    if table.keys is None or not state.deltas:
        upserts = [f for d in state.deltas if d.operation is OperationType.UPSERT for f in d.files]
        for file in [*(state.compacted.files if state.compacted else ()), *upserts]:
            if (bits := live_bits(store, file)) is not None:
                yield from live_rows_of(store, file, bits, partition, schema)
                continue
            for _, rows in files.read(store, file):
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
    for first, rows in files.read(store, file):
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
        new = [entries[offsets[bucket] : offsets[bucket + 1]] for entries, offsets in hashed]
        found = base.newest(store, bucket, new, decided.encoding, relocator)
        folded = Folded(new, iter([found]), decided.encoding, decided.positions, decided.tombstone_retention)
        run, dead_ordinals, dead_rows = _kernels.changes(found, np.concatenate(list(folded)))
        ranks.unmark(dead_ordinals, dead_rows)
        view = fields(run)
        here = view["file"] < GONE
        ranks.mark(np.ascontiguousarray(view["file"][here]), np.ascontiguousarray(view["row"][here]))
    lives = [(source, ranks.mask(source.ordinal)) for source in decided.sources]
    return [(source, mask) for source, mask in lives if mask.any()]


def fold_plan(store: ObjectStore, state: StreamState, table: Table, partition: Partition) -> CompactionPlan:
    """What a compaction of this state would fold."""
    given = session_input(table.table_id, table.table_id, partition, state, state)
    assert not isinstance(given, NothingToDo) and table.keys is not None
    manifest = read_manifest(store, state.index) if state.index else None
    return plan(given, table.keys, table.partition_keys, manifest, Arguments(), _HERE, table.tombstone_retention)


def export_table(
    catalog: DeltaStreamCatalog, table_id: str, target: str, partition: Mapping[str, Any] | Partition | None = None
) -> int:
    """Write the live rows to one file (local path or URI), batch by batch; the number of rows."""
    table = catalog.table(table_id)
    everything = partition is None
    chosen = catalog.partitions(table_id) if everything else [catalog.partition(table_id, partition)]
    states = [(place, catalog.state(table_id, place)) for place in chosen]
    described = [
        DataFile(0, f"{table_id}/{place}", ContentType.PARQUET, 0, 0, schema_of(state)) for place, state in states
    ]
    schema = schemas.union(described)
    store, path = open_object(catalog.store, target if "://" in target else Path(target).absolute().as_uri())
    options = files.WriteOptions(files.content_type_of(target))
    with files.writer(store, path, schema, options) as out:
        for place, state in states:
            for rows in live_batches(catalog.store, state, table, place, schema):
                out.write(rows)
        return out.rows
