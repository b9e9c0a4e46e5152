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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

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


def to_lay_out(
    boxes: Boxes,
    sizes: Ranks,
    ages: Ranks,
    laid_out: Chosen | None = None,
    amplification_max: float = math.inf,
    ranked: Sequence[int] | None = None,
) -> Chosen:
    """The files that one run lays out anew, each partition by itself.

    ages               files of one number were written together, greater ones later
    laid_out           files that a run has laid out by these columns: nothing parts those of one run any better
    amplification_max  of a partition, at most so many times the bytes of files that were never laid out are written;
                       older runs wait then. Where there are none, nothing is
    ranked             the numbers of all partitions: these share what may be written, and the first take theirs first
    """
    new = np.ones(boxes.files, bool) if laid_out is None else ~laid_out
    chosen = np.zeros(boxes.files, bool)
    chosen[new] = overlapping(boxes.take(np.flatnonzero(new)), of=ages[new])
    order = np.argsort(boxes.partitions, kind="stable")
    partitions = np.split(order, np.flatnonzero(np.diff(boxes.partitions[order])) + 1)
    left = amplification_max * float(sizes[new].sum()) - float(sizes[chosen].sum())
    for own in partitions if ranked is None else (partitions[number] for number in ranked):
        new_size = int(sizes[own][new[own]].sum())
        bound = amplification_max * new_size if ranked is None else left + float(sizes[own][chosen[own]].sum())
        for merged in _fewer_and_fewer(list(tiers(ages[own], sizes[own]))) if new_size else ():
            found = own[np.isin(ages[own], merged)]
            oldest = ~new[found] & (ages[found] == ages[own].min())
            overlap = found[overlapping(boxes.take(found)) | _in_one_column(boxes.take(found), ~oldest)]
            if sizes[overlap].sum() <= bound:
                left -= float(sizes[overlap][~chosen[overlap]].sum())
                chosen[overlap] = True
                break
    return chosen


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


def _fewer_and_fewer(merged: list[int]) -> Iterator[list[int]]:
    """The runs of a tier, then all but the oldest, and so on, as long as there are two."""
    for count in range(len(merged), 1, -1):
        yield merged[:count]
