"""Step 3, pointer assignment: where every live row will be, before any of them is read.

    survivors of bucket A in digest order      file 7: rows 2, 0     file 8: row 1
    survivors of bucket B                      file 7: row 1
    ranks by source row                        (7,0)=0 (7,1)=1 (7,2)=2 (8,1)=3      row 2 becomes row 2, not 1
    sent back to A in the order it sent them   2, 0, 3                              to B: 1

From counts alone no bucket could know this: ranks are taken by a group of source files over all buckets at once. The
ranks run through all rewritten files, so rank // rows_per_output names the output and the remainder the row. This is
the paper's predictive primary key index, without its barrier inside tasks, and it keeps source row order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.entries import GONE, TOMBSTONE, Entries, fields
from deltacompact.errors import CorruptionError
from deltacompact.exchange import Parcel, opened, parcels
from deltacompact.hash_bucket import BucketGroup
from deltacompact.index_files import CHUNK_ENTRIES, IndexFile, bucket_writer
from deltacompact.keys import Encoding
from deltacompact.masks import live_bits, write_masks
from deltacompact.model import DataFile
from deltacompact.primary_key_index import IndexManifest, read_index
from deltacompact.storage import ObjectStore

Pointers = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]
"""Session ordinals and row indices, in the order in which a bucket group holds them."""

Sent = tuple[Parcel, Pointers]
"""What a bucket group tells a source group: rows of its files that live, and rows of its whole files that died."""

KEPT = 0xFFFF
"""Stands in `group_of` for files that are kept by reference: their pointers stay."""


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """Source files whose rows are ranked together. `first_rank` counts the live rows of all groups before.

    Of the files in `whole`, by ordinal, every row of before lives but those that are told to have died; of the others
    those that are told to live.
    """

    ordinals: npt.NDArray[np.uint32]
    file_rows: npt.NDArray[np.int64]
    first_rank: int
    whole: tuple[tuple[int, DataFile], ...] = ()


@dataclass(frozen=True, slots=True)
class PointerMap:
    """How session pointers become published ones. Tombstones and what is gone stay as they are.

    `group_of`: by ordinal, the source group that ranks the file, or KEPT. `number_of`: the file number of a file that
    stays. Files of the groups from `marked_from` on stay as well: they get deletion vectors.
    """

    group_of: npt.NDArray[np.uint16]
    number_of: npt.NDArray[np.uint32]
    first_ranks: tuple[int, ...]
    first_output_number: int
    rows_per_output: int
    marked_from: int


@dataclass(frozen=True, slots=True)
class FoldedBuckets:
    """Where the entries of a group of buckets are after the last round: in an index, unless a task is handed them."""

    encoding: Encoding
    buckets: range
    index: IndexManifest | None

    def chunks(self, store: ObjectStore, place: int, held: BucketGroup | None) -> Iterator[Entries]:
        """Entries of the group's bucket number `place`, in digest order."""
        if held is None:
            assert self.index is not None
            yield from read_index(store, self.index, self.buckets[place])
            return
        entries, offsets = held
        for start in range(int(offsets[place]), int(offsets[place + 1]), CHUNK_ENTRIES):
            yield entries[start : min(start + CHUNK_ENTRIES, int(offsets[place + 1]))]


def survivors(
    store: ObjectStore,
    folded: FoldedBuckets,
    held: BucketGroup | None,
    died: Pointers | None,
    group_of: npt.NDArray[np.uint16],
    groups: int,
    exchange_path_of: Callable[[], str] | None = None,
) -> Iterator[Sent]:
    """For each source group, the live rows of its files that these buckets point to, and those that died.

    With an `exchange_path_of` they are handed over in a file.
    """
    sent: list[list[Pointers]] = [[] for _ in range(groups)]
    for place in range(len(folded.buckets)):
        for chunk in folded.chunks(store, place, held):
            view = fields(chunk)
            file, row = np.ascontiguousarray(view["file"]), np.ascontiguousarray(view["row"])
            for pieces, piece in zip(sent, _by_group((file, row), group_of, groups), strict=True):
                pieces.append(piece)
    dead = _by_group(died or _nothing(), group_of, groups)
    living = parcels(store, exchange_path_of, map(joined, sent))
    yield from zip(living, dead, strict=True)


def _by_group(pointers: Pointers, group_of: npt.NDArray[np.uint16], groups: int) -> list[Pointers]:
    file, row = pointers
    group = _groups(file, group_of)
    places = [group == each for each in range(groups)]
    return [(file[here], row[here]) for here in places]


