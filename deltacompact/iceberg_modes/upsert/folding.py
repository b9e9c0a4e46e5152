"""Tasks: fold one hash bucket, and gather the dead rows of all buckets.

The newest row of each key lives, the others are dead. If it is a delete, all are dead.

    entries     k1 5 (0, 0)     k2 5 (0, 1)     k2 6 (1, 0)     k3 6 (1, 2) delete
    live        k1 (0, 0)       k2 (1, 0)
    dead        (0, 1), (1, 2)                  as numbers of rows of all files together: 1, 5
    guards      file 1: its row keeps (0, 1) dead. If that row were gone, nobody would have k2
    gathered    files 0‥1 begin at the rows 0, 3: live bitmaps 101 and 110

The fold is the kernel that delta streams use, too. Dead rows are stored as sorted numbers, in one batch for each group
of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.key_index.order import Order
from deltacompact.index.entries import DELETE_BIT, GONE, Entries, fields, none
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.objects import ObjectStore


class BucketsOfEntries(Protocol):
    """Entries by bucket, in the order of their files and rows."""

    def of_bucket(self, store: ObjectStore, bucket: int) -> list[Entries]: ...


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Folds the entries of one bucket, from scatter tasks or from an index.

    first_rows    the number of each file's first row, counted through all files; at the end, the number of all rows
    groups        ranges of ordinals: one batch of dead rows for each
    path          where the dead rows go
    """

    bucket: int
    entries: BucketsOfEntries
    order: Order
    first_rows: npt.NDArray[np.int64]
    groups: tuple[range, ...]
    path: str


@dataclass(frozen=True, slots=True)
class FoldedBucket:
    """What became of a bucket's rows: arrays by file ordinal.

    live         rows that live
    superseded   rows that are dead now, without those that delete their key
    deletes      rows that delete their key: they are dead in any case
    guards       whether a row of the file keeps others dead: it is the newest of its key, or a delete
    """

    live: npt.NDArray[np.int64]
    superseded: npt.NDArray[np.int64]
    deletes: npt.NDArray[np.int64]
    guards: npt.NDArray[np.bool_]


def fold_bucket(store: ObjectStore, task: FoldTask) -> FoldedBucket:
    """Write the dead rows of the bucket, and count. Raises CorruptionError if a winner was not among the entries."""
    files = len(task.first_rows) - 1
    parts = [part for part in task.entries.of_bucket(store, task.bucket) if len(part)]
    folded = _folded(parts, task)
    winners = folded[fields(folded)["file"] < GONE]
    numbers = np.concatenate([_row_numbers(part, task) for part in parts] or [np.empty(0, np.int64)])
    lives = np.zeros(len(numbers), bool)
    lives[np.searchsorted(numbers, np.sort(_row_numbers(winners, task)))] = True
    if int(np.count_nonzero(lives)) != len(winners):
        raise CorruptionError(f"bucket {task.bucket}: {len(winners)} rows won, but not all of them went in")
    ends = np.cumsum([0, *map(len, parts)])
    dead = [part[~lives[start:stop]] for part, start, stop in zip(parts, ends[:-1], ends[1:], strict=True)]
    _write(store, task, numbers[~lives])
    are_deletes = [(fields(part)["row"] & DELETE_BIT) != 0 for part in dead]
    deleting = [part[marked] for part, marked in zip(dead, are_deletes, strict=True)]
    others = [part[~marked] for part, marked in zip(dead, are_deletes, strict=True)]
    deletes = _by_file(deleting, files)
    return FoldedBucket(
        _by_file([winners], files), _by_file(others, files), deletes, _guards(winners, dead, files) | (deletes > 0)
    )


def _folded(parts: Sequence[Entries], task: FoldTask) -> Entries:
    positions = np.zeros(len(task.first_rows) - 1, np.int64)  # no tombstones to keep, so no ages
    fold = _kernels.Fold(list(parts) or [none(task.order.entry_bytes)], task.order.sort_key_bytes, positions, None)
    return fold.finish()


def _guards(winners: Entries, dead: Sequence[Entries], files: int) -> npt.NDArray[np.bool_]:
    """By file: whether it has the winning row of a key with dead rows."""
    if not any(map(len, dead)):
        return np.zeros(files, bool)
    touched = _kernels.Touched(list(dead), winners.shape[1])
    touched.find(winners)
    return _by_file([touched.found()], files) > 0


def _row_numbers(entries: Entries, task: FoldTask) -> npt.NDArray[np.int64]:
    found = fields(entries)
    rows = (found["row"] & ~DELETE_BIT).astype(np.int64)
    numbers: npt.NDArray[np.int64] = task.first_rows[found["file"]] + rows
    return numbers


def _by_file(parts: Sequence[Entries], files: int) -> npt.NDArray[np.int64]:
    counts = np.zeros(files, np.int64)
    for part in parts:
        counts += np.bincount(fields(part)["file"], minlength=files)
    return counts


def _write(store: ObjectStore, task: FoldTask, dead: npt.NDArray[np.int64]) -> None:
    """Write the numbers of dead rows: one batch for each group of files."""
    with store.writer(task.path) as sink, pa.ipc.new_file(sink, pa.schema([("row", pa.int64())])) as out:
        for group in task.groups:
            bounds = task.first_rows[[group.start, group.stop]]
            start, stop = np.searchsorted(dead, bounds)
            out.write_batch(pa.record_batch([pa.array(dead[start:stop])], names=["row"]))


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Gathers the dead rows of one group of files.

    group         the group's number: its batch in each file of `dead`
    ordinals      the data files of the group
    with_dead     the data files with dead rows: the others get no bitmap
    first_rows    the number of each data file's first row; at the end, the number after the group's last row
    dead          the files that the folds wrote, one for each bucket
    """

    group: int
    ordinals: range
    with_dead: tuple[int, ...]
    first_rows: npt.NDArray[np.int64]
    dead: tuple[str, ...]
    masks_path: str


def gather(store: ObjectStore, task: GatherTask) -> None:
    """Write the live bitmaps. Rows that were dead before this upsert have the bit of a live row."""
    first = task.first_rows[0]
    lives = np.ones(int(task.first_rows[-1] - first), bool)
    for path in task.dead:
        with store.open(path) as source:
            dead = pa.ipc.open_file(source).get_batch(task.group).column(0)
        lives[np.asarray(dead) - first] = False
    bounds = task.first_rows - first
    masks = {
        Ordinal(ordinal): np.packbits(
            lives[bounds[ordinal - task.ordinals.start] : bounds[ordinal - task.ordinals.start + 1]], bitorder="little"
        )
        for ordinal in task.with_dead
    }
    write_masks(store, task.masks_path, masks)
