"""Finds small files that one layout made side by side, to merge each set of them into one file. Pure.

    day        a: 1 to 2    b: 3 to 4    c: 5 to 6    d: 7 to 8        all laid out by day; c is large, the others small
    merged     a and b                                d stays: a file from 1 to 8 would lie across c

A merged file meets another one only where one of its parts met it already, or lies inside of it altogether. So merging
never undoes a layout. Where a set would lie across small files, these join it.

A set becomes one file, so each merge leaves fewer files, and runs come to an end. It is worth its work if the result is
no longer small, or if there are enough files and none has more than half of the bytes. So a row moves to a file at
least twice as large each time, but for the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from deltacompact.layout.boxes import Boxes, Ranks
from deltacompact.layout.overlap import FileMask


@dataclass(frozen=True, slots=True)
class MergeSizes:
    """When to merge. Bytes: files below `small` are merged, into files of at most `most`.

    `files_min`: so many files are merged, although the result is small.
    """

    small: int
    most: int
    files_min: int


def neighbours(
    boxes: Boxes, sizes: Ranks, mergeable: FileMask, merging: MergeSizes, heaviest: int = 0
) -> Iterator[Ranks]:
    """Sets of `mergeable` files, each to become one file. Files are taken in the order of column `heaviest`."""
    by_partition = np.argsort(boxes.partitions, kind="stable")
    partitions, is_small = boxes.partitions[by_partition], mergeable & (sizes < merging.small)
    with_small = np.unique(boxes.partitions[is_small])
    begins, ends = (np.searchsorted(partitions, with_small, side) for side in ("left", "right"))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        files = by_partition[begin:end]
        small = np.flatnonzero(is_small[files])
        if len(small) > 1:
            found = _Neighbours(boxes.take(files), sizes[files], merging, heaviest)
            yield from (files[own] for own in found.sets(small.tolist()))


@dataclass(frozen=True, slots=True)
class _Box:
    """A range of ranks for each column, both ends inclusive; or many boxes, of shape (columns, files)."""

    low: Ranks
    high: Ranks

    def around(self, other: _Box) -> _Box:
        return _Box(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def within(self, others: _Box) -> _Box:
        """What this box has in common with each of the others."""
        return _Box(np.maximum(self.low[:, None], others.low), np.minimum(self.high[:, None], others.high))

    def same_as(self, other: _Box) -> FileMask:
        return np.asarray(((self.low == other.low) & (self.high == other.high)).all(axis=0))


@dataclass(frozen=True, slots=True)
class _GrowingRun:
    """Files that may become one, the box around them, and their bytes."""

    files: dict[int, None]
    box: _Box
    bytes: int


class _FilesByLow:
    """The files of a partition in the order of their low ranks in one column."""

    def __init__(self, low: Ranks, high: Ranks) -> None:
        self._files = np.argsort(low, kind="stable")
        self._low = low[self._files]
        self._reached = np.maximum.accumulate(high[self._files])

    def meeting(self, low: int, high: int) -> Ranks:
        """All files that meet this range, and some that end before it."""
        begin, end = np.searchsorted(self._reached, low), np.searchsorted(self._low, high, "right")
        return self._files[begin:end]


class _Neighbours:
    """The files of one partition. There may be thousands of small ones, so no step looks at all of them, or at the
    whole run."""

    def __init__(self, boxes: Boxes, sizes: Ranks, merging: MergeSizes, heaviest: int) -> None:
        self._all, self._sizes, self._merging = _Box(boxes.low, boxes.high), sizes, merging
        self._place = np.argsort(np.lexsort((*boxes.high, *boxes.low, boxes.low[heaviest])))
        self._columns = [_FilesByLow(low, high) for low, high in zip(boxes.low, boxes.high, strict=True)]

    def sets(self, small: Iterable[int]) -> Iterator[list[int]]:
        """The sets of these files that are worth merging."""
        for run in self._runs(small):
            files, largest = [*run.files], max(run.files, key=lambda file: int(self._sizes[file]))
            if len(files) > 1 and run.bytes >= self._merging.small:
                yield files
            elif len(files) > 1 and len(files) >= self._merging.files_min:
                if 2 * self._sizes[largest] <= run.bytes:
                    yield files
                else:
                    yield from self.sets(file for file in files if file != largest)

    def _runs(self, small: Iterable[int]) -> Iterator[_GrowingRun]:
        """All of these files, in runs of neighbours that may become one file."""
        left, run = set(small), _GrowingRun({}, self._box(0), 0)
        for file in sorted(left, key=lambda file: int(self._place[file])):
            if file not in left:
                continue
            grown = self._grown(run, file, left) if run.files else None
            if grown is None:
                if run.files:
                    yield run
                grown = _GrowingRun({}, self._box(file), int(self._sizes[file])), {file: None}
            run, joined = grown
            run.files.update(joined)
            left.difference_update(joined)
        if run.files:
            yield run

    def _grown(self, run: _GrowingRun, file: int, left: set[int]) -> tuple[_GrowingRun, dict[int, None]] | None:
        """The run with this file, and with the files of `left` that it would lie across; None: it may not grow.

        The files that join are not yet among the run's own, which it shares with the former one.
        """
        joined, joining, box, bytes_ = dict[int, None](), {file}, run.box, run.bytes
        while joining:
            new = joining.pop()
            joined[new] = None
            bytes_ += int(self._sizes[new])
            if bytes_ > self._merging.most:
                return None
            joint = box.around(self._box(new))
            crossed = {*self._crossed(box, self._box(new), joint).tolist()}
            crossed = crossed.difference([other for other in crossed if other in run.files or other in joined])
            if not crossed <= left:
                return None
            joining |= crossed
            box = joint
        return _GrowingRun(run.files, box, bytes_), joined

    def _box(self, file: int) -> _Box:
        return _Box(self._all.low[:, file], self._all.high[:, file])

    def _crossed(self, one: _Box, other: _Box, joint: _Box) -> Ranks:
        """The files that have more in common with the joint box than with either one, unless it lies inside of them."""
        near = self._meeting_what_is_new(one, joint)
        files = _Box(self._all.low[:, near], self._all.high[:, near])
        common = joint.within(files)
        meets = (common.low <= common.high).all(axis=0)
        known = common.same_as(one.within(files)) | common.same_as(other.within(files))
        inside = common.same_as(_Box(joint.low[:, None], joint.high[:, None]))
        return near[meets & ~known & ~inside]

    def _meeting_what_is_new(self, one: _Box, joint: _Box) -> Ranks:
        """The files that may have more in common with the joint box than with this one: those that meet it where it
        goes beyond this one."""
        found = [np.zeros(0, np.int64)]
        ends = zip(
            self._columns, one.low.tolist(), one.high.tolist(), joint.low.tolist(), joint.high.tolist(), strict=True
        )
        for column, low, high, joint_low, joint_high in ends:
            if joint_low < low:
                found.append(column.meeting(joint_low, low - 1))
            if joint_high > high:
                found.append(column.meeting(high + 1, joint_high))
        return np.unique(np.concatenate(found))
