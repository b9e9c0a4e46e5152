"""Task: the rows of data files become entries, scattered by hash bucket.

    a.parquet, ordinal 0, sequence 5    k1 k2        bucket 0    k2 | 5 | 0, 1
    b.parquet, ordinal 1, sequence 6    k2 k3 D      bucket 1    k1 | 5 | 0, 0      k2 | 6 | 1, 0      …

Entries are the engine's own: digest, sort key, file ordinal, row (`index/entries.py`). The sort key begins with the
row's sequence number, so sort columns only decide between rows of one sequence number; without sort columns the order
of files and rows says all, and there is no sort key. A row that deletes its key has the delete bit.

In version 3 a rewrite that merges files keeps the sequence number of each row in a column. It counts, not the file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltacompact import _kernels
from deltacompact.base.errors import InputError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.wording import counted
from deltacompact.catalog.iceberg.table.row_lineage import LAST_UPDATED
from deltacompact.index.entries import DELETE_BIT, Entries, none
from deltacompact.index.keys import Encoding, KeyClass, KeyColumn
from deltacompact.index.live_bitmaps import live_tables_of_each
from deltacompact.steps.hash_bucket import SourceSlice
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import schemas
from deltacompact.tabular.field_ids import matched
from deltacompact.tabular.files import Part

SEQUENCE_BYTES = 8
KEY_SPACE = KeyColumn("", KeyClass.INTEGER)
"""The number of the key space, as one more key column: rows of two key spaces never have the same digest."""


@dataclass(frozen=True, slots=True)
class Order:
    """What makes one row newer than another, besides the order of files and rows.

    has_sequence    sort keys begin with the sequence number
    encoding        key and sort columns
    """

    encoding: Encoding
    has_sequence: bool

    @property
    def sort_key_bytes(self) -> int:
        return self.encoding.sort_key_bytes + (SEQUENCE_BYTES if self.has_sequence else 0)

    @property
    def entry_bytes(self) -> int:
        return self.encoding.entry_bytes + (SEQUENCE_BYTES if self.has_sequence else 0)


@dataclass(frozen=True, slots=True)
class Compared:
    """A slice of a data file, its sequence number, and the number of its key space."""

    piece: SourceSlice
    sequence_number: int
    key_space: int


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """Slices in the order of (ordinal, row). Their entries go to `path`, a batch for each bucket.

    columns      the columns that are read, with their field ids
    operation    the column that marks deletes, by one of the values `deletes`. None: no row is a delete
    """

    pieces: tuple[Compared, ...]
    order: Order
    columns: pa.Schema
    operation: str | None
    deletes: pa.Array | None
    bucket_count: int
    path: str
    reading: ReadLimits


def scatter(store: ObjectStore, task: ScatterTask) -> None:
    """Write the entries. Raises InputError naming a file in which a live row has no key."""
    width = task.order.entry_bytes
    entries, offsets = _kernels.group_entries(list(_packed(store, task)) or [none(width)], task.bucket_count)
    type_ = pa.binary(width)
    with store.writer(task.path) as sink, pa.ipc.new_file(sink, pa.schema([("entry", type_)])) as out:
        for start, stop in pairwise(offsets.tolist()):
            buffers = [None, pa.py_buffer(entries[start:stop].reshape(-1))]
            column = pa.Array.from_buffers(type_, stop - start, buffers)
            out.write_batch(pa.record_batch([column], names=["entry"]))


def read_bucket(store: ObjectStore, paths: Sequence[str], bucket: int, entry_bytes: int) -> list[Entries]:
    """The entries of one bucket in each of the files."""
    found = []
    for path in paths:
        with store.open(path) as source:  # not the whole file: other tasks read the other buckets
            column = pa.ipc.open_file(source).get_batch(bucket).column(0)
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8)[: len(column) * entry_bytes]
        found.append(data.reshape(-1, entry_bytes))
    return found


def _packed(store: ObjectStore, task: ScatterTask) -> Iterator[Entries]:
    parts = [Part(matched(one.piece.file, task.columns), task.columns.names, one.piece.rows) for one in task.pieces]
    for one, slices in zip(task.pieces, live_tables_of_each(store, parts, task.reading), strict=True):
        for rows, table in slices:
            if table.num_rows:
                digests, sort_keys = _digests(table, one, task), _sort_keys(table, one, task)
                marked = _marked(table, rows, one.piece.file.path, task)
                yield _kernels.pack_entries(digests, sort_keys, one.piece.ordinal, marked)


def _digests(table: pa.Table, one: Compared, task: ScatterTask) -> npt.NDArray[np.uint8]:
    path = one.piece.file.path
    encoding = task.order.encoding
    for column in encoding.key_columns:
        if column != KEY_SPACE and (nulls := table[column.name].null_count):
            raise InputError(f"{path}: key column {column.name!r} is null in {counted(nulls, 'row')}")
    if KEY_SPACE in encoding.key_columns:
        table = table.append_column(KEY_SPACE.name, pa.array(np.full(table.num_rows, one.key_space, np.int64)))
    return encoding.digests(table, path)


def _sort_keys(table: pa.Table, one: Compared, task: ScatterTask) -> npt.NDArray[np.uint8]:
    by_columns = task.order.encoding.sort_keys(table, one.piece.file.path)
    if not task.order.has_sequence:
        return by_columns
    sequences = np.full(table.num_rows, one.sequence_number, np.int64)
    if LAST_UPDATED.name in table.column_names:
        sequences = np.asarray(pc.fill_null(table[LAST_UPDATED.name], one.sequence_number), np.int64)
    bytes_ = sequences.astype(">i8").view(np.uint8).reshape(-1, SEQUENCE_BYTES)
    return np.ascontiguousarray(np.hstack([bytes_, by_columns]))


def _marked(table: pa.Table, rows: npt.NDArray[np.uint64], path: str, task: ScatterTask) -> npt.NDArray[np.uint64]:
    """The row numbers, with the delete bit where the row deletes its key."""
    if task.operation is None or task.deletes is None or task.operation not in table.column_names:
        return rows
    values = schemas.cast(schemas.plain(table[task.operation]), task.deletes.type, path, task.operation)
    are_deletes = np.asarray(pc.is_in(values, value_set=task.deletes))
    return np.where(are_deletes, rows | DELETE_BIT, rows)
