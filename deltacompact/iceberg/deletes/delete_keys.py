"""Task: equality-delete files become digests of keys, with the greatest sequence number of each, by hash bucket.

    e1.parquet    sequence 6    id 1, id 2          bucket 0    digest(2) 6
    e2.parquet    sequence 7    id 1                bucket 1    digest(1) 7         6 is superseded: 7 deletes more

A key set is all equality deletes of one partition (or of the whole table) with the same field ids. For each row of a
data file we ask: which is the newest delete of this key? So a key set maps a key's digest to a sequence number. The map
is divided into hash buckets, ranges of digests, which are stored as files. A searching task loads one bucket after the
other: no process ever holds all deleted keys of a table.

Keys are digested like primary keys (`index/keys.py`), with one difference: a float is digested by its bits, because
Iceberg tells 0.0 from -0.0. Null equals null and NaN equals NaN (rule 13).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.batching import batched
from deltacompact.base.limits import ReadLimits
from deltacompact.iceberg.deletes.ranges import Prefixes, buckets_of
from deltacompact.iceberg.table.name_mapping import Names
from deltacompact.iceberg.table.parquet_files import StoredFile, WantedFile, opened_each
from deltacompact.index.index_files import session_object
from deltacompact.index.keys import DIGEST_BYTES, encoding_of
from deltacompact.storage.fetched_file import ReadAhead, announce, begun_ahead
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object

KEYS = pa.schema([("digest", pa.binary(DIGEST_BYTES)), ("sequence", pa.int64())])
"""The columns of a bucket's file."""


@dataclass(frozen=True, slots=True)
class DeleteKeysTask:
    """Digests the keys of some equality-delete files of one key set. `columns` are named by their field ids, and
    `names` find them in files without ids.

    The keys of bucket 3 go to `{path}-3.arrow`.
    """

    key_set: int
    columns: pa.Schema
    files: tuple[StoredFile, ...]
    bucket_count: int
    path: str
    reading: ReadLimits
    names: Names | None = None

    def bucket_path(self, bucket: int) -> str:
        return f"{self.path}-{bucket}.arrow"


def write_delete_keys(store: ObjectStore, task: DeleteKeysTask) -> list[int]:
    """Write the keys by bucket. Returns the number of keys in each; a bucket without keys gets no file."""
    counts = [0] * task.bucket_count
    writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}
    with contextlib.ExitStack() as open_files:

        def writer(bucket: int) -> pa.ipc.RecordBatchFileWriter:
            if bucket not in writers:
                file_store, name = open_object(store, task.bucket_path(bucket))
                sink = open_files.enter_context(file_store.writer(name))
                writers[bucket] = open_files.enter_context(pa.ipc.new_file(sink, KEYS))
            return writers[bucket]

        for keys in _gathered(store, task):
            for bucket, of_bucket in _by_bucket(keys, task.bucket_count):
                writer(bucket).write_table(of_bucket)
                counts[bucket] += of_bucket.num_rows
    return counts


def _gathered(store: ObjectStore, task: DeleteKeysTask) -> Iterator[pa.Table]:
    """The keys of the files. Many small files make one table, so that little is written for each."""
    parts = batched(_keys_of_files(store, task), lambda keys: keys.num_rows, task.reading.batch_rows_max)
    return (newest(pa.concat_tables(waiting)) for waiting in parts)


def _keys_of_files(store: ObjectStore, task: DeleteKeysTask) -> Iterator[pa.Table]:
    wanted = (WantedFile(stored, task.columns, _needed(task.columns), names=task.names) for stored in task.files)
    for stored, opened in zip(task.files, opened_each(store, wanted, task.reading), strict=True):
        for _, table in opened.tables(task.columns):
            found = digests(table, task.columns, stored.path)
            sequence = pa.repeat(pa.scalar(stored.sequence_number, pa.int64()), len(found))
            yield pa.Table.from_arrays([as_arrow(found), sequence], schema=KEYS)


def _needed(columns: pa.Schema) -> dict[int, str]:
    """Columns that a delete file must have: without one, it would delete the rows in which the column is null."""
    return {int(name): "by which it deletes" for name in columns.names}


def digests(table: pa.Table, columns: pa.Schema, path: str) -> npt.NDArray[np.uint8]:
    """The digest of each row's key: (rows, 20). `table` has exactly these columns."""
    if any(pa.types.is_floating(column.type) for column in columns):
        arrays = [_bits(table.column(number)) for number in range(table.num_columns)]
        table = pa.Table.from_arrays(arrays, names=table.column_names)
    return encoding_of(table.schema, path).digests(table, path)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A float column as the bits of doubles, every NaN as the same. Other columns stay."""
    if not pa.types.is_floating(column.type):
        return column
    doubles = column.cast(pa.float64())
    doubles = pc.if_else(pc.is_nan(doubles), pa.scalar(np.nan, pa.float64()), doubles)
    chunks = [chunk.view(pa.int64()) for chunk in doubles.chunks]
    return pa.chunked_array(chunks, pa.int64())


def as_arrow(found: npt.NDArray[np.uint8]) -> pa.Array:
    """Digests as an Arrow array, without a copy."""
    flat = np.ascontiguousarray(found).reshape(-1)
    return pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(found), [None, pa.py_buffer(flat)])


def prefixes(column: pa.Array | pa.ChunkedArray) -> Prefixes:
    """The first eight bytes of each digest, as a number."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    flat = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    first = array.offset * DIGEST_BYTES
    found = flat[first : first + len(array) * DIGEST_BYTES].reshape(-1, DIGEST_BYTES)[:, :8]
    return np.ascontiguousarray(found).view(">u8").reshape(-1).astype(np.uint64)


def newest(keys: pa.Table) -> pa.Table:
    """One row for each digest, with the greatest sequence number."""
    merged = keys.group_by("digest", use_threads=False).aggregate([("sequence", "max")])
    return merged.rename_columns({"sequence_max": "sequence"}).select(KEYS.names).cast(KEYS)


def _by_bucket(keys: pa.Table, bucket_count: int) -> Iterator[tuple[int, pa.Table]]:
    if bucket_count == 1:
        yield 0, keys
        return
    buckets = buckets_of(prefixes(keys["digest"]), bucket_count)
    order = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[order], np.arange(bucket_count + 1))
    ordered = keys.take(pa.array(order))
    for bucket in np.unique(buckets):
        yield int(bucket), ordered.slice(starts[bucket], starts[bucket + 1] - starts[bucket])


def read_buckets(store: ObjectStore, buckets: Iterable[Sequence[str]]) -> Iterator[pa.Table]:
    """The keys of each bucket, merged from the files of all tasks. The files of the next buckets are fetched ahead."""
    ahead = ReadAhead()
    for opened in begun_ahead(buckets, lambda paths: [session_object(store, path, ahead) for path in paths]):
        parts = [_keys_in(file) for file in opened]
        yield newest(pa.concat_tables(parts)) if parts else KEYS.empty_table()


def _keys_in(opened: contextlib.AbstractContextManager[pa.NativeFile]) -> pa.Table:
    with opened as source:
        announce(source)
        return pa.ipc.open_file(source).read_all()
