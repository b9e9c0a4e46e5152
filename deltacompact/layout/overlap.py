"""Which files overlap, and which of them a run lays out anew: from boxes, bytes and ages. Pure.

    day        a: 1 to 3    b: 3 to 5    c: 2 to 4    d: 6 to 9
    overlap    a and c, b and c          a and b have one day in common: no cut by day would part them better

Two files overlap if their boxes meet in all columns, and in one of them in more than one value. Files that were divided
between two values do not overlap, and neither do files that are full of one value.

    runs       base 100 GB    friday 2 GB    saturday 1 GB    sunday 1 GB          each was written at one time
    tiers      sunday and saturday are merged, then friday with both: it is no larger. The base is larger: it stays

A run whose own files overlap was never laid out, so all of its overlapping files are chosen. Of merged runs, a file is
chosen only if it overlaps a file of another one: data that arrive in the order of time never touch older files. If many
such runs hold the same customers, one tree over all runs separates the customers better, and overlap in one column is
enough. The oldest run does not take part in this, once it has been laid out.

    allowed    400 MB of 1 TB      a new layout: the new files with the least days, up to 400 MB; the next run goes on
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

Chosen = npt.NDArray[np.bool_]

ABOUT = 1.5
"""Two appends never have exactly the same size: a run counts as larger than others if it has more than so many times
their bytes."""
WELL = 1.25
"""In a grid, each file meets some others. Files lie well up to so many times this number."""
_Ranges = npt.NDArray[np.int32]
_LOOKS = 16
"""After so many steps, files that need no more comparisons are left out."""
_FEW = 512
"""If at most so many files are left, they are compared with all others."""


def overlapping(boxes: Boxes, of: Ranks | None = None) -> Chosen:
    """The files that overlap another one. `of`: only those of the same number count."""
    found = np.zeros(boxes.files, bool)
    if boxes.files < 2 or not boxes.columns:
        return found
    low, high = boxes.low.astype(np.int32), boxes.high.astype(np.int32)
    by_meetings = np.argsort([meetings(*ranges) for ranges in zip(low, high, strict=True)])
    low, high = low[by_meetings], high[by_meetings]
    order = np.lexsort((high[0], low[0]))
    found[order] = _swept(low[:, order], high[:, order], None if of is None else of[order])
    return found


def meetings(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> int:
    """How many pairs of ranges meet."""
    begun = np.searchsorted(np.sort(low), high, side="right")
    return int((begun - np.searchsorted(np.sort(high), low, side="left")).sum())


def _swept(low: _Ranges, high: _Ranges, groups: Ranks | None) -> Chosen:
    """Files in the order of their first ranks: each is compared with those that begin before it ends.

    All are compared with their next one, then with the one after it, and so on. Who is known to overlap, and has only
    such behind it, is compared no more. In the end the few that nobody has met yet are compared with all others.
    """
    count = low.shape[1]
    found = np.zeros(count, bool)
    ends = np.searchsorted(low[0], high[0], side="right")
    low, high = low[::-1], high[::-1]  # in the first column all of them meet, so it is asked last
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


def _each(low: _Ranges, high: _Ranges, groups: Ranks | None, found: Chosen, left: Ranks) -> Chosen:
    """Compares these files with all."""
    others = np.arange(len(found))
    for file in left.tolist():
        one, other = _overlap(low, high, groups, np.full(len(found), file), others)
        found[file] = bool((one != other).any())
    return found


def _overlap(low: _Ranges, high: _Ranges, groups: Ranks | None, one: Ranks, other: Ranks) -> tuple[Ranks, Ranks]:
    """Those of the pairs of files that overlap. Each column leaves fewer to the next."""
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
    """The ages of the runs that are merged, the newest first: the next older one is, while it is not larger than all.

    Nothing, where the newest is alone.
    """
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
    """The bytes, or rows, that a run may rewrite of files that overlap.

    earned     what each file brought, for its own partition
    carried    what former runs left, shared by bytes; below 0, they rewrote more, and all earn less
    """

    earned: npt.NDArray[np.floating[Any]]
    carried: float = 0.0

    @classmethod
    def over_time(cls, times: float, account: LayoutAccount, came: Ranks) -> RewriteAllowance:
        """So many times what has come: to the account, and what came since of each file."""
        return cls(times * came, times * account.came - account.rewritten)

    def of(self, partitions: Sequence[Ranks], sizes: Ranks) -> list[float]:
        """That of each partition, which has these files."""
        earned = [float(self.earned[own].sum()) for own in partitions]
        if self.carried < 0:
            left = max(0.0, 1 + self.carried / (sum(earned) or 1.0))
            return [left * one for one in earned]
        each = self.carried / max(1.0, float(sizes.sum()))
        return [one + each * float(sizes[own].sum()) for one, own in zip(earned, partitions, strict=True)]


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The files that one run lays out anew; and those that it would, were it allowed to rewrite more."""

    chosen: Chosen
    waits: Chosen


