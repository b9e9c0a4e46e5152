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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.model import LayoutAccount
from deltacompact.layout.boxes import Boxes, Ranks

FileMask = npt.NDArray[np.bool_]

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
    """For each file, the first of one and the same value and number: these do not overlap, and all overlap the same."""
    alike = np.arange(low.shape[1])
    points = np.flatnonzero((low == high).all(axis=0))
    values = low[:, points] if of is None else np.vstack([low[:, points], of[points]])
    _, first, place = np.unique(values, axis=1, return_index=True, return_inverse=True)
    alike[points] = points[first[place.reshape(-1)]]
    return alike


def meetings(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> int:
    """How many pairs of ranges meet."""
    begun = np.searchsorted(np.sort(low), high, side="right")
    return int((begun - np.searchsorted(np.sort(high), low, side="left")).sum())


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


def tiers(ages: Ranks, sizes: Ranks) -> Iterator[int]:
    """The ages of the runs to merge, the newest first. An older run joins while it is not larger than all newer ones
    together. Nothing, if no run joins the newest."""
    known, place = np.unique(ages, return_inverse=True)
    of_run = np.bincount(place, sizes)
    merged = 0.0
    chosen = []
    for run in range(len(known) - 1, -1, -1):
        if merged and of_run[run] > ABOUT * merged:
            break
        merged += float(of_run[run])
        chosen.append(int(known[run]))
    yield from chosen if len(chosen) > 1 else ()


@dataclass(frozen=True, slots=True)
class RewriteAllowance:
    """The bytes, or rows, of overlapping files that a session may rewrite.

    earned     for each file, what its partition may rewrite because this file came
    carried    what former sessions left over; partitions share it by their bytes. Below 0: they rewrote too much, and
               all partitions get less
    most       of a partition
    """

    earned: npt.NDArray[np.floating[Any]]
    carried: float = 0.0
    most: float = math.inf

    @classmethod
    def over_time(cls, times: float, account: LayoutAccount, came: Ranks) -> RewriteAllowance:
        """`times` as much as has come, without a bound if that is infinite. `account`: what came and was rewritten
        before; `came`: for each file, what came since."""
        if math.isinf(times):
            return cls(np.full(len(came), math.inf))
        return cls(times * came, times * account.came - account.rewritten)

    def of(self, partitions: Sequence[Ranks], sizes: Ranks) -> list[float]:
        """The allowance of each partition. `partitions`: the files of each; `sizes`: the size of each file."""
        earned = [float(self.earned[own].sum()) for own in partitions]
        if self.carried < 0:
            left = max(0.0, 1 + self.carried / (sum(earned) or 1.0))
            return [min(self.most, left * weight) for weight in earned]
        each = self.carried / max(1.0, float(sizes.sum()))
        allowed = (weight + each * float(sizes[own].sum()) for weight, own in zip(earned, partitions, strict=True))
        return [min(self.most, bytes_) for bytes_ in allowed]


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
    """The files that a session lays out anew, chosen in each partition by itself.

    ages        files of one age were written together; a greater age is later
    laid_out    whether a file has been laid out by these columns: files of one age are not compared again then
    allowance   what the session may rewrite. None: everything
    ranked      numbers of partitions, by urgency: the first that need more get what others leave over. None: those
                with the most bytes that wait come first
    heaviest    the column with the greatest weight: if not all files are allowed, they are taken in its order
    """
    new = np.ones(boxes.files, bool) if laid_out is None else ~laid_out
    alone = np.zeros(boxes.files, bool)
    alone[new] = overlapping(boxes.take(np.flatnonzero(new)), of=ages[new])
    chosen, wanted = np.zeros(boxes.files, bool), np.zeros(boxes.files, bool)
    order = np.argsort(boxes.partitions, kind="stable")
    partitions = np.split(order, np.flatnonzero(np.diff(boxes.partitions[order])) + 1)
    wishes = [
        _FilesToLayOut(boxes.take(own), sizes[own], ages[own], new[own], alone[own], heaviest) for own in partitions
    ]
    allowed = [math.inf] * len(wishes) if allowance is None else allowance.of(partitions, sizes)
    left = 0.0
    for own, wish, bytes_ in zip(partitions, wishes, allowed, strict=True):
        chosen[own], wanted[own] = wish.within(bytes_), wish.all
        left += bytes_ - float(sizes[own][chosen[own]].sum())
    for number in _by_need(partitions, sizes * (wanted & ~chosen)) if ranked is None else ranked:
        own = partitions[number]
        had = float(sizes[own][chosen[own]].sum())
        more = wishes[number].within(had + left)
        if (bytes_ := float(sizes[own][more].sum())) > had:  # more files may lie well where some of them do not
            chosen[own] = more
            left -= bytes_ - had
    return LayoutChoice(chosen, wanted & ~chosen)


def _by_need(partitions: Sequence[Ranks], waiting: Ranks) -> list[int]:
    """The numbers of the partitions where files wait, those with the most bytes first."""
    bytes_ = [float(waiting[own].sum()) for own in partitions]
    return sorted((number for number, size in enumerate(bytes_) if size), key=lambda number: -bytes_[number])


class _FilesToLayOut:
    """What to lay out anew in one partition. `alone`: new files that overlap others of their age."""

    def __init__(self, boxes: Boxes, sizes: Ranks, ages: Ranks, new: FileMask, alone: FileMask, heaviest: int) -> None:
        self._boxes, self._sizes, self._ages, self._new, self._alone = boxes, sizes, ages, new, alone
        self._heaviest = heaviest
        self._tiers = list(tiers(ages, sizes)) if new.any() else []
        self.all = self._merged(self._tiers)

    def within(self, bytes_: float) -> FileMask:
        """The files to lay out with at most `bytes_`: all of them, if they fit. Else the new files, and as many of the
        newest runs as fit; if the new files alone are too many, as many of them as fit."""
        if self._fits(self.all, bytes_):
            return self.all
        new = np.flatnonzero(self.all & self._new)
        if self._sizes[new].sum() > bytes_:
            by_rank = new[np.lexsort((self._boxes.high[self._heaviest][new], self._boxes.low[self._heaviest][new]))]
            return self._parted(by_rank[np.cumsum(self._sizes[by_rank]) <= bytes_])
        for count in range(len(self._tiers) - 1, 1, -1):
            if self._fits(merged := self._merged(self._tiers[:count]), bytes_):
                return merged
        return self._parted(new)

    def _fits(self, files: FileMask, bytes_: float) -> bool:
        return bool(self._sizes[files].sum() <= bytes_)

    def _merged(self, runs: list[int]) -> FileMask:
        """The files to lay out if these runs are merged: files that overlap another one of these runs, and `alone`."""
        found = np.flatnonzero(np.isin(self._ages, runs))
        oldest = ~self._new[found] & (self._ages[found] == self._ages.min(initial=np.iinfo(np.int64).max))
        boxes, merged = self._boxes.take(found), self._alone.copy()
        merged[found] |= overlapping(boxes) | _in_one_column(boxes, ~oldest)
        return merged

    def _parted(self, files: Ranks) -> FileMask:
        """Those of these files that overlap another one of them."""
        boxes, found = self._boxes.take(files), np.zeros(len(self._sizes), bool)
        found[files] = overlapping(boxes) | _in_one_column(boxes, np.ones(len(files), bool))
        return found


def _in_one_column(boxes: Boxes, among: FileMask) -> FileMask:
    """The files of `among` that overlap another of them in some column. None, if these are well clustered already."""
    found, some = np.zeros(boxes.files, bool), np.flatnonzero(among)
    if _lie_well(boxes.take(some)):
        return found
    for column in range(len(boxes.columns)):
        found[some] |= overlapping(boxes.take(some).of(column))
    return found


def _lie_well(boxes: Boxes) -> bool:
    """Whether a file meets hardly more others in a column than in a grid: 10, for 100 files in two columns."""
    columns = len(boxes.columns)
    met = sum(meetings(*ranges) for ranges in zip(boxes.low, boxes.high, strict=True))
    return bool(met <= WELL * columns * boxes.files ** (2 - 1 / max(1, columns)))