def joined(pieces: Sequence[Pointers]) -> Pointers:
    """Several as one."""
    if not pieces:
        return _nothing()
    return np.concatenate([file for file, _ in pieces]), np.concatenate([row for _, row in pieces])


def _nothing() -> Pointers:
    return np.empty(0, np.uint32), np.empty(0, np.uint64)


def assign(
    store: ObjectStore,
    group: SourceGroup,
    masks_path: str,
    exchange_path_of: Callable[[], str] | None,
    *sent: Sent,
) -> Iterator[Parcel]:
    """Rank a group's survivors: for each bucket group its ranks as it sent them. The masks of the files are stored."""
    ranks = _kernels.SurvivorRanks(group.ordinals, group.file_rows)
    for ordinal, file in group.whole:
        ranks.fill(ordinal, live_bits(store, file))
    for living, died in sent:
        ranks.unmark(*died)
        ranks.mark(*opened(store, living))
    write_masks(store, masks_path, {int(ordinal): ranks.mask(int(ordinal)) for ordinal in group.ordinals})
    # Within the group, which has fewer than 2^32 rows.
    ranked = ((ranks.ranks(*opened(store, living)).astype(np.uint32),) for living, _ in sent)
    yield from parcels(store, exchange_path_of, ranked)


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One group of buckets of the published index. Tombstones at or below `expired_position` are dropped."""

    folded: FoldedBuckets
    pointers: PointerMap
    rows_per_index_file: int
    expired_position: int | None


@dataclass(frozen=True, slots=True)
class IndexResult:
    files: tuple[tuple[IndexFile, ...], ...]
    rows: int
    tombstones: int


def write_index(
    store: ObjectStore,
    task: IndexTask,
    path_of: Callable[[], str],
    held: BucketGroup | None,
    *given: Parcel,
) -> IndexResult:
    """The session's entries with published pointers (`given`: the ranks of each source group)."""
    ranks = [opened(store, parcel)[0] for parcel in given]
    cursors = [0] * len(ranks)
    written, rows, tombstones = [], 0, 0
    for place in range(len(task.folded.buckets)):
        entry_bytes = task.folded.encoding.entry_bytes
        with bucket_writer(store, path_of, entry_bytes, task.rows_per_index_file) as writer:
            for chunk in task.folded.chunks(store, place, held):
                writer.write(_published(chunk, task, ranks, cursors))
            written.append(writer.close())
        rows, tombstones = rows + writer.rows, tombstones + writer.tombstones
    if cursors != [len(given) for given in ranks]:
        raise CorruptionError("more pointers were assigned than rows live: the round's index changed under the session")
    return IndexResult(tuple(written), rows, tombstones)


def _published(chunk: Entries, task: IndexTask, ranks: Sequence[npt.NDArray[np.uint32]], cursors: list[int]) -> Entries:
    chunk = chunk.copy()
    view = fields(chunk)
    file = np.ascontiguousarray(view["file"])
    pointers = task.pointers
    group = _groups(file, pointers.group_of)
    numbers = np.where(group == KEPT, _taken(pointers.number_of, file), file)
    rows = np.ascontiguousarray(view["row"])
    for place, given in enumerate(ranks):
        here = np.flatnonzero(group == place)
        if place >= pointers.marked_from:
            cursors[place] += len(here)
            numbers[here] = pointers.number_of[file[here]]
            continue
        mine = given[cursors[place] : cursors[place] + len(here)].astype(np.uint64) + np.uint64(
            pointers.first_ranks[place]
        )
        cursors[place] += len(here)
        output, row = np.divmod(mine, np.uint64(pointers.rows_per_output))
        numbers[here] = (output + np.uint64(pointers.first_output_number)).astype(np.uint32)
        rows[here] = row
    view["file"], view["row"] = numbers, rows
    if task.expired_position is None:
        return chunk
    expired = (file == TOMBSTONE) & (rows.view(np.int64) <= task.expired_position)
    return np.ascontiguousarray(chunk[~expired]) if expired.any() else chunk


def _groups(file: npt.NDArray[np.uint32], group_of: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """The source group of each entry; what points to no file gets one that does not exist."""
    group = _taken(group_of, file)
    group[file >= GONE] = KEPT - 1
    return group


def _taken(values: npt.NDArray, file: npt.NDArray[np.uint32]) -> npt.NDArray:  # type: ignore[type-arg]
    if not len(values):
        return np.zeros(len(file), values.dtype)
    return values[np.minimum(file, len(values) - 1)]
