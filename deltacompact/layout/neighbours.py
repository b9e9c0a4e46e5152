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
    candidates = np.flatnonzero(mergeable & (sizes < merging.small))
    for partition in np.unique(boxes.partitions[candidates]).tolist():
        small = candidates[boxes.partitions[candidates] == partition]
        if len(small) > 1:
            files = np.flatnonzero(boxes.partitions == partition)
            found = _Neighbours(boxes.take(files), sizes[files], merging, heaviest)
            yield from (files[own] for own in found.sets(np.searchsorted(files, small).tolist()))


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


class _Neighbours:
    """The files of one partition."""

    def __init__(self, boxes: Boxes, sizes: Ranks, merging: MergeSizes, heaviest: int) -> None:
        self._all, self._sizes, self._merging = _Box(boxes.low, boxes.high), sizes, merging
        self._place = np.argsort(np.lexsort((*boxes.high, *boxes.low, boxes.low[heaviest])))

    def sets(self, small: Iterable[int]) -> Iterator[list[int]]:
        """The sets of these files that are worth merging."""
        for run in self._runs(small):
            bytes_ = int(self._sizes[run].sum())
            largest = max(run, key=lambda file: int(self._sizes[file]))
            if len(run) > 1 and bytes_ >= self._merging.small:
                yield run
            elif len(run) > 1 and len(run) >= self._merging.files_min:
                if 2 * self._sizes[largest] <= bytes_:
                    yield run
                else:
                    yield from self.sets(file for file in run if file != largest)

    def _runs(self, small: Iterable[int]) -> Iterator[list[int]]:
        """All of these files, in runs of neighbours that may become one file."""
        left, run = set(small), list[int]()
        for file in sorted(left, key=lambda file: int(self._place[file])):
            if file not in left:
                continue
            grown = self._grown(run, file, left) if run else [file]
            if grown is None:
                yield run
                grown = [file]
            run = grown
            left -= {*run}
        if run:
            yield run

    def _grown(self, run: list[int], file: int, left: set[int]) -> list[int] | None:
        """The run with this file, and with the files of `left` that it would lie across; None: it may not grow."""
        members, joining, box = [*run], {file}, self._around(run)
        while joining:
            new = joining.pop()
            members.append(new)
            if self._sizes[members].sum() > self._merging.most:
                return None
            joint = box.around(self._around([new]))
            crossed = {*self._crossed(box, self._around([new]), joint).tolist()}.difference(members)
            if not crossed <= left:
                return None
            joining |= crossed
            box = joint
        return members

    def _around(self, files: list[int]) -> _Box:
        return _Box(self._all.low[:, files].min(axis=1), self._all.high[:, files].max(axis=1))

    def _crossed(self, one: _Box, other: _Box, joint: _Box) -> Ranks:
        """The files that have more in common with the joint box than with either one, unless it lies inside of them."""
        common = joint.within(self._all)
        meets = (common.low <= common.high).all(axis=0)
        known = common.same_as(one.within(self._all)) | common.same_as(other.within(self._all))
        inside = common.same_as(_Box(joint.low[:, None], joint.high[:, None]))
        return np.flatnonzero(meets & ~known & ~inside)
