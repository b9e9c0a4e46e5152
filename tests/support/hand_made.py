"""Plans of snapshots made by hand. Their files do not exist, and planning needs no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from deltacompact.base.data_file import DataFile, DeletionVector
from deltacompact.base.deltas import CompactedDelta, Delta, ObjectRef
from deltacompact.base.model import ContentType, OperationType, Partition
from deltacompact.base.settings import Options
from deltacompact.base.table_keys import TableKeys
from deltacompact.index.index_files import IndexFile
from deltacompact.index.keys import Encoding, KeyClass, KeyColumn
from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.planning.planner import plan
from deltacompact.planning.terms import SessionTerms
from deltacompact.table.ports import Moment, PartitionSnapshot

KEYS = TableKeys.of(["k"])
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ENCODING = Encoding((KeyColumn("k", KeyClass.INTEGER),), version=1)
CAPACITY = Capacity(4, 2 << 30, 1 << 30)
MIB = 1 << 20
LARGE = 300 * MIB
"""The bytes of a base file that counts as large, whatever its number of rows."""


def file(rows: int, data_bytes: int = 100 * MIB, number: int = 0, dead: int = 0, **changes: Any) -> DataFile:
    """A Parquet file of the table. `dead` of its rows are dead already."""
    deletions = DeletionVector(dead, "t/index/s/0.masks.arrow", 0) if dead else None
    path = f"t/data/{number}.parquet"
    whole = DataFile(number, path, ContentType.PARQUET, rows, data_bytes, SCHEMA, deletions, decodes=True)
    return replace(whole, **changes)


def upsert(*files: DataFile, position: int = 80) -> Delta:
    return Delta(position, OperationType.UPSERT, files)


def delete(*files: DataFile, position: int = 90) -> Delta:
    return Delta(position, OperationType.DELETE, files)


def index_of(rows: int, *more_runs: int) -> IndexManifest:
    """An index of one bucket. Its first run has `rows` entries, and the runs above have `more_runs`."""
    runs = tuple(((IndexFile("t/index/s/0.arrow", entries, 32 * entries, (0,)),),) for entries in (rows, *more_runs))
    return IndexManifest(ENCODING, runs, rows, 0)


def snapshot(base: Sequence[DataFile] = (), deltas: Sequence[Delta] = (), **changes: Any) -> PartitionSnapshot:
    ref = ObjectRef("t/index/s/0.manifest.json", "00")
    compacted = CompactedDelta(tuple(base), ref, 70, 100, "t", "l", "s", SCHEMA) if base else None
    whole = PartitionSnapshot(
        "t",
        "t",
        Partition(),
        compacted,
        True,
        tuple(deltas),
        ref if base else None,
        deltas[-1].position if deltas else 70,
        100,
        Moment("1-a", 7, "1-a", 7),
        {"fences": 0},
        "there are deltas",
    )
    return replace(whole, **changes)


def planned(
    base: Sequence[DataFile] = (),
    deltas: Sequence[Delta] = (),
    manifest: IndexManifest | None = None,
    capacity: Capacity = CAPACITY,
    options: Options | None = None,
    tombstone_retention: int | None = None,
    **changes: Any,
) -> CompactionPlan:
    """Plan a snapshot with these files. `changes` are further fields of the snapshot."""
    if manifest is None and base:
        manifest = index_of(sum(data_file.live_rows for data_file in base))
    taken = snapshot(base, deltas, **changes)
    terms = SessionTerms(KEYS, (), options or Options(), tombstone_retention)
    return plan(taken, terms, manifest, capacity)
