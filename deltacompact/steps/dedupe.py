"""Step 2, dedupe: fold a bucket's new entries into its index, key by key.

    index        k1 -> (0, 4)            k3 -> (1, 9)
    new          k1 -> (7, 0)  k2 -> (7, 1)  k2 -> (8, 0) delete
    new index    k1 -> (7, 0)            k3 -> (1, 9)          superseded 1, deleted 1, live 2

The task streams the index in digest order and holds only the new entries in memory: a linear merge. The result points
to session ordinals, in every round (paper, dedupe step and compaction rounds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.index.entries import GONE, TOMBSTONE, Entries, fields, none
from deltacompact.index.index_files import BucketWriter, Closing, IndexFile
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import (
    FileOrdinals,
    IndexManifest,
    newest_entries,
    read_index,
    read_runs,
    reencoded,
)
from deltacompact.index.remap import Relocator
from deltacompact.steps.assign_pointers import Pointers, joined
from deltacompact.steps.shuffle import Groups, Passed, received
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class FoldCounts:
    """Counts of rows. Every upsert is counted once: as live, or by the event that killed it."""

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

    def __sub__(self, other: FoldCounts) -> FoldCounts:
        return self + FoldCounts(*(-count for count in astuple(other)))


@dataclass(frozen=True, slots=True)
class BaseIndex:
    """The index before a round. `ordinals` translates file numbers; None: the index has ordinals already."""

    manifest: IndexManifest
    ordinals: FileOrdinals | None = None

    def chunks(
        self, store: ObjectStore, bucket: int, encoding: Encoding, ahead: ReadAhead | None = None
    ) -> Iterator[Entries]:
        """A bucket's entries, with the session's encoding and ordinals. Fetching remote files begins with this call."""
        return (self._translated(chunk, encoding) for chunk in read_index(store, self.manifest, bucket, ahead))

    def newest_of_each(
        self,
        store: ObjectStore,
        new_of_bucket: Iterable[tuple[int, list[Entries]]],
        encoding: Encoding,
        relocator: Relocator,
        limits: ReadLimits = READ_LIMITS,
    ) -> Iterator[tuple[int, list[Entries], Entries]]:
        """For each bucket: its number, its new entries, and the index's newest entries of the same keys.

        The index's entries get the session's encoding and ordinals. Files of the next buckets are fetched ahead; files
        of buckets without new keys are not opened.
        """
        ahead = ReadAhead(limits)

        def begun(bucket: int, new: list[Entries]) -> tuple[int, list[Entries], list[Iterator[Entries]]]:
            return bucket, new, read_runs(store, self.manifest, bucket, ahead) if any(map(len, new)) else []

        for bucket, new, runs in begun_ahead(new_of_bucket, lambda item: begun(*item)):
            found = newest_entries(self.manifest, reversed(runs), new, relocator)
            yield bucket, new, self._translated(found, encoding)

    def _translated(self, entries: Entries, encoding: Encoding) -> Entries:
        entries = reencoded(entries, self.manifest.encoding, encoding)
        return entries if self.ordinals is None else self.ordinals.renumbered(entries)


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """How a round is folded. All tasks of the round share it; each folds one bucket group.

    `positions` has the stream position of each session ordinal. `path_of` makes paths for the files that a task writes.
    """

    encoding: Encoding
    base: BaseIndex
    positions: npt.NDArray[np.int64]
    tombstone_retention: int | None
    rows_per_index_file: int
    path_of: Callable[[], str]
    chunk_entries: int
    reading: ReadLimits

    def bucket_writer(self, store: ObjectStore, closing: Closing) -> BucketWriter:
        """A writer of one bucket's entries."""
        sizes = self.rows_per_index_file, self.chunk_entries
        return BucketWriter(store, self.path_of, self.encoding.entry_bytes, *sizes, closing)


@dataclass(frozen=True, slots=True)
class DedupeResult:
    """New index files by bucket, counts, and the number of live rows of each session ordinal, in the narrowest type."""

    files: tuple[tuple[IndexFile, ...], ...]
    counts: FoldCounts
    live: npt.NDArray[np.signedinteger[Any]]


def narrowed(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.signedinteger[Any]]:
    """The counts in the narrowest type: the driver gets the counts of a million files from each of 40,000 tasks."""
    most = max(counts.max(initial=0), -counts.min(initial=0))
    return counts.astype(next(type_ for type_ in (np.int16, np.int32, np.int64) if most <= np.iinfo(type_).max))


def added_up(*results: DedupeResult) -> DedupeResult:
    """The results of several tasks as one. The driver would get the counts of a million files from each of them."""
    live = np.zeros(len(results[0].live), np.int64)
    for result in results:
        live += result.live
    files = tuple(bucket for result in results for bucket in result.files)
    return DedupeResult(files, sum((result.counts for result in results), FoldCounts()), narrowed(live))