def to_lay_out(
    boxes: Boxes,
    sizes: Ranks,
    ages: Ranks,
    laid_out: Chosen | None = None,
    allowance: RewriteAllowance | None = None,
    ranked: Sequence[int] | None = None,
    heaviest: int = 0,
) -> LayoutChoice:
    """The files that one run lays out anew, each partition by itself.

    ages        files of one number were written together, greater ones later
    laid_out    files that a run has laid out by these columns: nothing parts those of one run any better
    allowance   what a run may rewrite; None: any number of bytes
    ranked      the numbers of all partitions: what others leave of their allowance goes to the first that need more
    heaviest    the column in whose order files that are too many for one run are taken
    """
    new = np.ones(boxes.files, bool) if laid_out is None else ~laid_out
    alone = np.zeros(boxes.files, bool)
    alone[new] = overlapping(boxes.take(np.flatnonzero(new)), of=ages[new])
    chosen, wanted = np.zeros(boxes.files, bool), np.zeros(boxes.files, bool)
    order = np.argsort(boxes.partitions, kind="stable")
    partitions = np.split(order, np.flatnonzero(np.diff(boxes.partitions[order])) + 1)
    wishes = [_Wanted(boxes.take(own), sizes[own], ages[own], new[own], alone[own], heaviest) for own in partitions]
    allowed = [math.inf] * len(wishes) if allowance is None else allowance.of(partitions, sizes)
    left = 0.0
    for own, wish, bytes_ in zip(partitions, wishes, allowed, strict=True):
        chosen[own], wanted[own] = wish.within(bytes_), wish.all
        left += bytes_ - float(sizes[own][chosen[own]].sum())
    for number in ranked or () if allowance is not None else ():
        own = partitions[number]
        had = float(sizes[own][chosen[own]].sum())
        chosen[own] = wishes[number].within(had + left)
        left -= float(sizes[own][chosen[own]].sum()) - had
    return LayoutChoice(chosen, wanted & ~chosen)


class _Wanted:
    """What to lay out anew of one partition. `alone`: new files that overlap others of their age."""

    def __init__(self, boxes: Boxes, sizes: Ranks, ages: Ranks, new: Chosen, alone: Chosen, heaviest: int) -> None:
        self._boxes, self._sizes, self._ages, self._new, self._alone = boxes, sizes, ages, new, alone
        self._heaviest = heaviest
        self._tiers = list(tiers(ages, sizes)) if new.any() else []
        self.all = self._merged(self._tiers)

    def within(self, bytes_: float) -> Chosen:
        """What may be done for so many bytes: all, or some of the new files; where these are few, the newest runs."""
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

    def _fits(self, files: Chosen, bytes_: float) -> bool:
        return bool(self._sizes[files].sum() <= bytes_)

    def _merged(self, runs: list[int]) -> Chosen:
        """The files of some runs that overlap others of them, and those that overlap alone."""
        found = np.flatnonzero(np.isin(self._ages, runs))
        oldest = ~self._new[found] & (self._ages[found] == self._ages.min(initial=np.iinfo(np.int64).max))
        boxes, merged = self._boxes.take(found), self._alone.copy()
        merged[found] |= overlapping(boxes) | _in_one_column(boxes, ~oldest)
        return merged

    def _parted(self, files: Ranks) -> Chosen:
        """Those of some files that overlap others of them."""
        boxes, found = self._boxes.take(files), np.zeros(len(self._sizes), bool)
        found[files] = overlapping(boxes) | _in_one_column(boxes, np.ones(len(files), bool))
        return found


def _in_one_column(boxes: Boxes, among: Chosen) -> Chosen:
    """Those among some files that overlap another one of them in a column, unless they lie well in most columns."""
    found, some = np.zeros(boxes.files, bool), np.flatnonzero(among)
    if _lie_well(boxes.take(some)):
        return found
    for column in range(len(boxes.columns)):
        found[some] |= overlapping(boxes.take(some).of(column))
    return found


def _lie_well(boxes: Boxes) -> bool:
    """Whether a file meets about as few others in a column, on average, as in a grid: of 100 in two columns 10."""
    columns = len(boxes.columns)
    met = sum(meetings(*ranges) for ranges in zip(boxes.low, boxes.high, strict=True))
    return bool(met <= WELL * columns * boxes.files ** (2 - 1 / max(1, columns)))
