"""Index files: one hash bucket's entries in digest order, as Arrow IPC files of one fixed-size binary column.

    bucket 2   digest 08f1… -> file 14, row 3        index/5c….arrow    at most rows_per_primary_key_index_file entries
               digest 31aa… -> file 15, row 0
               digest 9e02… -> tombstone at 80       index/77….arrow

A stored row takes 32 bytes plus its sort key, in batches of about a million entries. The index manifest has the row
count of each file and the CRC-32 of each batch. Readers verify both, and the order and the bucket of the entries.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError, StoreError
from deltacompact.base.wording import text_of
from deltacompact.index.entries import GONE, TOMBSTONE, Entries, fields
from deltacompact.storage.fetched_file import FetchedFile, ReadAhead
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular.damage import is_stores_fault


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of one bucket. `crc32s` has a checksum for each batch."""

    path: str
    rows: int
    bytes: int
    crc32s: tuple[int, ...]


def read_bucket(
    store: ObjectStore,
    files: Iterable[IndexFile],
    entry_bytes: int,
    hash_bucket_count: int,
    bucket: int,
    ahead: ReadAhead | None,
) -> Iterator[Entries]:
    """Stream the entries of a bucket's files in digest order, verified chunk by chunk.

    Fetching remote files begins with this call, as far as `ahead` has room. Raises CorruptionError if checksum, row
    count, order or bucket contradict the manifest.
    """
    ahead = ahead or ReadAhead()
    sources = [(file, session_object(store, file.path, ahead, file.bytes)) for file in files]
    return _verified(store, sources, entry_bytes, hash_bucket_count, bucket)


def _verified(
    store: ObjectStore, sources: Iterable[tuple[IndexFile, OpenObject]], entry_bytes: int, count: int, bucket: int
) -> Iterator[Entries]:
    last: bytes | None = None
    for file, opened in sources:
        seen = 0
        for chunk, crc32 in _chunks(store, file, opened, entry_bytes):
            if _kernels.crc32(chunk) != crc32:
                raise CorruptionError(f"{store.uri}{file.path}: CRC-32 differs from the index manifest's")
            if len(chunk):
                first, last_of_chunk = chunk[0, :20].tobytes(), chunk[-1, :20].tobytes()
                if (last is not None and first <= last) or not _kernels.is_ascending(chunk):
                    raise CorruptionError(f"{store.uri}{file.path}: entries are not in digest order")
                if int.from_bytes(first, "big") % count != bucket:
                    raise CorruptionError(f"{store.uri}{file.path}: entries do not belong to bucket {bucket}")
                last = last_of_chunk
            seen += len(chunk)
            yield chunk
        if seen != file.rows:
            raise CorruptionError(f"{store.uri}{file.path} holds {seen} entries, the index manifest says {file.rows}")


def _chunks(store: ObjectStore, file: IndexFile, opened: OpenObject, entry_bytes: int) -> Iterator[tuple[Entries, int]]:
    with opened as source:
        reader = pa.ipc.open_file(source)
        if reader.num_record_batches != len(file.crc32s):
            raise CorruptionError(f"{store.uri}{file.path}: batches are missing")
        for number, crc32 in enumerate(file.crc32s):
            column = reader.get_batch(number).column(0)
            if column.type != pa.binary(entry_bytes):
                raise CorruptionError(f"{store.uri}{file.path}: entries are {column.type}, not {entry_bytes} bytes")
            raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * entry_bytes, 0)
            yield raw.reshape(-1, entry_bytes), crc32


OpenObject = contextlib.AbstractContextManager[pa.NativeFile]


def session_object(
    store: ObjectStore, path: str, ahead: ReadAhead | None = None, known_bytes: int | None = None
) -> OpenObject:
    """Opens an Arrow file that a session wrote, to be read whole. Fetching a remote file begins with this call.

    The block raises CorruptionError if the file's bytes are broken.
    """
    file_store, name = open_object(store, path)
    fetched = (ahead or ReadAhead()).file(file_store, name, known_bytes, whole=True)
    return _session_object(file_store, name, fetched)


@contextlib.contextmanager
def _session_object(file_store: ObjectStore, name: str, fetched: FetchedFile | None) -> Iterator[pa.NativeFile]:
    try:
        with file_store.open(name) if fetched is None else fetched as source:
            yield source
    except (pa.ArrowInvalid, OSError) as error:
        kind = StoreError if is_stores_fault(error) else CorruptionError
        raise kind(f"{file_store.uri}{name} cannot be read: {text_of(error)}") from error


FILES_CLOSING = 16
CLOSING_BYTES = 8 << 20
"""Most files of a task, and most bytes together, that are being closed while the task writes the next ones."""


