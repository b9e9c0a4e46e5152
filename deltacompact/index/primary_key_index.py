"""The primary key index: for each hash bucket, one entry for each live row (and tombstone), sorted by digest.

    run 0 (oldest)   k1 -> (14, 3)   k2 -> (15, 0)   k3 -> (15, 7)      a full compaction wrote it
    run 1            k2 -> (20, 1)   k3 -> gone                         a small compaction wrote only the changes
    relocation       file 15 was rewritten: its live rows, in order, are rows of file 21
    the index        k1 -> (14, 3)   k2 -> (20, 1)

A compaction that changes little adds a run and, for the files that it rewrote, a relocation: one bit a row instead of
32 bytes. So the cost of writing the index grows with the change, not with the table. If there are many runs, or the
later ones are large compared to the first, the next compaction merges them. The manifest names every file with its
checksums. Pointers have file numbers. During a session's rounds they have the session's ordinals instead, and the
manifest is marked as not publishable.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import FORMAT_VERSION
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.entries import TOMBSTONE, Entries, fields
from deltacompact.index.index_files import IndexFile, read_bucket
from deltacompact.index.keys import ENCODING_VERSION, Encoding, KeyClass, KeyColumn, SortColumn
from deltacompact.index.remap import Relocation, Relocator
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.objects import ObjectStore

MOVED_FORMAT = 3
"""Of a manifest with rows that were laid out by columns: an earlier release would take their ranks for their places, or
(2) knows their destinations in another form."""

Run = tuple[tuple[IndexFile, ...], ...]
"""A run: the files of each hash bucket, in digest order."""


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """Describes an index: runs and relocations, the oldest first, and the numbers of live rows and tombstones."""

    encoding: Encoding
    runs: tuple[Run, ...]
    rows: int
    tombstones: int
    publishable: bool = True
    relocations: tuple[Relocation, ...] = ()

    @property
    def hash_bucket_count(self) -> int:
        return len(self.runs[0])

    @property
    def files(self) -> Iterator[IndexFile]:
        """Every file of every run."""
        return chain.from_iterable(chain.from_iterable(self.runs))

    @property
    def paths(self) -> Iterator[str]:
        """The path of every object that readers of the index need."""
        yield from (file.path for file in self.files)
        yield from {file.masks_path: None for relocation in self.relocations for file in relocation.files}
        yield from {moves.path: None for relocation in self.relocations for moves in relocation.moves}

    def run_entries(self, run: int) -> int:
        return sum(file.rows for bucket in self.runs[run] for file in bucket)

    @property
    def entries(self) -> int:
        return self.rows + self.tombstones

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def to_bytes(self) -> bytes:
        encoding = self.encoding
        document: dict[str, Any] = {
            "format": MOVED_FORMAT if any(relocation.moves for relocation in self.relocations) else FORMAT_VERSION,
            **encoding_document(encoding),
            "hash_bucket_count": self.hash_bucket_count,
            "rows": self.rows,
            "tombstones": self.tombstones,
            "publishable": self.publishable,
            "runs": [
                [[(file.path, file.rows, file.bytes, file.crc32s) for file in bucket] for bucket in run]
                for run in self.runs
            ],
            "relocations": [relocation.to_json() for relocation in self.relocations],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> IndexManifest:
        document = json.loads(data)
        if document["format"] > MOVED_FORMAT:
            raise InputError(f"{path} has format version {document['format']}: update deltacompact")
        if (version := document["encoding_version"]) > ENCODING_VERSION:
            raise InputError(f"{path} has key encoding {version}, this deltacompact knows up to {ENCODING_VERSION}")
        runs = tuple(
            tuple(
                tuple(IndexFile(file, rows, size, tuple(crc32s)) for file, rows, size, crc32s in bucket)
                for bucket in run
            )
            for run in document["runs"]
        )
        relocations = tuple(Relocation.from_json(relocation) for relocation in document["relocations"])
        rows, tombstones = document["rows"], document["tombstones"]
        return cls(encoding_of_document(document), runs, rows, tombstones, document["publishable"], relocations)


def encoding_document(encoding: Encoding) -> dict[str, Any]:
    """An encoding as JSON values."""
    return {
        "encoding_version": encoding.version,
        "key_columns": [(c.name, c.key_class and c.key_class.name, c.scale) for c in encoding.key_columns],
        "sort_columns": [(c.name, str(c.type), c.descending) for c in encoding.sort_columns],
        "sort_types": pa.schema([(c.name, c.type) for c in encoding.sort_columns]).serialize().to_pybytes().hex(),
        "sort_widths": [(c.width, c.longest) for c in encoding.sort_columns],
    }


def encoding_of_document(document: Mapping[str, Any]) -> Encoding:
    """The encoding of `encoding_document`."""
    key_columns = tuple(
        KeyColumn(name, KeyClass[key_class] if key_class else None, scale)
        for name, key_class, scale in document["key_columns"]
    )
    types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(document["sort_types"])))
    widths = document.get("sort_widths") or [(None, 0)] * len(types)
    sort_columns = tuple(
        SortColumn(name, types.field(name).type, descending, width, longest)
        for (name, _, descending), (width, longest) in zip(document["sort_columns"], widths, strict=True)
    )
    return Encoding(key_columns, sort_columns, document["encoding_version"])


def write_manifest(store: ObjectStore, path: str, manifest: IndexManifest) -> ObjectRef:
    data = manifest.to_bytes()
    store.put(path, data)
    return ObjectRef(path, hashlib.sha256(data).hexdigest())


def read_manifest(store: ObjectStore, ref: ObjectRef) -> IndexManifest:
    """Read a manifest. Raises CorruptionError if its SHA-256 differs from the reference's."""
    data = store.get(ref.path)
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise CorruptionError(f"{store.uri}{ref.path}: the index manifest's SHA-256 differs from the log's")
    return IndexManifest.from_bytes(data, ref.path)


