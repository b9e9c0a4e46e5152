"""Step 3, pointer assignment: decides where every live row will be, before any row is read.

    survivors of bucket A in digest order      file 7: rows 2, 0     file 8: row 1
    survivors of bucket B                      file 7: row 1
    ranks by source row                        (7,0)=0 (7,1)=1 (7,2)=2 (8,1)=3      row 2 becomes row 2, not 1
    sent back to A in the order it sent them   2, 0, 3                              to B: 1

No bucket could compute this from counts alone. A task ranks the survivors that all buckets have in one group of source
files. Ranks continue through all rewritten files: rank // rows_per_output gives the output, the remainder gives the
row. This is the paper's predictive primary key index, without its barrier inside tasks, and rows keep the order of
their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.numbers import Ordinal
from deltacompact.index.entries import Entries
from deltacompact.index.index_files import BucketWriter, Closing, IndexFile
from deltacompact.index.keys import Encoding
from deltacompact.index.live_bitmaps import LiveBits, naming_file, write_masks
from deltacompact.index.primary_key_index import IndexManifest, read_index
from deltacompact.planning.pointer_map import PointerMap, SourceGroup
from deltacompact.steps.shuffle import All, Arrays, Groups, Parcel, received, stored, taken_of_each
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore

Pointers = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]
"""Session ordinals and row indices, in the order of a bucket group's entries."""

Sent = tuple[Parcel, Parcel | None]
"""A bucket group's message to source groups: live rows of their files, and dead rows of their `whole` files."""

POINTERS, RANKS = ("uint32", "uint64"), ("uint32",)
"""The array types of pointers sent, and of the ranks that come back: a source group has fewer than 2^32 rows."""


@dataclass(frozen=True, slots=True)
class LastIndex:
    """The entries after the last round, in chunks of at most `chunk_entries`, and where they will point.

    The index `folded` has the entries, unless tasks get them from the object store. The table's next index leaves out
    tombstones at or below `expired_position`. All tasks share this value: for a pebibyte it has a hundred megabytes.
    """

    encoding: Encoding
    folded: IndexManifest | None
    pointers: PointerMap
    rows_per_file: int
    expired_position: int | None
    chunk_entries: int
    reading: ReadLimits

    def chunks(self, store: ObjectStore, buckets: range, held: Groups | None) -> Iterator[Iterator[Entries]]:
        """The entries of each bucket, in digest order. The index files of the next buckets are fetched ahead."""
        if held is None:
            assert self.folded is not None
            index, ahead = self.folded, ReadAhead(self.reading)
            yield from begun_ahead(buckets, lambda bucket: read_index(store, index, bucket, ahead))
            return
        for bucket in buckets:
            (entries,) = held.of(bucket)
            yield self._in_chunks(entries)

    def _in_chunks(self, entries: Entries) -> Iterator[Entries]:
        for start in range(0, len(entries), self.chunk_entries):
            yield entries[start : start + self.chunk_entries]


def survivors(
    store: ObjectStore,
    last: LastIndex,
    buckets: range,
    held: Groups | None,
    died: Pointers | None,
    parcel_starts: Sequence[int],
) -> Iterator[Sent]:
    """For each source group: the live rows of its files that these buckets point to, and its rows that died.

    Parcel i has the groups [parcel_starts[i], parcel_starts[i + 1]).
    """
    living, dead = _split(store, last, buckets, held, died, parcel_starts[-1])
    yield from zip(living.parcels(parcel_starts), dead.parcels(parcel_starts), strict=True)


def survivors_in_files(
    store: ObjectStore,
    last: LastIndex,
    buckets: range,
    held: Groups | None,
    died: Pointers | None,
    groups: int,
    path_of: Callable[[], str],
) -> Sent:
    """As `survivors`, but files store the rows."""
    living, dead = _split(store, last, buckets, held, died, groups)
    has_dead = len(dead.arrays[0]) > 0
    return stored(store, path_of(), living, POINTERS), stored(store, path_of(), dead, POINTERS) if has_dead else None


def _split(
    store: ObjectStore, last: LastIndex, buckets: range, held: Groups | None, died: Pointers | None, groups: int
) -> tuple[Groups, Groups]:
    group_of = last.pointers.group_of
    living, dead = _kernels.PointerSplit(group_of, groups), _kernels.PointerSplit(group_of, groups)
    for chunks in last.chunks(store, buckets, held):
        for chunk in chunks:
            living.push_entries(chunk)
    if died is not None:
        dead.push_pointers(*died)
    return _by_group(living), _by_group(dead)


def _by_group(split: _kernels.PointerSplit) -> Groups:
    ordinals, rows, offsets = split.finish()
    return Groups(0, (ordinals, rows), offsets)