class Closing:
    """Closes small files of a remote store in other threads, while the task goes on: closing sends the file.

        bucket 0: written, closing      bucket 1: written, closing      bucket 2: being written

    So a task of many buckets waits about once, not once for each bucket. The end of the block waits for all files. A
    large file is sent while it is written. That takes the task's memory for sending, so the small files end first.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._threads = ThreadPoolExecutor(FILES_CLOSING, "closing") if isinstance(store, Fetches) else None
        self._under_way: deque[tuple[Future[None], int]] = deque()

    def __enter__(self) -> Closing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        with self._threads or contextlib.nullcontext():
            if kind is None:
                self.wait()

    def close(self, file: contextlib.ExitStack, size: int) -> None:
        """Close a file of `size` bytes, now or soon. Raises the error of an earlier file that could not be closed."""
        if self._threads is None or size > CLOSING_BYTES:
            file.close()
            return
        while len(self._under_way) >= FILES_CLOSING or self._bytes + size > CLOSING_BYTES:
            self._wait_for_first()
        self._under_way.append((self._threads.submit(file.close), size))

    def wait(self) -> None:
        """Wait for all files that are being closed."""
        while self._under_way:
            self._wait_for_first()

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._under_way)

    def _wait_for_first(self) -> None:
        closed, _ = self._under_way.popleft()
        closed.result()


class BucketWriter:
    """Writes one bucket's entries, in digest order, as files of at most `rows_per_file` entries.

    `chunk_entries` is the size of a batch. A merge holds one batch of the index at a time, 32 to 64 MiB. Call `close`
    inside of its `with` block. With `closing`, its files exist when the block of `closing` ends.
    """

    def __init__(
        self,
        store: ObjectStore,
        path_of: Any,
        entry_bytes: int,
        rows_per_file: int,
        chunk_entries: int,
        closing: Closing | None = None,
    ) -> None:
        self.files: list[IndexFile] = []
        self.rows = 0
        self.tombstones = 0
        self._store = store
        self._path_of = path_of
        self._entry_bytes = entry_bytes
        self._rows_per_file = rows_per_file
        self._chunk_entries = chunk_entries
        self._closing = closing
        self._schema = pa.schema([pa.field("entry", pa.binary(entry_bytes), nullable=False)])
        self._waiting: list[Entries] = []
        self._waiting_rows = 0
        self._open: contextlib.ExitStack | None = None

    def write(self, entries: Entries) -> None:
        """Append entries. Their digests must be greater than all earlier ones."""
        file = np.ascontiguousarray(fields(entries)["file"])
        tombstones = int(np.count_nonzero(file == TOMBSTONE))
        self.tombstones += tombstones
        self.rows += int(np.count_nonzero(file < GONE))
        self._waiting.append(entries)
        self._waiting_rows += len(entries)
        if self._waiting_rows >= self._chunk_entries:
            self._flush(final=False)

    def close(self) -> tuple[IndexFile, ...]:
        self._flush(final=True)
        self._end_file()
        return tuple(self.files)

    def __enter__(self) -> BucketWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: Any) -> None:
        """Drop the unfinished file, if the block has failed."""
        if error is not None and self._open is not None:
            self._open.__exit__(kind, error, where)

    def _flush(self, final: bool) -> None:
        if not self._waiting:
            return
        entries = np.concatenate(self._waiting) if len(self._waiting) != 1 else self._waiting[0]
        start = 0
        while start < len(entries):
            if self._open is None:
                self._begin_file()
            room = self._rows_per_file - self._file_rows
            stop = min(len(entries), start + min(self._chunk_entries, room))
            if not final and stop - start < min(self._chunk_entries, room):
                break
            self._write_chunk(entries[start:stop])
            start = stop
            if self._file_rows == self._rows_per_file:
                self._end_file()
        self._waiting = [entries[start:]]
        self._waiting_rows = len(entries) - start

    def _begin_file(self) -> None:
        self._path = self._path_of()
        self._file_rows = 0
        self._crc32s: list[int] = []
        self._open = contextlib.ExitStack()
        sink = self._open.enter_context(self._store.writer(self._path))
        self._sink = sink
        self._ipc = pa.ipc.new_file(sink, self._schema)  # close it once: each close writes a footer

    def _write_chunk(self, entries: Entries) -> None:
        entries = np.ascontiguousarray(entries)
        column = pa.Array.from_buffers(pa.binary(self._entry_bytes), len(entries), [None, pa.py_buffer(entries)])
        self._ipc.write_batch(pa.record_batch([column], schema=self._schema))
        self._crc32s.append(_kernels.crc32(entries))
        self._file_rows += len(entries)
        if self._closing is not None and self._file_rows * self._entry_bytes > CLOSING_BYTES:
            self._closing.wait()

    def _end_file(self) -> None:
        if self._open is None:
            return
        self._ipc.close()
        size = self._sink.tell()
        ended, self._open = self._open, None
        if self._closing is None:
            ended.close()
        else:
            self._closing.close(ended, size)
        self.files.append(IndexFile(self._path, self._file_rows, size, tuple(self._crc32s)))
