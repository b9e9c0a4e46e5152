"""The primary key index as a DataFrame, read byte by byte as its layout is documented, not with our own reader.

digest 20 | sort key | file 4, little-endian | row 8, little-endian         file 0xFFFFFFFF: a tombstone

digest   file  row  tombstone  misplaced
08f1…    14    3    no         no             its bucket is not the one that its digest says: misplaced
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltacompact.keys import Encoding
from deltacompact.primary_key_index import IndexManifest
from deltacompact.sort_keys import decode
from deltacompact.spark.comparable import comparable_type, spark_struct
from deltacompact.spark.frames import Layout, tasks_frame, tasks_of
from deltacompact.storage import ObjectStore

_TOMBSTONE = 0xFFFFFFFF
_COLUMNS = [
    ("digest", pa.binary()),
    ("file", pa.int64()),
    ("row", pa.int64()),
    ("tombstone", pa.bool_()),
    ("misplaced", pa.bool_()),
]


def index_frame(
    spark: SparkSession, store: ObjectStore, manifest: IndexManifest, layout: Layout | None = None
) -> DataFrame:
    """Every entry of an index; with a layout also its sort columns (c0, c1, …), the layout's others null."""
    tasks = [(bucket, file.path) for bucket, files in enumerate(manifest.buckets) for file in files]
    reading = _Reading(store, manifest.encoding, manifest.hash_bucket_count, layout)
    return tasks_frame(spark, tasks, manifest.entries).mapInArrow(reading.read, spark_struct(reading.schema))


@dataclass(frozen=True, slots=True)
class _Reading:
    store: ObjectStore
    encoding: Encoding
    hash_bucket_count: int
    layout: Layout | None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_COLUMNS, *(self.layout.comparable if self.layout else ())])

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, path in tasks_of(batches):
            with self.store.open(path) as source:
                reader = pa.ipc.open_file(source)
                for place in range(reader.num_record_batches):
                    yield from self._entries(bucket, reader.get_batch(place).column(0))

    def _entries(self, bucket: int, column: pa.Array) -> Iterator[pa.RecordBatch]:
        width = column.type.byte_width
        raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width).reshape(-1, width)
        file = np.ascontiguousarray(raw[:, -12:-8]).view("<u4")[:, 0].astype(np.int64)
        row = np.ascontiguousarray(raw[:, -8:]).view("<i8")[:, 0]
        digests = [bytes(digest) for digest in raw[:, :20]]
        columns: Sequence[pa.Array] = [
            pa.array(digests, pa.binary()),
            pa.array(file),
            pa.array(row),
            pa.array(file == _TOMBSTONE),
            pa.array(_remainders(raw[:, :20], self.hash_bucket_count) != bucket),
            *self._sort_columns(raw[:, 20:-12]),
        ]
        yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches(10_000)

    def _sort_columns(self, keys: npt.NDArray[np.uint8]) -> list[pa.Array]:
        if self.layout is None:
            return []
        decoded = dict(zip((c.name for c in self.encoding.sort_columns), decode(keys, self.encoding), strict=True))
        columns = []
        for field in self.layout.columns:
            wanted = comparable_type(field.type)
            known = decoded.get(field.name)
            columns.append(pa.nulls(len(keys), wanted) if known is None else known.cast(field.type).cast(wanted))
        return columns


def _remainders(digests: npt.NDArray[np.uint8], divisor: int) -> npt.NDArray[np.uint64]:
    """Each digest, a big-endian number of 160 bits, modulo the hash bucket count: four bytes at a time."""
    words = np.ascontiguousarray(digests).view(">u4").astype(np.uint64)
    remainder = np.zeros(len(words), np.uint64)
    for word in words.T:
        remainder = ((remainder << np.uint64(32)) | word) % np.uint64(divisor)
    return remainder