def joined(pieces: Sequence[Pointers]) -> Pointers:
    """Concatenate pointers."""
    if not pieces:
        return np.empty(0, np.uint32), np.empty(0, np.uint64)
    return np.concatenate([file for file, _ in pieces]), np.concatenate([row for _, row in pieces])


def assign(
    store: ObjectStore,
    number: int,
    group: SourceGroup,
    masks_path: str,
    reading: ReadLimits,
    parcel_starts: Sequence[int],
    *sent: Sent | All[Sent],
) -> Iterator[Parcel]:
    """Rank the survivors of source group `number`, and store the live bitmaps of its files.

    Yields the ranks by bucket group, in the order in which the bucket group sent the survivors. Parcel i has the bucket
    groups [parcel_starts[i], parcel_starts[i + 1]).
    """
    ranks = list(_ranks(store, number, group, masks_path, reading, received(sent)))
    yield from Groups(0, *_one_after_another(ranks)).parcels(parcel_starts)


def assign_in_files(
    store: ObjectStore,
    number: int,
    group: SourceGroup,
    masks_path: str,
    reading: ReadLimits,
    path_of: Callable[[], str],
    *sent: Sent | All[Sent],
) -> Parcel:
    """As `assign`, but a file stores the ranks, one bucket group after the other: memory holds one bit a row."""
    ranks = _ranks(store, number, group, masks_path, reading, received(sent))
    return stored(store, path_of(), ((of_buckets,) for of_buckets in ranks), RANKS)


def _ranks(
    store: ObjectStore, number: int, group: SourceGroup, masks_path: str, reading: ReadLimits, sent: Sequence[Sent]
) -> Iterator[npt.NDArray[np.uint32]]:
    """The ranks of each bucket group's survivors."""
    ranks = _kernels.SurvivorRanks(group.ordinals, group.file_rows)
    bits = LiveBits(store, reading)
    for ordinal, file in group.whole:
        ranks.fill(ordinal, bits.of(file))
    alive, died = [living for living, _ in sent], [dead for _, dead in sent if dead is not None]
    paths = {ordinal: file.path for ordinal, file in group.whole}
    with naming_file(lambda ordinal: paths.get(Ordinal(ordinal), f"file {ordinal} of this session")):
        for pointers in taken_of_each(store, died, number, reading):
            ranks.unmark(*pointers)
        for pointers in taken_of_each(store, alive, number, reading):
            ranks.mark(*pointers)
    write_masks(store, masks_path, {Ordinal(ordinal): ranks.mask(int(ordinal)) for ordinal in group.ordinals})
    return (ranks.ranks(*pointers).astype(np.uint32) for pointers in taken_of_each(store, alive, number, reading))


def _one_after_another(ranks: Sequence[npt.NDArray[np.uint32]]) -> tuple[Arrays, npt.NDArray[np.int64]]:
    offsets = np.cumsum([0, *map(len, ranks)], dtype=np.int64)
    return (np.concatenate(ranks) if ranks else np.empty(0, np.uint32),), offsets


@dataclass(frozen=True, slots=True)
class IndexResult:
    files: tuple[tuple[IndexFile, ...], ...]
    rows: int
    tombstones: int


def write_index(
    store: ObjectStore,
    last: LastIndex,
    group: int,
    buckets: range,
    path_of: Callable[[], str],
    held: Groups | None,
    *ranked: Parcel | All[Parcel],
) -> IndexResult:
    """Write bucket group number `group` of the table's next index. `ranked` has the ranks from each source group."""
    pointers = last.pointers
    taken = taken_of_each(store, received(ranked), group, last.reading)
    (ranks,), offsets = _one_after_another([ranks for (ranks,) in taken])
    publisher = _kernels.Publisher(
        pointers.group_of,
        pointers.number_of,
        np.array(pointers.first_ranks, np.uint64),
        pointers.marked_from,
        pointers.first_output_number,
        pointers.rows_per_output,
        ranks,
        offsets,
        last.expired_position,
    )
    written, rows, tombstones = [], 0, 0
    sizes = last.encoding.entry_bytes, last.rows_per_file, last.chunk_entries
    with Closing(store) as closing:
        for chunks in last.chunks(store, buckets, held):
            with BucketWriter(store, path_of, *sizes, closing) as writer:
                for chunk in chunks:
                    writer.write(_repointed(publisher, chunk))
                written.append(writer.close())
            rows, tombstones = rows + writer.rows, tombstones + writer.tombstones
    if publisher.left:
        raise CorruptionError("more pointers were assigned than rows live: the round's index was changed meanwhile")
    return IndexResult(tuple(written), rows, tombstones)


def _repointed(publisher: _kernels.Publisher, chunk: Entries) -> Entries:
    try:
        return publisher.publish(chunk)
    except ValueError as error:
        raise CorruptionError(f"fewer pointers were assigned than rows live: {error}") from error
