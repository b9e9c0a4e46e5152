"""Task: turns the rows of data files into entries, and scatters them by hash bucket.

    a.parquet, ordinal 0, sequence 5    k1 k2        bucket 0    k2 | 5 | 0, 1
    b.parquet, ordinal 1, sequence 6    k2 k3 D      bucket 1    k1 | 5 | 0, 0      k2 | 6 | 1, 0      …

Entries are those of delta streams: digest, sort key, file ordinal, row (`index/entries.py`). The sort key begins with
the row's sequence number, so sort columns only decide between rows with the same one. Without sort columns the order of
files and rows is enough, and there is no sort key. A row that deletes its key has the delete bit.

In version 3 a rewrite keeps each row's sequence number in a column. If a row has one there, it counts, and not the
file's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.wording import counted
from deltacompact.iceberg.deletes.ranges import read_batch, write_batches
from deltacompact.iceberg.key_index.order import Order, sequence_bytes
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED
from deltacompact.index.entries import DELETE_BIT, Entries, none
from deltacompact.index.keys import KeyClass, KeyColumn
from deltacompact.index.live_bitmaps import live_tables_of_each
from deltacompact.steps.hash_bucket import SourceSlice
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import schemas
from deltacompact.tabular.field_ids import matched
from deltacompact.tabular.files import Part

KEY_SPACE = KeyColumn("", KeyClass.INTEGER)
"""The number of the key space as one more key column, so that rows of two key spaces never have the same digest."""


@dataclass(frozen=True, slots=True)
class KeySpaceSlice:
    """A slice of a data file, the file's sequence number, and the number of its key space."""

    piece: SourceSlice
    sequence_number: int
    key_space: int


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """Turns slices, in the order of (ordinal, row), into entries at `path`: one batch for each bucket.

    columns      the columns to read, with their field ids
    operation    the operation column: a value among `deletes` there makes the row a delete. None: no row is a delete
    """

    pieces: tuple[KeySpaceSlice, ...]
    order: Order
    columns: pa.Schema
    operation: str | None
    deletes: pa.Array | None
    bucket_count: int
    path: str
    reading: ReadLimits


@dataclass(frozen=True, slots=True)
class Scattered:
    """The entries that scatter tasks wrote, in the order of their files and rows."""

    paths: tuple[str, ...]
    entry_bytes: int

    def of_bucket(self, store: ObjectStore, bucket: int) -> list[Entries]:
        return list(read_batch(store, self.paths, bucket, self.entry_bytes))


def scatter(store: ObjectStore, task: ScatterTask) -> None:
    """Write the entries. Raises InputError naming a file with a live row that has no key."""
    width = task.order.entry_bytes
    entries, offsets = _kernels.group_entries(list(_packed(store, task)) or [none(width)], task.bucket_count)
    write_batches(store, task.path, entries, offsets.tolist())


def _packed(store: ObjectStore, task: ScatterTask) -> Iterator[Entries]:
    parts = [
        Part(matched(scattered.piece.file, task.columns), task.columns.names, scattered.piece.rows)
        for scattered in task.pieces
    ]
    for scattered, slices in zip(task.pieces, live_tables_of_each(store, parts, task.reading), strict=True):
        for rows, table in slices:
            if table.num_rows:
                digests, sort_keys = _digests(table, scattered, task), _sort_keys(table, scattered, task)
                flagged = marked(table, rows, scattered.piece.file.path, task.operation, task.deletes)
                yield _kernels.pack_entries(digests, sort_keys, scattered.piece.ordinal, flagged)


def _digests(table: pa.Table, scattered: KeySpaceSlice, task: ScatterTask) -> npt.NDArray[np.uint8]:
    path = scattered.piece.file.path
    encoding = task.order.encoding
    for column in encoding.key_columns:
        if column != KEY_SPACE and (nulls := table[column.name].null_count):
            raise InputError(f"{path}: key column {column.name!r} is null in {counted(nulls, 'row')}")
    if KEY_SPACE in encoding.key_columns:
        table = table.append_column(KEY_SPACE.name, pa.array(np.full(table.num_rows, scattered.key_space, np.int64)))
    return encoding.digests(table, path)


def _sort_keys(table: pa.Table, scattered: KeySpaceSlice, task: ScatterTask) -> npt.NDArray[np.uint8]:
    by_columns = task.order.encoding.sort_keys(table, scattered.piece.file.path)
    if not task.order.has_sequence:
        return by_columns
    sequences = np.full(table.num_rows, scattered.sequence_number, np.int64)
    if LAST_UPDATED.name in table.column_names:
        sequences = np.asarray(pc.fill_null(table[LAST_UPDATED.name], scattered.sequence_number), np.int64)
    return np.ascontiguousarray(np.hstack([sequence_bytes(sequences), by_columns]))


def marked(
    table: pa.Table, rows: npt.NDArray[np.uint64], path: str, operation: str | None, deletes: pa.Array | None
) -> npt.NDArray[np.uint64]:
    """The row numbers. Those of rows that delete their key have the delete bit."""
    if operation is None or deletes is None or operation not in table.column_names:
        return rows
    values = schemas.cast(schemas.plain(table[operation]), deletes.type, path, operation)
    are_deletes = np.asarray(pc.is_in(values, value_set=deletes))
    return np.where(are_deletes, rows | DELETE_BIT, rows)
