"""The primary key index: per hash bucket, one entry for each live row (and tombstone), sorted by digest.

    bucket 2   digest 08f1… -> file 14, row 3        index/5c….arrow    at most rows_per_primary_key_index_file entries
               digest 31aa… -> file 15, row 0
               digest 9e02… -> tombstone at 80       index/77….arrow

A file is an Arrow IPC file of one column `entry`, fixed-size binary, in batches of about a million entries: 32 bytes a
row at rest and its sort key. The manifest names every file with its rows and the CRC-32 of each batch; loading verifies
both and the order. Pointers are file numbers of the compacted delta; in a session's rounds they are the session's
ordinals, and the manifest is flagged as not publishable.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.entries import TOMBSTONE, Entries, fields, none
from deltacompact.errors import CorruptionError, InputError, StoreError
from deltacompact.files import is_stores_fault
from deltacompact.keys import ENCODING_VERSION, Encoding, KeyClass, KeyColumn, SortColumn
from deltacompact.model import FORMAT_VERSION, ObjectRef
from deltacompact.storage import ObjectStore

CHUNK_ENTRIES = 1 << 20
"""Entries of one batch: what a merge holds of the index at a time, 32 to 64 MiB."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of one bucket. `crc32s` has one checksum for each batch."""

    path: str
    rows: int
    bytes: int
    crc32s: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """Everything about an index but its entries. `buckets` has the files of each hash bucket in digest order."""

    encoding: Encoding
    buckets: tuple[tuple[IndexFile, ...], ...]
    rows: int
    tombstones: int
    publishable: bool = True

    @property
    def hash_bucket_count(self) -> int:
        return len(self.buckets)

    @property
    def entries(self) -> int:
        return self.rows + self.tombstones

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for bucket in self.buckets for file in bucket)

    def to_bytes(self) -> bytes:
        encoding = self.encoding
        document = {
            "format": FORMAT_VERSION,
            "encoding_version": encoding.version,
            "key_columns": [(c.name, c.key_class and c.key_class.name, c.scale) for c in encoding.key_columns],
            "sort_columns": [(c.name, str(c.type), c.descending) for c in encoding.sort_columns],
            "sort_types": pa.schema([(c.name, c.type) for c in encoding.sort_columns]).serialize().to_pybytes().hex(),
            "hash_bucket_count": self.hash_bucket_count,
            "rows": self.rows,
            "tombstones": self.tombstones,
            "publishable": self.publishable,
            "buckets": [[(f.path, f.rows, f.bytes, f.crc32s) for f in bucket] for bucket in self.buckets],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> IndexManifest:
        document = json.loads(data)
        if document["format"] > FORMAT_VERSION:
            raise InputError(f"{path} has format version {document['format']}: update deltacompact")
        key_columns = tuple(
            KeyColumn(name, KeyClass[key_class] if key_class else None, scale)
            for name, key_class, scale in document["key_columns"]
        )
        types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(document["sort_types"])))
        sort_columns = tuple(
            SortColumn(name, types.field(name).type, descending) for name, _, descending in document["sort_columns"]
        )
        buckets = tuple(
            tuple(IndexFile(file, rows, size, tuple(crc32s)) for file, rows, size, crc32s in bucket)
            for bucket in document["buckets"]
        )
        encoding = Encoding(key_columns, sort_columns, document["encoding_version"])
        if encoding.version > ENCODING_VERSION:
            raise InputError(
                f"{path} has key encoding {encoding.version}, this deltacompact knows up to {ENCODING_VERSION}"
            )
        return cls(encoding, buckets, document["rows"], document["tombstones"], document["publishable"])


def write_manifest(store: ObjectStore, path: str, manifest: IndexManifest) -> ObjectRef:
    data = manifest.to_bytes()
    store.put(path, data)
    return ObjectRef(path, hashlib.sha256(data).hexdigest())


def read_manifest(store: ObjectStore, ref: ObjectRef) -> IndexManifest:
    """Raises CorruptionError where the manifest is not the one that was meant."""
    data = store.get(ref.path)
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise CorruptionError(f"{store.uri}{ref.path}: the index manifest's SHA-256 differs from the log's")
    return IndexManifest.from_bytes(data, ref.path)


def read_bucket(
    store: ObjectStore, files: Iterable[IndexFile], encoding: Encoding, hash_bucket_count: int, bucket: int
) -> Iterator[Entries]:
    """Stream a bucket's entries in digest order, verified chunk by chunk.

    Raises CorruptionError where checksum, row count, order or bucket are not what the manifest says.
    """
    last: bytes | None = None
    for file in files:
        seen = 0
        for chunk, crc32 in _chunks(store, file, encoding.entry_bytes):
            if _kernels.crc32(chunk) != crc32:
                raise CorruptionError(f"{store.uri}{file.path}: CRC-32 differs from the index manifest's")
            if len(chunk):
                first, last_here = chunk[0, :20].tobytes(), chunk[-1, :20].tobytes()
                if (last is not None and first <= last) or not _kernels.is_ascending(chunk):
                    raise CorruptionError(f"{store.uri}{file.path}: entries are not in digest order")
                if int.from_bytes(first, "big") % hash_bucket_count != bucket:
                    raise CorruptionError(f"{store.uri}{file.path}: entries of another bucket than {bucket}")
                last = last_here
            seen += len(chunk)
            yield chunk
        if seen != file.rows:
            raise CorruptionError(f"{store.uri}{file.path} holds {seen} entries, the index manifest says {file.rows}")


