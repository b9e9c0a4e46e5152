"""The primary key index as a DataFrame, read byte by byte from the documented layout, not with our own reader.

digest 20 | sort key | file 4, little-endian | row 8, little-endian         file 0xFFFFFFFF: a tombstone, …FE: gone

digest   run  file  row  tombstone  misplaced
08f1…    0    14    3    no         no            its bucket is not the one that its digest says: misplaced
08f1…    1    20    1    no         no            a newer run counts; a rewritten file's rows are found by its mask
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.index.remap import Relocation
from deltacompact.index.sort_keys import decode
from deltacompact.spark.comparable import comparable_type, spark_struct
from deltacompact.spark.frames import FrameLayout, tasks_frame, tasks_of
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.column_types import plain_type
from deltacompact.tabular.conversion import converted

_TOMBSTONE = 0xFFFFFFFF
_GONE = 0xFFFFFFFE
_COLUMNS = [
    ("digest", pa.binary()),
    ("run", pa.int64()),
    ("file", pa.int64()),
    ("row", pa.int64()),
    ("tombstone", pa.bool_()),
    ("misplaced", pa.bool_()),
]


def index_frame(
    spark: SparkSession, store: ObjectStore, manifest: IndexManifest, layout: FrameLayout | None = None
) -> DataFrame:
    """Every entry of an index; with a layout also its sort columns (c0, c1, …), the layout's others null."""
    tasks = [
        (number, bucket, file.path)
        for number, run in enumerate(manifest.runs)
        for bucket, files in enumerate(run)
        for file in files
    ]
    reading = _IndexReading(store, manifest.encoding, manifest.hash_bucket_count, layout)
    entries = tasks_frame(spark, tasks, manifest.entries).mapInArrow(reading.read, spark_struct(reading.schema))
    if len(manifest.runs) > 1:
        newest = Window.partitionBy("digest").orderBy(F.desc("run"))
        entries = entries.withColumn("age", F.row_number().over(newest)).where("age = 1").drop("age")
        entries = entries.where(F.col("file") != _GONE)
    if manifest.relocations:
        relocating = _Relocating(store, manifest.relocations)
        entries = entries.mapInArrow(relocating.relocate, spark_struct(reading.schema))
    return entries


@dataclass(frozen=True, slots=True)
class _IndexReading:
    store: ObjectStore
    encoding: Encoding
    hash_bucket_count: int
    layout: FrameLayout | None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_COLUMNS, *(self.layout.comparable if self.layout else ())])

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, bucket, path in tasks_of(batches):
            with self.store.open(path) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield from self._entries(run, bucket, reader.get_batch(number).column(0))

    def _entries(self, run: int, bucket: int, column: pa.Array) -> Iterator[pa.RecordBatch]:
        width = column.type.byte_width
        raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width).reshape(-1, width)
        file = np.ascontiguousarray(raw[:, -12:-8]).view("<u4")[:, 0].astype(np.int64)
        row = np.ascontiguousarray(raw[:, -8:]).view("<i8")[:, 0]
        digests = [bytes(digest) for digest in raw[:, :20]]
        columns: Sequence[pa.Array] = [
            pa.array(digests, pa.binary()),
            pa.array(np.full(len(raw), run)),
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
            if known is None:
                columns.append(pa.nulls(len(keys), wanted))
            else:
                columns.append(converted(known, plain_type(field.type)).cast(wanted))
        return columns


@dataclass(frozen=True, slots=True)
class _Relocating:
    """Moves pointers into rewritten files to the new rows: the number of live rows before a row gives its new place.

    Where rows were laid out by columns, the place of each is stored.
    """

    store: ObjectStore
    relocations: Sequence[Relocation]

    def relocate(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranks = [list(self._ranks(relocation)) for relocation in self.relocations]
        for batch in batches:
            file, row = batch["file"].to_numpy().copy(), batch["row"].to_numpy().copy()
            for relocation, files in zip(self.relocations, ranks, strict=True):
                of_file, of_row = file.copy(), row.copy()
                for number, rank_of in files:
                    here = of_file == number
                    output, place = np.divmod(rank_of[of_row[here]], relocation.rows_per_output)
                    file[here], row[here] = output + relocation.first_output_number, place
            columns = {"file": pa.array(file), "row": pa.array(row)}
            arrays = [columns.get(name, batch[name]) for name in batch.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def _ranks(self, relocation: Relocation) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """For each rewritten file, by row: its place among all that were written; -1 where the row does not live."""
        before, moves = 0, self._moves(relocation)
        for file in relocation.files:
            with self.store.open(file.masks_path) as source:
                masks = pa.ipc.open_file(source).read_all()
            bits = dict(zip(masks["ordinal"].to_pylist(), masks["bits"].to_pylist(), strict=True))[file.ordinal]
            lives = np.unpackbits(np.frombuffer(bits, np.uint8), count=file.rows, bitorder="little").astype(np.int64)
            ends = before + np.cumsum(lives)
            places = ends - 1 if moves is None else moves[np.maximum(ends - 1, 0)]
            yield file.number, np.where(lives == 1, places, -1)
            before = int(ends[-1])

    def _moves(self, relocation: Relocation) -> npt.NDArray[np.int64] | None:
        """The place of each rank, where rows were laid out by columns."""
        found = []
        for move in relocation.moves:
            with self.store.open(move.path) as source:
                data = source.read_buffer()
            if data.slice(0, 6).to_pybytes() == b"ARROW1":  # as former indexes have it
                found.append(pa.ipc.open_file(data).read_all()["destination"].to_numpy().astype(np.int64))
                continue
            blocks = pa.ipc.open_stream(data).read_all()["numbers"]
            found += [np.frombuffer(block.as_py(), "<u4").astype(np.int64) for block in blocks]
        return np.concatenate(found) if found else None


def _remainders(digests: npt.NDArray[np.uint8], divisor: int) -> npt.NDArray[np.uint64]:
    """Each digest, a big-endian number of 160 bits, modulo the hash bucket count: four bytes at a time."""
    words = np.ascontiguousarray(digests).view(">u4").astype(np.uint64)
    remainder = np.zeros(len(words), np.uint64)
    for word in words.T:
        remainder = ((remainder << np.uint64(32)) | word) % np.uint64(divisor)
    return remainder