def read_run(
    store: ObjectStore, manifest: IndexManifest, run: int, bucket: int, ahead: ReadAhead | None = None
) -> Iterator[Entries]:
    """Stream one run's entries of a bucket, as stored."""
    files = manifest.runs[run][bucket]
    return read_bucket(store, files, manifest.encoding.entry_bytes, manifest.hash_bucket_count, bucket, ahead)


def read_runs(
    store: ObjectStore, manifest: IndexManifest, bucket: int, ahead: ReadAhead | None
) -> list[Iterator[Entries]]:
    """The streams of all runs of a bucket, the oldest first.

    Fetching remote files begins with this call, newer runs first: they are small, and a merge needs all runs.
    """
    runs = reversed(range(len(manifest.runs)))
    return [read_run(store, manifest, run, bucket, ahead) for run in runs][::-1]


def read_index(
    store: ObjectStore, manifest: IndexManifest, bucket: int, ahead: ReadAhead | None = None
) -> Iterator[Entries]:
    """Stream the newest entry of each key in a bucket, relocated, in digest order.

    Fetching remote files begins with this call. Raises CorruptionError if checksum, row count, order or bucket
    contradict the manifest.
    """
    ahead = ahead or ReadAhead()
    return _newest_of(store, manifest, read_runs(store, manifest, bucket, ahead), ahead.limits)


def _newest_of(
    store: ObjectStore, manifest: IndexManifest, runs: list[Iterator[Entries]], limits: ReadLimits
) -> Iterator[Entries]:
    if len(runs) == 1 and not manifest.relocations:
        yield from runs[0]
        return
    relocator = Relocator(store, manifest.relocations, limits)
    # The newest runs are small. They are merged first, so the entries of the large ones are copied once.
    for chunk in functools.reduce(lambda newer, older: _merged(older, newer), reversed(runs)):
        yield relocator.relocated(_kernels.present_entries(chunk))


def _merged(older: Iterator[Entries], newer: Iterator[Entries]) -> Iterator[Entries]:
    """Merge two streams in digest order. If both have an entry of a key, the newer stream's entry wins.

    older  k1 k4 k6 | k8 …      both chunks reach k4: yield k1, k2 and the newer k4;
    newer  k2 k4 | k9 …         k6 waits for the newer stream's next chunk
    """
    old, new = _next_chunk(older), _next_chunk(newer)
    while old is not None and new is not None:
        upto = min(old[-1:], new[-1:], key=lambda last: last[0, :20].tobytes())
        from_old, from_new = _kernels.count_to(old, upto), _kernels.count_to(new, upto)
        yield _kernels.merge_entries(old[:from_old], new[:from_new])
        old = old[from_old:] if from_old < len(old) else _next_chunk(older)
        new = new[from_new:] if from_new < len(new) else _next_chunk(newer)
    for rest, stream in ((old, older), (new, newer)):
        if rest is not None:
            yield from chain((rest,), stream)


def _next_chunk(stream: Iterator[Entries]) -> Entries | None:
    """The next chunk that is not empty; None at the end."""
    return next((chunk for chunk in stream if len(chunk)), None)


def newest_entries(
    manifest: IndexManifest, runs: Iterable[Iterator[Entries]], new: list[Entries], relocator: Relocator
) -> Entries:
    """The index's newest entries of the keys of `new`, in digest order.

    `runs` has a bucket's runs, the newest first. Each is streamed, a chunk at a time.
    """
    touched = _kernels.Touched(new, manifest.encoding.entry_bytes)
    for run in runs:
        for chunk in run:
            touched.find(chunk)
    return relocator.relocated(touched.found())


def reencoded(entries: Entries, before: Encoding, after: Encoding) -> Entries:
    """The entries, with sort keys re-encoded in the types of `after`: a sort column has widened."""
    from deltacompact.index.sort_keys import decode

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
    return IndexManifest(encoding, (((),) * hash_bucket_count,), 0, 0)


@dataclass(frozen=True, slots=True)
class FileOrdinals:
    """The session ordinals of the files that an index points to. `numbers` ascend; `path` names the index in errors."""

    numbers: npt.NDArray[np.uint32]
    ordinals: npt.NDArray[np.uint32]
    path: str

    @classmethod
    def of(cls, ordinals: Mapping[ChainFileNumber, Ordinal], path: str) -> FileOrdinals:
        known = sorted(ordinals.items())
        numbers, own = np.array([*known, (TOMBSTONE, TOMBSTONE)], np.uint32).T.copy()
        return cls(numbers, own, path)

    def renumbered(self, entries: Entries) -> Entries:
        """The entries with session ordinals instead of file numbers. Raises CorruptionError for an unknown file."""
        entries = entries.copy()
        view = fields(entries)
        places = np.searchsorted(self.numbers, view["file"])
        if (unknown := self.numbers[places] != view["file"]).any():
            number = view["file"][unknown][0]
            raise CorruptionError(f"{self.path}: the index points to file {number}, which its version does not have")
        view["file"] = self.ordinals[places]
        return entries
