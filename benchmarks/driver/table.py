"""A table that exists only in its log: a commit that names so many files, and the plan of its first compaction."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit, Delta
from deltacompact.base.model import ContentType, OperationType, Partition
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.base.settings import Options, Settings
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.log.entries import CommittedEntry
from deltacompact.job import CompactionJob, Request, prepare
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import task_memory
from deltacompact.steps.shuffle import spread
from deltacompact.storage.objects import ObjectStore

TABLE = "t"
NODE_SLOTS, NODE_BYTES = 32, 256 << 30
"""An r5n.8xlarge, as in the paper."""

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("text", pa.string())])


@dataclass(frozen=True, slots=True)
class Shape:
    """So many files of so many rows and bytes, hash buckets of the index, and slots of the cluster."""

    files: int
    hash_buckets: int
    slots: int
    file_rows: int = 6_000_000
    file_bytes: int = 1 << 30

    @property
    def bytes(self) -> int:
        return self.files * self.file_bytes

    @property
    def capacity(self) -> Capacity:
        nodes = spread(self.slots, [1] * -(-self.slots // NODE_SLOTS))
        heap, store = task_memory.node_memory(NODE_BYTES)
        slots = tuple(stop - start for start, stop in pairwise(nodes))
        return Capacity(self.slots, heap // NODE_SLOTS, store * len(slots), slots)


def append(store: ObjectStore, shape: Shape) -> DeltaStreamCatalog:
    """A catalog with the table. Ten deltas have all the files."""
    catalog = DeltaStreamCatalog(store)
    catalog.create_table(TABLE, primary_keys=["id"])
    bounds = spread(shape.files, [1] * 10)
    deltas = tuple(
        Delta(position, OperationType.UPSERT, tuple(_file(shape, position, n) for n in range(stop - start)))
        for position, (start, stop) in enumerate(pairwise(bounds))
    )
    log = catalog.begin_stream(TABLE, Partition())
    log.extend(lambda _state: CommittedEntry(Commit("c", 0, deltas)))
    return catalog


def _file(shape: Shape, position: int, number: int) -> DataFile:
    path = f"{TABLE}/data/{position:02d}-{number:08d}-5cb1e64afc5f4d0a9d7d5b0e3f1a2c44.parquet"
    size = shape.file_rows, shape.file_bytes
    return DataFile(DeltaFileNumber(number), path, ContentType.PARQUET, *size, SCHEMA, far=(), decodes=True)


def job_of(catalog: DeltaStreamCatalog, shape: Shape) -> CompactionJob:
    """The prepared job: the log has been read."""
    options = Options.of(Settings(executor="ray"), hash_bucket_count=shape.hash_buckets)
    return prepare(catalog, Request(TABLE, options=options))