def _chunks(store: ObjectStore, file: IndexFile, entry_bytes: int) -> Iterator[tuple[Entries, int]]:
    with session_object(store, file.path) as source:
        reader = pa.ipc.open_file(source)
        if reader.num_record_batches != len(file.crc32s):
            raise CorruptionError(f"{store.uri}{file.path}: batches are missing")
        for place, crc32 in enumerate(file.crc32s):
            column = reader.get_batch(place).column(0)
            if column.type != pa.binary(entry_bytes):
                raise CorruptionError(f"{store.uri}{file.path}: entries are {column.type}, not {entry_bytes} bytes")
            raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * entry_bytes, 0)
            yield raw.reshape(-1, entry_bytes), crc32


@contextlib.contextmanager
def session_object(store: ObjectStore, path: str) -> Iterator[pa.NativeFile]:
    """Open an Arrow file of our own writing. Bytes that are wrong are corruption; a broken connection is not."""
    try:
        with store.open(path) as source:
            yield source
    except (pa.ArrowInvalid, OSError) as error:
        kind = StoreError if is_stores_fault(error) else CorruptionError
        raise kind(f"{store.uri}{path} cannot be read: {' '.join(str(error).split())}") from error


class BucketWriter:
    """Writes one bucket's entries, in digest order, as files of at most `rows_per_file` entries."""

    def __init__(self, store: ObjectStore, path_of: Any, entry_bytes: int, rows_per_file: int) -> None:
        self.files: list[IndexFile] = []
        self.rows = 0
        self.tombstones = 0
        self._store = store
        self._path_of = path_of
        self._entry_bytes = entry_bytes
        self._rows_per_file = rows_per_file
        self._schema = pa.schema([pa.field("entry", pa.binary(entry_bytes), nullable=False)])
        self._waiting: list[Entries] = []
        self._waiting_rows = 0
        self._open: contextlib.ExitStack | None = None

    def write(self, entries: Entries) -> None:
        """Append entries that follow all before them."""
        tombstones = int(np.count_nonzero(fields(entries)["file"] == TOMBSTONE))
        self.tombstones += tombstones
        self.rows += len(entries) - tombstones
        self._waiting.append(entries)
        self._waiting_rows += len(entries)
        if self._waiting_rows >= CHUNK_ENTRIES:
            self._flush(final=False)

    def close(self) -> tuple[IndexFile, ...]:
        self._flush(final=True)
        self._end_file()
        return tuple(self.files)

    def abandon(self) -> None:
        """Leave nothing of an unfinished file behind."""
        if self._open is not None:
            self._open.__exit__(RuntimeError, RuntimeError("abandoned"), None)

    def _flush(self, final: bool) -> None:
        if not self._waiting:
            return
        entries = np.concatenate(self._waiting) if len(self._waiting) != 1 else self._waiting[0]
        start = 0
        while start < len(entries):
            if self._open is None:
                self._begin_file()
            room = self._rows_per_file - self._file_rows
            stop = min(len(entries), start + min(CHUNK_ENTRIES, room))
            if not final and stop - start < min(CHUNK_ENTRIES, room):
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
        self._ipc = self._open.enter_context(pa.ipc.new_file(sink, self._schema))

    def _write_chunk(self, entries: Entries) -> None:
        entries = np.ascontiguousarray(entries)
        column = pa.Array.from_buffers(pa.binary(self._entry_bytes), len(entries), [None, pa.py_buffer(entries)])
        self._ipc.write_batch(pa.record_batch([column], schema=self._schema))
        self._crc32s.append(_kernels.crc32(entries))
        self._file_rows += len(entries)

    def _end_file(self) -> None:
        if self._open is None:
            return
        self._ipc.close()
        size = self._sink.tell()
        self._open.close()
        self._open = None
        self.files.append(IndexFile(self._path, self._file_rows, size, tuple(self._crc32s)))


@contextlib.contextmanager
def bucket_writer(store: ObjectStore, path_of: Any, entry_bytes: int, rows_per_file: int) -> Iterator[BucketWriter]:
    """A BucketWriter that leaves nothing half written; call its `close` inside the block."""
    writer = BucketWriter(store, path_of, entry_bytes, rows_per_file)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


def reencoded(entries: Entries, before: Encoding, after: Encoding) -> Entries:
    """Entries whose sort keys are brought to the types of `after`: a widened sort column re-encodes the index."""
    from deltacompact.sort_keys import decode

    if before.sort_columns == after.sort_columns:
        return entries
    columns = decode(entries[:, 20 : 20 + before.sort_key_bytes], before)
    table = pa.table(columns, names=[column.name for column in before.sort_columns])
    fresh = after.sort_keys(table, "the primary key index")
    result = np.empty((len(entries), after.entry_bytes), np.uint8)
    result[:, :20] = entries[:, :20]
    result[:, 20:-12] = fresh
    result[:, -12:] = entries[:, -12:]
    return result


def empty_manifest(encoding: Encoding, hash_bucket_count: int) -> IndexManifest:
    return IndexManifest(encoding, ((),) * hash_bucket_count, 0, 0)


def renumbered(entries: Entries, ordinals: Mapping[int, int]) -> Entries:
    """Pointers by file number become pointers by session ordinal. Raises CorruptionError for a file unknown."""
    if not len(entries):
        return none(entries.shape[1])
    entries = entries.copy()
    view = fields(entries)
    numbers = view["file"].astype(np.int64)
    known = np.array(sorted(ordinals), np.int64)
    target = np.array([ordinals[number] for number in sorted(ordinals)], np.uint32)
    live = numbers != TOMBSTONE
    places = np.searchsorted(known, numbers)
    clipped = np.minimum(places, max(0, len(known) - 1))
    if live.any() and (not len(known) or (known[clipped][live] != numbers[live]).any()):
        raise CorruptionError("the primary key index points to a file that the compacted delta does not have")
    if len(known):
        view["file"] = np.where(live, target[clipped], np.uint32(TOMBSTONE))
    return entries
