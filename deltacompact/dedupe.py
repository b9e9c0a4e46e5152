"""Step 2, dedupe: fold a bucket's new entries into its index, key by key.

    index        k1 -> (0, 4)            k3 -> (1, 9)
    new          k1 -> (7, 0)  k2 -> (7, 1)  k2 -> (8, 0) delete
    new index    k1 -> (7, 0)            k3 -> (1, 9)          superseded 1, deleted 1, live 2

The index is streamed in digest order and only the new entries are resident: a linear merge. Pointers of the result are
session ordinals; every round but for publication works like this (paper, dedupe step and compaction rounds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.entries import TOMBSTONE, Entries, fields, none
from deltacompact.errors import CorruptionError
from deltacompact.hash_bucket import BucketGroup
from deltacompact.keys import Encoding
from deltacompact.primary_key_index import (
    IndexFile,
    IndexManifest,
    bucket_writer,
    read_bucket,
    reencoded,
    renumbered,
)
from deltacompact.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class FoldCounts:
    """Rows by what became of them. Every upsert is counted once, by the event that killed it, or as live."""

    upserts: int = 0
    deletes: int = 0
    superseded: int = 0
    deleted: int = 0
    live: int = 0
    tombstones: int = 0

    def __add__(self, other: FoldCounts) -> FoldCounts:
        return FoldCounts(
            self.upserts + other.upserts,
            self.deletes + other.deletes,
            self.superseded + other.superseded,
            self.deleted + other.deleted,
            self.live + other.live,
            self.tombstones + other.tombstones,
        )


@dataclass(frozen=True, slots=True)
class BaseIndex:
    """The index that a round starts from. `ordinals` translates file numbers; None: they are ordinals already."""

    manifest: IndexManifest
    ordinals: Mapping[int, int] | None = None

    def chunks(self, store: ObjectStore, bucket: int, encoding: Encoding) -> Iterator[Entries]:
        """A bucket's entries in the session's terms: its encoding, its ordinals."""
        manifest = self.manifest
        stored = read_bucket(store, manifest.buckets[bucket], manifest.encoding, manifest.hash_bucket_count, bucket)
        for chunk in stored:
            chunk = reencoded(chunk, manifest.encoding, encoding)
            yield chunk if self.ordinals is None else renumbered(chunk, self.ordinals)


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """One group of buckets of one round. `positions` has the stream position of each session ordinal."""

    encoding: Encoding
    buckets: range
    base: BaseIndex
    positions: npt.NDArray[np.int64]
    tombstone_retention: int | None
    rows_per_index_file: int


@dataclass(frozen=True, slots=True)
class DedupeResult:
    """New index files by bucket, the counts, and the live rows of each session ordinal."""

    files: tuple[tuple[IndexFile, ...], ...]
    counts: FoldCounts
    live: npt.NDArray[np.int64]


def dedupe(store: ObjectStore, task: DedupeTask, path_of: Callable[[], str], *parts: BucketGroup) -> DedupeResult:
    """Fold the new entries (one part for each hash bucket task) into each bucket's index and write it."""
    written, counts = [], FoldCounts()
    live = np.zeros(len(task.positions), np.int64)
    for place in range(len(task.buckets)):
        folded = _fold_bucket(store, task, place, parts)
        with bucket_writer(store, path_of, task.encoding.entry_bytes, task.rows_per_index_file) as writer:
            for chunk in folded:
                live += live_rows(chunk, len(live))
                writer.write(chunk)
            written.append(writer.close())
        counts += folded.counts
    return DedupeResult(tuple(written), counts, live)


def dedupe_held(store: ObjectStore, task: DedupeTask, *parts: BucketGroup) -> Iterator[DedupeResult | BucketGroup]:
    """The same for a last round that fits the object store: the result, and the folded entries instead of files."""
    chunks, counts, offsets = [none(task.encoding.entry_bytes)], FoldCounts(), [0]
    live = np.zeros(len(task.positions), np.int64)
    for place in range(len(task.buckets)):
        folded = _fold_bucket(store, task, place, parts)
        chunks += folded
        offsets.append(sum(map(len, chunks)))
        counts += folded.counts
    entries = np.concatenate(chunks) if len(chunks) != 2 else chunks[1]
    live += live_rows(entries, len(live))
    yield DedupeResult(((),) * len(task.buckets), counts, live)
    yield entries, np.array(offsets, np.int64)


def _fold_bucket(store: ObjectStore, task: DedupeTask, place: int, parts: Sequence[BucketGroup]) -> Folded:
    new = [entries[offsets[place] : offsets[place + 1]] for entries, offsets in parts]
    base = task.base.chunks(store, task.buckets[place], task.encoding)
    return Folded(new, base, task.encoding, task.positions, task.tombstone_retention)


def live_rows(entries: Entries, ordinals: int) -> npt.NDArray[np.int64]:
    """How many entries point to each session ordinal."""
    file = fields(entries)["file"]
    return np.bincount(file[file != TOMBSTONE], minlength=ordinals).astype(np.int64)


class Folded:
    """Iterating folds; afterwards `counts` is known. The conservation of rows is asserted."""

    def __init__(
        self,
        new: Sequence[Entries],
        base: Iterator[Entries],
        encoding: Encoding,
        positions: npt.NDArray[np.int64],
        tombstone_retention: int | None,
    ) -> None:
        self.counts = FoldCounts()
        self._base = base
        parts = [part for part in new if len(part)] or [none(encoding.entry_bytes)]
        self._fold = _kernels.Fold(parts, encoding.sort_key_bytes, positions, tombstone_retention)

    def __iter__(self) -> Iterator[Entries]:
        base_live = 0
        for chunk in self._base:
            base_live += int(np.count_nonzero(fields(chunk)["file"] != TOMBSTONE))
            yield self._fold.push(chunk)
        yield self._fold.finish()
        self.counts = counts = FoldCounts(**self._fold.counts)
        if base_live + counts.upserts != counts.live + counts.superseded + counts.deleted:
            raise CorruptionError(f"rows were lost or made up: {base_live} before, {counts}")