def dedupe(store: ObjectStore, task: DedupeTask, buckets: range, *parts: Passed) -> DedupeResult:
    """Fold the new entries (one parcel from each hash bucket task) into each bucket's index, and write the index."""
    written, counts = [], FoldCounts()
    live = np.zeros(len(task.positions), np.int64)
    with Closing(store) as closing:
        for folded in _folded_buckets(store, task, buckets, parts):
            with task.bucket_writer(store, closing) as writer:
                for chunk in folded:
                    live += live_rows(chunk, len(live))
                    writer.write(chunk)
                written.append(writer.close())
            counts += folded.counts
    return DedupeResult(tuple(written), counts, narrowed(live))


def dedupe_held(
    store: ObjectStore, task: DedupeTask, buckets: range, *parts: Passed
) -> Iterator[DedupeResult | Groups]:
    """Dedupe for a last round that fits the object store: yields the result, then the folded entries; no files."""
    chunks, counts, offsets = [none(task.encoding.entry_bytes)], FoldCounts(), [0]
    live = np.zeros(len(task.positions), np.int64)
    for folded in _folded_buckets(store, task, buckets, parts):
        chunks += folded
        offsets.append(sum(map(len, chunks)))
        counts += folded.counts
    entries = np.concatenate(chunks) if len(chunks) != 2 else chunks[1]
    live += live_rows(entries, len(live))
    yield DedupeResult(((),) * len(buckets), counts, narrowed(live))
    yield Groups(buckets.start, (entries,), np.array(offsets, np.int64))


def dedupe_changes(
    store: ObjectStore, task: DedupeTask, buckets: range, *parts: Passed
) -> Iterator[DedupeResult | Groups | Pointers]:
    """Fold the new entries with only the index's entries of the same keys, so memory grows with the change alone.

    Yields the result, whose counts and live rows are differences to the base; then the entries of a new run; then
    pointers to the rows of base files that died.
    """
    yield from _changes(store, task, buckets, parts)


def _changes(
    store: ObjectStore, task: DedupeTask, buckets: range, parts: Sequence[Passed]
) -> tuple[DedupeResult, Groups, Pointers]:
    runs, counts, offsets = [none(task.encoding.entry_bytes)], FoldCounts(), [0]
    dead: list[Pointers] = []
    relocator = Relocator(store, task.base.manifest.relocations, task.reading)
    groups = received(parts)
    new_of_bucket = ((bucket, _of_bucket(groups, bucket)) for bucket in buckets)
    for _, new, found in task.base.newest_of_each(store, new_of_bucket, task.encoding, relocator, task.reading):
        folded = Folded(new, iter([found]), task.encoding, task.positions, task.tombstone_retention)
        run, ordinals, rows = _kernels.changes(found, np.concatenate(list(folded)))
        runs.append(run)
        dead.append((ordinals, rows))
        offsets.append(offsets[-1] + len(run))
        before = int(np.count_nonzero(fields(found)["file"] != TOMBSTONE))
        counts += folded.counts - FoldCounts(live=before, tombstones=len(found) - before)
    entries, died = np.concatenate(runs), joined(dead)
    live = live_rows(entries, len(task.positions)) - np.bincount(died[0], minlength=len(task.positions))
    result = DedupeResult(((),) * len(buckets), counts, narrowed(live))
    return result, Groups(buckets.start, (entries,), np.array(offsets, np.int64)), died


def dedupe_run(store: ObjectStore, task: DedupeTask, buckets: range, *parts: Passed) -> DedupeResult:
    """Dedupe for a round that is not the last: writes the changes as one more run of the session's index."""
    result, run, _ = _changes(store, task, buckets, parts)
    written = []
    with Closing(store) as closing:
        for bucket in buckets:
            with task.bucket_writer(store, closing) as writer:
                writer.write(*run.of(bucket))
                written.append(writer.close())
    return replace(result, files=tuple(written))


def _of_bucket(parts: Sequence[Groups], bucket: int) -> list[Entries]:
    return [entries for part in parts for entries in part.of(bucket)]


def _folded_buckets(store: ObjectStore, task: DedupeTask, buckets: range, parts: Sequence[Passed]) -> Iterator[Folded]:
    """The fold of each bucket. The index files of the next buckets are fetched ahead."""
    ahead, groups = ReadAhead(task.reading), received(parts)
    bases = begun_ahead(buckets, lambda bucket: task.base.chunks(store, bucket, task.encoding, ahead))
    for bucket, base in zip(buckets, bases, strict=True):
        yield Folded(_of_bucket(groups, bucket), base, task.encoding, task.positions, task.tombstone_retention)


def live_rows(entries: Entries, ordinals: int) -> npt.NDArray[np.int64]:
    """How many entries point to each session ordinal."""
    file = fields(entries)["file"]
    return np.bincount(file[file < GONE], minlength=ordinals).astype(np.int64)


class Folded:
    """The fold of one bucket: iterate to get its entries. Afterwards `counts` is known.

    Iterating raises CorruptionError if rows are not conserved.
    """

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
