"""The table of one size: made once, by the cluster's workers or by Spark, and compacted by every job run of that size.

    5 rows      prior    keys 0 3 2 1      revision 1     an insertion order that no key order shows
                delta    keys 3            revision 2     half of the delta rows update …
                         key  4            revision 2     … and half are new: the delta is a fifth of all rows
    must come to: 0, 1, 2 at revision 1, 3 and 4 at revision 2

Keys come from arithmetic, key = (row * step + start) mod rows: any file can be made anywhere, and what must come out is
known without a fold: every prior row, less those that are updated, and the delta.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.checksum import Fingerprint, row_hashes
from benchmarks.data import EPOCH_US, customers, payloads
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import OperationType, Partition
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import formats, writing
from deltacompact.tabular.row_groups import WriteOptions

KEY, REVISION = "key", "revision"
PRIOR_REVISION, DELTA_REVISION = 1, 2
FILE_BYTES = 256 << 20
ROW_BYTES = 60
"""Decompressed, beside the payload."""

PRODUCERS = ("workers", "spark")
_CHUNK_ROWS = 4_000_000
_STEP = 0.618


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a table is: rows of prior and delta files together, random bytes in each row."""

    rows: int
    payload_bytes: int

    @property
    def name(self) -> str:
        return f"input-{self.rows}-{self.payload_bytes}"

    @property
    def prior_rows(self) -> int:
        return self.rows * 4 // 5

    @property
    def updates(self) -> int:
        return (self.rows - self.prior_rows) // 2

    @property
    def rows_per_file(self) -> int:
        """The rows of a file: it takes about FILE_BYTES, and a small table still has several files."""
        return max(1, min(FILE_BYTES // (ROW_BYTES + self.payload_bytes), math.ceil(self.rows / 16)))

    def prior_keys(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The keys of the rows [start, stop) of the prior files."""
        return _scattered(np.arange(start, stop), self.prior_rows, 0)

    def delta_keys(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The keys of the delta rows [start, stop): updates first, then new keys."""
        rows = np.arange(start, stop)
        updates = _scattered(rows, self.prior_rows, self.prior_rows // 3)
        return np.where(rows < self.updates, updates, self.prior_rows + rows - self.updates)


@dataclass(frozen=True, slots=True)
class Made:
    """A table that is there: decompressed and stored bytes, and what its compaction must come to."""

    rows: int
    input_bytes: int
    decompressed_bytes: int
    live: int
    checksum: int

    @property
    def expected(self) -> Fingerprint:
        return Fingerprint(self.live, self.checksum)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [start, stop) of the prior or of the delta rows: one file."""

    shape: Shape
    delta: bool
    start: int
    stop: int

    def keys(self) -> npt.NDArray[np.int64]:
        make = self.shape.delta_keys if self.delta else self.shape.prior_keys
        return make(self.start, self.stop)


def parts(shape: Shape, delta: bool) -> list[Part]:
    """The files of the prior, or of the delta rows."""
    rows, step = shape.rows - shape.prior_rows if delta else shape.prior_rows, shape.rows_per_file
    return [Part(shape, delta, start, min(rows, start + step)) for start in range(0, rows, step)]


def made(store: ObjectStore, shape: Shape) -> Made | None:
    """The description of a table that was written in full; None where there is none."""
    try:
        return Made(**json.loads(store.get(f"{shape.name}.json")))
    except NotFoundError:
        return None


def mark_made(store: ObjectStore, shape: Shape, table: Made) -> None:
    """Say that a table is complete. This object is written last."""
    store.put(f"{shape.name}.json", json.dumps(asdict(table)).encode())


def write_part(store: ObjectStore, part: Part) -> tuple[DataFile, int]:
    """A task: make one file and write it. Returns its decompressed bytes."""
    keys = part.keys()
    table = _rows(keys, part)
    options = WriteOptions()
    path = TablePaths.of(part.shape.name).stream(Partition()).fresh("data", formats.suffix_of(options.content_type))
    return writing.write_table(store, path, table, options), table.nbytes


def expected_of(part: Part) -> Fingerprint:
    """A task: what one file adds to the fingerprint of the result. An update takes away the prior row of its key."""
    rows, total = 0, 0
    for start in range(part.start, part.stop, _CHUNK_ROWS):
        some = Part(part.shape, part.delta, start, min(part.stop, start + _CHUNK_ROWS))
        keys = some.keys()
        rows += len(keys)
        total += checksum(keys, DELTA_REVISION if part.delta else PRIOR_REVISION)
        if part.delta:
            updated = keys[keys < part.shape.prior_rows]
            rows -= len(updated)
            total -= checksum(updated, PRIOR_REVISION)
    return Fingerprint(rows, total % 2**64)


def found_in(store: ObjectStore, path: str) -> Fingerprint:
    """A task: keys and revisions of one compacted file."""
    rows, total = 0, 0
    with store.open(path) as source:
        for batch in pq.ParquetFile(source).iter_batches(128 << 10, columns=[KEY, REVISION]):
            rows += batch.num_rows
            total += int(row_hashes(pa.Table.from_batches([batch]), [KEY, REVISION]).sum(dtype=np.uint64))
    return Fingerprint(rows, total % 2**64)


def together(parts: Iterator[Fingerprint]) -> Fingerprint:
    """The fingerprint of two sets of rows that have no row in common."""
    rows, total = 0, 0
    for part in parts:
        rows, total = rows + part.rows, total + part.checksum
    return Fingerprint(rows, total % 2**64)


def commit(catalog: DeltaStreamCatalog, shape: Shape, written: tuple[list[DataFile], list[DataFile]]) -> None:
    """Commit two deltas: the prior rows, then updates and new rows. A repeated call commits nothing."""
    for name, files in zip(("prior", "delta"), written, strict=True):
        catalog.commit(shape.name, Partition(), [(OperationType.UPSERT, files)], token=name)


def write_by_spark(catalog: DeltaStreamCatalog, shape: Shape) -> None:
    """The same keys and revisions, written through the data source by as many cores as this machine has."""
    from pyspark.sql import functions as F

    from deltacompact.spark.session import spark_session

    spark = spark_session("deltacompact benchmarks", master="local[*]")
    try:
        for delta in (False, True):
            rows = shape.rows - shape.prior_rows if delta else shape.prior_rows
            row = F.col("id")
            prior = _scattered(row, shape.prior_rows, shape.prior_rows // 3 if delta else 0)
            new = row - F.lit(shape.updates) + F.lit(shape.prior_rows)
            pieces = [
                F.sha2(F.concat_ws("-", row, F.lit(piece)), 512) for piece in range(-(-shape.payload_bytes // 64))
            ]
            columns = [
                (F.when(row < shape.updates, prior).otherwise(new) if delta else prior).alias(KEY),
                F.lit(DELTA_REVISION if delta else PRIOR_REVISION).cast("int").alias(REVISION),
                F.rand(shape.rows).alias("amount"),
                F.timestamp_micros(F.lit(EPOCH_US) + F.abs(F.hash(row)).cast("long")).alias("updated_at"),
                F.format_string("customer-%019d", F.abs(F.hash(row)) % 1_000_000).alias("customer"),
            ]
            if pieces:
                columns.append(F.unhex(F.concat(*pieces)).substr(1, shape.payload_bytes).alias("payload"))
            count = math.ceil(rows / shape.rows_per_file)
            options = {"catalog": catalog.uri, "table": shape.name, "token": "delta" if delta else "prior"}
            frame = spark.range(0, rows, 1, count).select(*columns)
            frame.write.format("deltacompact").options(**options).mode("append").save()
    finally:
        spark.stop()


def _rows(keys: npt.NDArray[np.int64], part: Part) -> pa.Table:
    dice, rows = np.random.default_rng([part.shape.rows, part.delta, part.start]), len(keys)
    columns = {
        KEY: pa.array(keys, pa.int64()),
        REVISION: pa.array(np.full(rows, DELTA_REVISION if part.delta else PRIOR_REVISION, np.int32)),
        "amount": pa.array(dice.random(rows)),
        "updated_at": pa.array(EPOCH_US + dice.integers(0, 86_400_000_000, rows), pa.timestamp("us")),
        "customer": customers(dice, rows),
    }
    if width := part.shape.payload_bytes:
        columns["payload"] = payloads(dice.bytes(rows * width), rows, width)
    return pa.table(columns)


def _step(modulus: int) -> int:
    """A step that is coprime to the modulus, and so small that no product overflows int64."""
    step = max(1, int(min(modulus, 4_000_000) * _STEP))
    while math.gcd(step, modulus) != 1:
        step += 1
    return step


def _scattered(rows: Any, modulus: int, start: int) -> Any:
    """A permutation of [0, modulus): of an array, or as a Spark column."""
    return (rows * _step(modulus) + start) % max(1, modulus)


def checksum(keys: npt.NDArray[np.int64], revision: int) -> int:
    """The checksum of rows that are all at one revision."""
    table = pa.table({KEY: keys, REVISION: pa.array(np.full(len(keys), revision, np.int32))})
    return int(row_hashes(table, [KEY, REVISION]).sum(dtype=np.uint64))
