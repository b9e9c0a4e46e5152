"""Tasks: rows of data files become entries, and entries become a run in the order of digests.

    enter          a.parquet, b.parquet -> entries, a batch for each bucket        one task for some rows
    write range    bucket 1 of all of them, and of runs that are merged -> one file of blocks

All rows are entered, dead or alive: an entry depends on its file alone. A bucket is what a task can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import divided
from deltacompact.base.errors import StoreError
from deltacompact.base.limits import ReadLimits
from deltacompact.iceberg.deletes.dead_rows import FileScan
from deltacompact.iceberg.deletes.ranges import prefixes_of, read_batch, write_by_bucket
from deltacompact.iceberg.key_index.blocks import of_bucket
from deltacompact.iceberg.key_index.document import FileIdentity, IndexRun, IndexUnusableError, RunFile
from deltacompact.iceberg.key_index.order import Order
from deltacompact.iceberg.table.parquet_files import opened_each
from deltacompact.index.entries import Entries, fields, none
from deltacompact.index.index_files import BucketWriter
from deltacompact.storage.objects import ObjectStore


class Entering(Protocol):
    """How rows become entries. `columns` are the columns to read; their names are field ids."""

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def order(self) -> Order: ...

    def entries(self, table: pa.Table, rows: npt.NDArray[np.uint64], number: int, path: str) -> Entries:
        """The entries of these rows of file `number`. `table` has their columns; `path` is for errors."""


@dataclass(frozen=True, slots=True)
class IndexedPiece:
    """A range of rows of a data file, and the file's number in the run."""

    scan: FileScan
    number: int
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EnterTask:
    """Turns rows into entries at `path`. `columns` are the table's: a file must have those that cannot be filled in."""

    pieces: tuple[IndexedPiece, ...]
    entering: Entering
    columns: pa.Schema
    buckets: int
    path: str
    reading: ReadLimits


def enter(store: ObjectStore, task: EnterTask) -> None:
    """Raises InputError naming a file that is missing or damaged."""
    parts = []
    wanted = task.entering.columns
    files = (piece.scan.wanted(task.columns) for piece in task.pieces)
    for piece, opened in zip(task.pieces, opened_each(store, files, task.reading), strict=True):
        for first, table in opened.tables(wanted, piece.rows):
            rows = np.arange(first, first + table.num_rows, dtype=np.uint64)
            parts.append(task.entering.entries(table, rows, piece.number, piece.scan.stored.path))
    write_by_bucket(store, task.path, parts, task.entering.order.entry_bytes, task.buckets)


@dataclass(frozen=True, slots=True)
class NumberedRun:
    """A run as a task reads it. `numbers`: the task's number of each of the run's data files; -1: not wanted."""

    files: tuple[RunFile, ...]
    order: Order
    numbers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, run: IndexRun, numbers: Mapping[FileIdentity, int]) -> NumberedRun:
        return cls(run.files, run.order, np.array([numbers.get(file, -1) for file in run.data], np.int64))


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Writes the entries of one bucket to `path`, in blocks."""

    bucket: int
    buckets: int
    entered: tuple[str, ...]
    merged: tuple[NumberedRun, ...]
    order: Order
    path: str
    block_entries: int


def write_range(store: ObjectStore, task: RangeTask) -> RunFile | None:
    """The file that was written; None: the bucket is empty. Raises IndexUnusableError."""
    parts = list(read_batch(store, task.entered, task.bucket, task.order.entry_bytes))
    for run in task.merged:
        old = of_bucket(store, run.files, run.order.entry_bytes, task.bucket, task.buckets)
        numbers, kept = numbered(old, run.numbers)
        fields(kept)["file"] = numbers
        parts.append(task.order.widened(kept, run.order))
    entries = np.concatenate([none(task.order.entry_bytes), *parts])
    if not len(entries):
        return None
    prefixes = prefixes_of(entries)
    order = np.argsort(prefixes, kind="stable")
    block, width = task.block_entries, task.order.entry_bytes
    try:
        with BucketWriter(store, lambda: task.path, width, len(entries), block) as writer:
            writer.write(entries[order])
            (file,) = writer.close()
    except (StoreError, OSError) as error:
        raise IndexUnusableError(f"{task.path} cannot be written: {error}") from error
    return RunFile(file, tuple(prefixes[order][::block].tolist()))


def numbered(entries: Entries, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Entries]:
    """(new file numbers, entries): entries of files whose new number is -1 are dropped, the others are copied."""
    files = fields(entries)["file"]
    if len(files) and int(files.max()) >= len(numbers):
        raise IndexUnusableError("an entry names a data file that its run does not have")
    found = numbers[files]
    kept = found >= 0
    return found[kept], entries[kept]


def pieces_of(scans: Sequence[FileScan], rows_max: int) -> list[tuple[IndexedPiece, ...]]:
    """Files, or parts of them, in tasks of at most `rows_max` rows. A file's number is its place in `scans`."""
    return [
        tuple(IndexedPiece(scans[place], place, (start, stop)) for place, start, stop in share)
        for share in divided((scan.stored.rows for scan in scans), rows_max)
    ]
