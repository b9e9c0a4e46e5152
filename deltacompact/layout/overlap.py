"""Finds the files that overlap, and chooses those that a session lays out anew, by boxes, bytes and ages. Pure.

    day        a: 1 to 3    b: 3 to 5    c: 2 to 4    d: 6 to 9
    overlap    a and c, b and c          a and b have one day in common: no cut by day would separate them better

Two files overlap if their boxes meet in all columns, and in one column have more than one value in common. Files on
both sides of a cut do not overlap, and neither do files with one and the same value.

    runs       base 100 GB    friday 2 GB    saturday 1 GB    sunday 1 GB          files of one run have one age
    tiers      sunday and saturday are merged, then friday with both: it is no larger. The base is larger: it stays

If files of one run overlap each other, the run was never laid out, and these files are chosen. When runs are merged, a
file is chosen only if it overlaps a file of another run: data that arrive in the order of time never touch older files.
If many such runs hold the same customers, one tree over all runs separates the customers better. So overlap in one
column is enough to be chosen there, except for the oldest run, once it has been laid out.

    allowed    400 MB of 1 TB      a new layout: the new files with the least days, up to 400 MB; more next time
               4 GB of 10 GB       the base has to wait, and the newer runs are merged
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import LayoutAccount
from deltacompact.layout.boxes import Boxes, Ranks

FileMask = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.floating[Any]]

ABOUT = 1.5
"""A run counts as larger than others only if it has more than so many times their bytes: no two appends have exactly
the same size."""
WELL = 1.25
"""In a grid, each file meets some others. Files that meet up to so many times that number are well clustered."""
_Ranges = npt.NDArray[np.int32]
_LOOKS = 16
"""After each so many steps, files that need no more comparisons are dropped."""
_FEW = 512
"""If no more files are undecided, they are compared with all others."""


def overlapping(boxes: Boxes, of: Ranks | None = None) -> FileMask:
    """The files that overlap another file. `of`: a number for each file; only files of one number are compared."""
    found = np.zeros(boxes.files, bool)
    if boxes.files < 2 or not boxes.columns:
        return found
    low, high = boxes.low.astype(np.int32), boxes.high.astype(np.int32)
    alike = _alike(low, high, of)
    files = np.flatnonzero(alike == np.arange(boxes.files))
    by_meetings = np.argsort([meetings(*ranges) for ranges in zip(low[:, files], high[:, files], strict=True)])
    low, high = low[by_meetings], high[by_meetings]
    order = files[np.lexsort((high[0, files], low[0, files]))]
    found[order] = _swept(low[:, order], high[:, order], None if of is None else of[order])
    return found[alike]


def _alike(low: _Ranges, high: _Ranges, of: Ranks | None) -> Ranks:
    """For each file, the first file that holds the same single value, in a partition of the same number.

    Files with one value do not overlap each other, and overlap the same others. So one of them is enough.
    """
    alike = np.arange(low.shape[1])
    points = np.flatnonzero((low == high).all(axis=0))
    values = low[:, points] if of is None else np.vstack([low[:, points], of[points]])
    _, first, place = np.unique(values, axis=1, return_index=True, return_inverse=True)
    alike[points] = points[first[place.reshape(-1)]]
    return alike


def meetings(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> int:
    """How many pairs of ranges meet."""
    return int(_met(low, high).sum())


def _met(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> Ranks:
    """For each range, how many ranges it meets, itself included."""
    begun = np.searchsorted(np.sort(low), high, side="right")
    return begun - np.searchsorted(np.sort(high), low, side="left")


def met_in_partitions(boxes: Boxes) -> npt.NDArray[np.float64]:
    """By column and number of partition, how many files of a partition each of them meets on average, itself included.

    Ranks of partitions never meet, so all are counted at once. 0: a number without files.
    """
    files = np.maximum(1, np.bincount(boxes.partitions))
    met = [np.bincount(boxes.partitions, _met(*ranges)) for ranges in zip(boxes.low, boxes.high, strict=True)]
    return np.array(met, np.float64).reshape(len(boxes.columns), len(files)) / files


def _swept(low: _Ranges, high: _Ranges, groups: Ranks | None) -> FileMask:
    """Whether each file overlaps another. Files are sorted by their first ranks.

    Step n compares each file with the n-th file after it, as long as that begins before the file ends. Files that
    overlap, and have only overlapping files left to meet, are dropped. When few files are undecided, these are compared
    with all others.
    """
    count = low.shape[1]
    found = np.zeros(count, bool)
    ends = np.searchsorted(low[0], high[0], side="right")
    low, high = low[::-1], high[::-1]  # in the first column all these pairs meet, so compare it last
    at = np.arange(count)
    for step in range(1, count):
        at = at[ends[at] > at + step]
        if step % _LOOKS == 1:
            if (left := np.flatnonzero(~found)).size <= _FEW:
                return _each(low, high, groups, found, left)
            unknown = np.concatenate([[0], np.cumsum(~found)])
            at = at[~found[at] | (unknown[ends[at]] > unknown[at + step])]
        if not len(at):
            break
        one, other = _overlap(low, high, groups, at, at + step)
        found[one] = found[other] = True
    return found


def _each(low: _Ranges, high: _Ranges, groups: Ranks | None, found: FileMask, left: Ranks) -> FileMask:
    """`found`, after these files are compared with all others."""
    others = np.arange(len(found))
    for file in left.tolist():
        one, other = _overlap(low, high, groups, np.full(len(found), file), others)
        found[file] = bool((one != other).any())
    return found


def _overlap(low: _Ranges, high: _Ranges, groups: Ranks | None, one: Ranks, other: Ranks) -> tuple[Ranks, Ranks]:
    """The pairs of files that overlap. Each column drops the pairs that do not meet in it."""
    if groups is not None:
        same = groups[one] == groups[other]
        one, other = one[same], other[same]
    wide = np.zeros(len(one), bool)
    for begin, end in zip(low, high, strict=True):
        begins, ends = np.maximum(begin[one], begin[other]), np.minimum(end[one], end[other])
        meets = begins <= ends
        one, other, wide = one[meets], other[meets], (wide | (begins < ends))[meets]
    return one[wide], other[wide]


def tiers(partitions: Ranks, ages: Ranks, sizes: Ranks) -> Ranks:
    """For each file, the place of its run among those that its partition merges, the newest first. -1: not merged.

    An older run joins while it is not larger than all newer ones together. If none joins the newest, none is merged.
    """
    order = np.lexsort((-ages, partitions))
    files_of = np.diff(partitions[order], prepend=-1) != 0
    files_of[1:] |= np.diff(ages[order]) != 0
    begins = np.flatnonzero(files_of)
    own = partitions[order][begins]
    size = np.diff(np.concatenate([[0], np.cumsum(sizes[order])])[np.append(begins, len(order))])
    newest = np.searchsorted(own, own)
    before = np.cumsum(size) - size
    newer = before - before[newest]
    larger = np.cumsum((newer > 0) & (size > ABOUT * newer))
    joins = larger == larger[newest]
    joins &= np.bincount(own, joins)[own] > 1
    found = np.empty(len(order), np.int64)
    found[order] = np.where(joins, np.arange(len(own)) - newest, -1)[np.cumsum(files_of) - 1]
    return found


@dataclass(frozen=True, slots=True)
class RewriteAllowance:
    """The bytes, or rows, of overlapping files that a session may rewrite.

    earned     for each file, what its partition may rewrite because this file came
    carried    what former sessions left over; partitions share it by their bytes. Below 0: they rewrote too much, and
               all partitions get less
    most       of a partition
    """

    earned: Amounts
    carried: float = 0.0
    most: float = math.inf

    @classmethod
    def over_time(cls, times: float, account: LayoutAccount, came: Ranks) -> RewriteAllowance:
        """`times` as much as has come, without a bound if that is infinite. `account`: what came and was rewritten
        before; `came`: for each file, what came since."""
        if math.isinf(times):
            return cls(np.full(len(came), math.inf))
        return cls(times * came, times * account.came - account.rewritten)

    def of(self, partitions: Ranks, sizes: Ranks) -> Amounts:
        """The allowance of each partition. `partitions`, `sizes`: the number of each file's partition, and its size."""
        allowed: Amounts = np.bincount(partitions, self.earned).astype(np.float64)
        if self.carried < 0:
            allowed *= max(0.0, 1 + self.carried / (float(allowed.sum()) or 1.0))
        else:
            allowed += self.carried / max(1.0, float(sizes.sum())) * np.bincount(partitions, sizes)
        return np.minimum(allowed, self.most)


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The files that a session lays out anew, and those that wait because it may not rewrite more."""

    chosen: FileMask
    waits: FileMask


def to_lay_out(
    boxes: Boxes,
    sizes: Ranks,
    ages: Ranks,
    laid_out: FileMask | None = None,
    allowance: RewriteAllowance | None = None,
    ranked: Sequence[int] | None = None,
    heaviest: int = 0,
) -> LayoutChoice:
    """The files that a session lays out anew, chosen in each partition by itself. Ranks of partitions must never meet.

    ages        files of one age were written together; a greater age is later
    laid_out    whether a file has been laid out by these columns: files of one age are not compared again then
    allowance   what the session may rewrite. None: everything
    ranked      numbers of partitions, by urgency: the first that need more get what others leave over. None: those
                with the most bytes that wait come first
    heaviest    the column with the greatest weight: if not all files are allowed, they are taken in its order
    """
    new = np.ones(boxes.files, bool) if laid_out is None else ~laid_out
    files = _files(boxes, sizes, ages, new, heaviest)
    wanted = files.merged(files.tiers >= 0)
    if allowance is None:
        return LayoutChoice(wanted, np.zeros(boxes.files, bool))
    allowed = allowance.of(boxes.partitions, sizes)
    earned = files.within(wanted, allowed)
    chosen = _with_more(files, wanted, earned, float((allowed - files.sums(earned)).sum()), ranked)
    return LayoutChoice(chosen, wanted & ~chosen)


def _with_more(
    files: _Files, wanted: FileMask, earned: FileMask, left: float, ranked: Sequence[int] | None
) -> FileMask:
    """The choice, where the first partitions that need more get the bytes that are `left`."""
    chosen, had, needs = earned.copy(), files.sums(earned), files.sums(wanted)
    of = files.boxes.partitions
    by_partition = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[by_partition], np.arange(len(had) + 1))
    least = files.sizes[wanted & ~earned].min(initial=np.iinfo(np.int64).max)
    for number in np.argsort(had - needs, kind="stable").tolist() if ranked is None else ranked:
        if left < least:
            break
        if needs[number] > had[number]:
            own = by_partition[begins[number] : begins[number + 1]]
            there = files.of(own)
            more = there.within(wanted[own], np.array([had[number] + left]))
            if (bytes_ := float(there.sizes[more].sum())) > had[number]:  # more may lie well where some do not
                chosen[own] = more
                left -= bytes_ - had[number]
    return chosen


def _files(boxes: Boxes, sizes: Ranks, ages: Ranks, new: FileMask, heaviest: int) -> _Files:
    of = boxes.partitions
    alone = np.zeros(boxes.files, bool)
    alone[new] = overlapping(boxes.take(np.flatnonzero(new)), of=ages[new])
    has_new = (np.bincount(of, new) > 0)[of]
    by_age = np.lexsort((ages, of))
    oldest = ages[by_age][np.searchsorted(of[by_age], of)]
    return _Files(
        boxes, sizes, new, alone, new | (ages > oldest), np.where(has_new, tiers(of, ages, sizes), -1), heaviest
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of some partitions. All partitions are asked at once, each is answered by itself.

    alone     new files that overlap others of their age
    parted    files for which an overlap in one column is enough
    tiers     as `tiers` tells them, but -1 where a partition has no new file
    """

    boxes: Boxes
    sizes: Ranks
    new: FileMask
    alone: FileMask
    parted: FileMask
    tiers: Ranks
    heaviest: int

    def of(self, files: Ranks) -> _Files:
        """Some of the files. Their partitions are numbered anew, in the same order."""
        boxes = self.boxes.take(files)
        dense = np.unique(boxes.partitions, return_inverse=True)[1].reshape(-1)
        masks = self.new[files], self.alone[files], self.parted[files]
        return _Files(replace(boxes, partitions=dense), self.sizes[files], *masks, self.tiers[files], self.heaviest)

    def sums(self, files: FileMask) -> Amounts:
        """The bytes of these files, by partition."""
        return np.bincount(self.boxes.partitions, self.sizes * files).astype(np.float64)

    def merged(self, runs: FileMask) -> FileMask:
        """The files to lay out if the files of these runs are merged: those that overlap another of them, and
        `alone`."""
        return self.alone | self._overlapping(runs)

    def within(self, wanted: FileMask, allowed: Amounts) -> FileMask:
        """The files to lay out with at most so many bytes in each partition: the wanted ones, if they fit. Else the new
        files, and as many of the newest runs as fit; if the new files alone are too many, as many of them as fit."""
        of, fits = self.boxes.partitions, self.sums(wanted) <= allowed
        chosen = wanted & fits[of]
        if len(short := np.flatnonzero(~fits[of])):
            chosen[short] = self.of(short)._some(wanted[short], allowed[np.unique(of[short])])
        return chosen

    def _some(self, wanted: FileMask, allowed: Amounts) -> FileMask:
        """`within`, of partitions whose wanted files do not fit."""
        of, new = self.boxes.partitions, wanted & self.new
        chosen, more = np.zeros(self.boxes.files, bool), self.sums(new) <= allowed
        first = self._first(new, allowed)
        for count in range(int(self.tiers.max(initial=0)), 1, -1):
            asked = more & (np.bincount(of, self.tiers == count) > 0)
            if asked.any():
                runs = self.merged(asked[of] & (self.tiers >= 0) & (self.tiers < count)) & asked[of]
                fits = asked & (self.sums(runs) <= allowed)
                chosen |= runs & fits[of]
                more &= ~fits
                first &= ~fits[of]
        return chosen | self._overlapping(first)

    def _first(self, files: FileMask, allowed: Amounts) -> FileMask:
        """As many of these files as fit, in the order of the heaviest column."""
        of, found = self.boxes.partitions, np.flatnonzero(files)
        low, high = self.boxes.low[self.heaviest][found], self.boxes.high[self.heaviest][found]
        order = found[np.lexsort((high, low, of[found]))]
        ends = np.cumsum(self.sizes[order])
        begins = (ends - self.sizes[order])[np.searchsorted(of[order], of[order])]
        first = np.zeros(self.boxes.files, bool)
        first[order[ends - begins <= allowed[of[order]]]] = True
        return first

    def _overlapping(self, files: FileMask) -> FileMask:
        """Those of these files that overlap another one of them."""
        found = np.flatnonzero(files)
        boxes, overlap = self.boxes.take(found), np.zeros(self.boxes.files, bool)
        overlap[found] = overlapping(boxes) | _in_one_column(boxes, self.parted[found])
        return overlap


def _in_one_column(boxes: Boxes, among: FileMask) -> FileMask:
    """The files of `among` that overlap another of them in some column. None of partitions where these are well
    clustered already."""
    found, some = np.zeros(boxes.files, bool), np.flatnonzero(among)
    some = some[~_lie_well(boxes.take(some))]
    for column in range(len(boxes.columns)):
        found[some] |= overlapping(boxes.take(some).of(column))
    return found


def _lie_well(boxes: Boxes) -> FileMask:
    """For each file, whether those of its partition meet hardly more others in a column than in a grid: 10, for 100
    files in two columns."""
    columns = len(boxes.columns)
    in_grid = np.bincount(boxes.partitions) ** (1 - 1 / max(1, columns))
    lie_well: FileMask = met_in_partitions(boxes).sum(axis=0) <= WELL * columns * in_grid
    return lie_well[boxes.partitions]
