"""Step 1, hash bucket: turns rows of delta files into entries, grouped by hash bucket.

    file 7 (upsert)  k1 k2 k3   ->  bucket 0: k2 -> (7, 1)          a parcel for the buckets of each node
    file 8 (delete)  k2         ->  bucket 0: k2 -> (8, 0) delete
                                    bucket 1: k1 -> (7, 0), k3 -> (7, 2)

Tasks read only key, sort and partition columns (paper, hash bucket step; the paper appends digests to tables, here they
are packed into entries). Rows that are dead already get no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.batching import batched
from deltacompact.base.data_file import DataFile
from deltacompact.base.handed_over import HandedOver
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.numbers import Ordinal
from deltacompact.index.entries import DELETE_BIT, KEYLESS_BIT, Entries, none
from deltacompact.index.keys import Encoding, keyless
from deltacompact.index.live_bitmaps import live_tables_of_each
from deltacompact.steps.shuffle import Groups
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import formats, inferred_numbers, partition_texts
from deltacompact.tabular.files import Part


@dataclass(frozen=True, slots=True)
class SourceSlice(HandedOver):
    """A range of rows of one delta file. `ordinal` is the file's index in the session's fold order."""

    file: DataFile
    ordinal: Ordinal
    operation: OperationType
    rows: tuple[int, int]


def slices(sources: Sequence[SourceSlice], rows_max: int) -> list[tuple[SourceSlice, ...]]:
    """Divide files into tasks of at most `rows_max` rows. A file with more rows is split.

    Text files are not split, because reading any of their rows means reading the whole file.
    """
    pieces = (piece for source in sources for piece in _pieces(source, rows_max))
    return [tuple(task) for task in batched(pieces, lambda piece: piece.rows[1] - piece.rows[0], rows_max)]


def _pieces(source: SourceSlice, rows_max: int) -> Iterator[SourceSlice]:
    start, stop = source.rows
    count = 1 if source.file.content_type in formats.UNTYPED else max(1, -(-(stop - start) // rows_max))
    step = -(-(stop - start) // count)
    for low in range(start, max(stop, start + 1), max(1, step)):
        yield SourceSlice(source.file, source.ordinal, source.operation, (low, min(stop, low + step)))


def hash_bucket(
    store: ObjectStore,
    encoding: Encoding,
    partition: Partition,
    work: Sequence[SourceSlice],
    hash_bucket_count: int,
    parcel_starts: Sequence[int],
    reading: ReadLimits,
) -> Iterator[Groups]:
    """The entries of the slices' rows by bucket. Parcel i has the buckets [parcel_starts[i], parcel_starts[i + 1])."""
    parts = list(_packed(store, encoding, partition, work, reading))
    parts = parts or [none(encoding.entry_bytes)]
    entries, offsets = _kernels.group_entries(parts, hash_bucket_count, for_fold=True)
    del parts
    yield from Groups(0, (entries,), offsets).parcels(parcel_starts)


def _packed(
    store: ObjectStore, encoding: Encoding, partition: Partition, work: Sequence[SourceSlice], reading: ReadLimits
) -> Iterator[Entries]:
    columns = (*encoding.columns, *partition.names)
    parts = [Part(piece.file, columns, piece.rows) for piece in work]
    for piece, slices in zip(work, live_tables_of_each(store, parts, reading), strict=True):
        for rows, table in slices:
            check_values(table, encoding, partition, piece.file)
            yield pack(table, encoding, piece.file.path, piece.ordinal, piece.operation, rows)


def check_values(table: pa.Table, encoding: Encoding | None, partition: Partition, file: DataFile) -> None:
    """Raises InputError for values that appends refuse, too: the file may have come before the keys were declared."""
    partition_texts.check_partition_values(table, partition, file.path)
    if encoding is not None and file.content_type in formats.UNTYPED:
        inferred_numbers.check_keys(table, encoding.columns, file.path)


def pack(
    table: pa.Table,
    encoding: Encoding,
    path: str,
    ordinal: Ordinal,
    operation: OperationType,
    rows: npt.NDArray[np.uint64],
) -> Entries:
    """The entries of rows of one file. `rows` has their row numbers."""
    if operation is OperationType.DELETE:
        rows = rows | DELETE_BIT
        rows[keyless(table, encoding)] |= KEYLESS_BIT
    return _kernels.pack_entries(encoding.digests(table, path), encoding.sort_keys(table, path), ordinal, rows)
