"""Depth: how many files may hold a value, by their bounds, and the share of files that a reader opens for it.

    files      a: 1 to 3    b: 3 to 5    c: 1 to 5
    value      1   2   3   4   5
    depth      2   2   3   2   2          mean 2.2, at most 3

value      a reader asks for one value of a column, or of each of several columns
range      a reader asks for a twentieth of all values, from a value on

If rows are known, the values are theirs. Otherwise they are drawn from the bounds: a file by its number of rows, and a
value evenly from its range. Shares are of the files of the partition. Well clustered files have a depth of 1: of 100
files a reader opens one. If k columns share the clustering, a reader of a value of one column opens about 100^(-1/k) of
the files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.layout.boxes import BoundPlaces, Boxes, Ranks
from deltacompact.layout.spread import even_steps

DRAWN = 1024
"""The number of values and of ranges that are drawn. It makes shares exact to about 1.5 percentage points."""
RANGE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Predicates:
    """What readers ask for: ranges of ranks, of shape (columns, predicates), both inclusive; each in one partition."""

    low: Ranks
    high: Ranks
    partitions: Ranks

    def of(self, column: int) -> Predicates:
        here = slice(column, column + 1)
        return Predicates(self.low[here], self.high[here], self.partitions)


@dataclass(frozen=True, slots=True)
class LayoutDepth:
    """How many files and row groups readers open.

    mean, most                            files that hold a value: on average, and at most
    range_mean                            files that meet a range, on average
    value_share, range_share              the share of files that are opened for a value, for a range
    group_value_share, group_range_share  the same for row groups. None: nothing is known of them

    With several columns, a value or a range is one of all columns at once.
    """

    columns: tuple[str, ...]
    mean: float
    most: int
    range_mean: float
    value_share: float
    range_share: float
    group_value_share: float | None = None
    group_range_share: float | None = None


def depth_of(boxes: Boxes, groups: Boxes | None = None, rows: Boxes | None = None) -> LayoutDepth:
    """The depth of all columns together. For the depth of one column: `depth_of(boxes.of(0))`.

    `groups`, `rows`: the boxes of some row groups, and of some rows, ranked together.
    """
    if not boxes.files:
        return LayoutDepth(boxes.columns, 0.0, 0, 0.0, 0.0, 0.0)
    values, ranges = (_asked(boxes, rows, share) for share in (0.0, RANGE_SHARE))
    held, met = held_by(boxes, values), held_by(boxes, ranges)
    return LayoutDepth(
        boxes.columns,
        float(held.mean()),
        int(depths_of(boxes).max()) if len(boxes.columns) == 1 else int(held.max()),
        float(met.mean()),
        float((held / _there(boxes, values)).mean()),
        float((met / _there(boxes, ranges)).mean()),
        None if groups is None else _share(groups, values),
        None if groups is None else _share(groups, ranges),
    )


def mean_depths(boxes: Boxes) -> dict[str, float]:
    """How many files hold a value, on average: by column, and for several columns also under "together"."""
    found = {name: depth_of(boxes.of(place)).mean for place, name in enumerate(boxes.columns)}
    return found | ({"together": depth_of(boxes).mean} if len(found) > 1 else {})


def _there(boxes: Boxes, predicates: Predicates) -> npt.NDArray[np.int64]:
    """For each predicate, the number of boxes in its partition."""
    counts = np.bincount(boxes.partitions, minlength=int(predicates.partitions.max()) + 1)
    return counts[predicates.partitions].astype(np.int64)


def _share(groups: Boxes, predicates: Predicates) -> float | None:
    """The share of row groups that are read, in partitions with known row groups. None: there are none."""
    there = _there(groups, predicates)
    known = there > 0
    return float((held_by(groups, predicates)[known] / there[known]).mean()) if known.any() else None


def _asked(boxes: Boxes, rows: Boxes | None, share: float) -> Predicates:
    return drawn(boxes, share) if rows is None or not rows.files else predicates_of(rows, share)


def predicates_of(rows: Boxes, share: float) -> Predicates:
    """Predicates from some rows: their values; with a `share`, ranges from a value on that hold this share of rows."""
    chosen = np.unique(np.linspace(0, rows.files - 1, DRAWN).astype(np.int64))
    partitions = rows.partitions[chosen]
    low, high = rows.low[:, chosen], rows.low[:, chosen].copy()
    for partition in np.unique(partitions).tolist() if share else ():
        own, asked = rows.partitions == partition, partitions == partition
        for column, of_column in enumerate(rows.low):
            ranks = np.sort(of_column[own])
            beyond = np.searchsorted(ranks, low[column, asked]) + int(share * len(ranks))
            high[column, asked] = np.maximum(high[column, asked], ranks[np.minimum(beyond, len(ranks) - 1)])
    return Predicates(low, high, partitions)


def drawn(boxes: Boxes, share: float = 0.0, count: int = DRAWN) -> Predicates:
    """Predicates from bounds, without chance: values; with a `share`, ranges of this share of a partition's span."""
    weights = np.maximum(boxes.rows, 1)
    files = np.searchsorted(np.cumsum(weights), (np.arange(count) + 0.5) / count * weights.sum(), side="right")
    low = np.empty((len(boxes.columns), count), np.int64)
    high = np.empty_like(low)
    for column, places in enumerate(boxes.places):
        begin, end = _spans(boxes, column)
        steps = even_steps(count, column)
        for number, (file, step) in enumerate(zip(files.tolist(), steps.tolist(), strict=True)):
            first, last = int(boxes.low[column, file]) // 2, int(boxes.high[column, file]) // 2
            low[column, number] = at = _rank(places, first, last, step)
            span = int(begin[boxes.partitions[file]]) // 2, int(end[boxes.partitions[file]]) // 2
            high[column, number] = max(at, _rank(places, *span, min(1.0, _share_of(places, *span, at) + share)))
    return Predicates(low, high, boxes.partitions[files])


def _rank(places: BoundPlaces, first: int, last: int, step: float) -> int:
    """The rank of the value at `step` (0 to 1) of the way from one bound to another."""
    low, high = places.of[first], places.of[last]
    place = low + step * (high - low)
    place = round(place) if places.whole else place
    if low == high:
        return 2 * (first + round(step * (last - first)))
    if place >= high:
        return 2 * last
    above = first + int(np.searchsorted(places.of[first : last + 1], place, side="right"))
    return 2 * above - 2 if places.of[above - 1] == place else 2 * above - 1


def _share_of(places: BoundPlaces, first: int, last: int, rank: int) -> float:
    """How far a rank is on the way from one bound to another, from 0 to 1."""
    low, high = places.of[first], places.of[last]
    return float((places.of[rank // 2] - low) / (high - low)) if high > low else 0.0


def depths_of(boxes: Boxes) -> npt.NDArray[np.int64]:
    """For each rank of the only column, the number of files that hold it."""
    low, high = boxes.low[0], boxes.high[0]
    changes = np.bincount(low, minlength=int(high.max(initial=-1)) + 2)
    changes[1:] -= np.bincount(high, minlength=len(changes) - 1)
    return np.cumsum(changes)[:-1].astype(np.int64)


def _spans(boxes: Boxes, column: int) -> tuple[Ranks, Ranks]:
    """The least and the greatest rank of each partition."""
    partitions = int(boxes.partitions.max()) + 1
    begin = np.full(partitions, np.iinfo(np.int64).max)
    end = np.zeros(partitions, np.int64)
    np.minimum.at(begin, boxes.partitions, boxes.low[column])
    np.maximum.at(end, boxes.partitions, boxes.high[column])
    return begin, end


def held_by(boxes: Boxes, asked: Predicates) -> npt.NDArray[np.int64]:
    """For each predicate, how many boxes it meets. For one column, two sorted lists are enough to count."""
    if len(boxes.columns) == 1:
        begun = np.searchsorted(np.sort(boxes.low[0]), asked.high[0], side="right")
        ended = np.searchsorted(np.sort(boxes.high[0]), asked.low[0], side="left")
        counted: npt.NDArray[np.int64] = begun - ended
        return counted
    low, high = (ranks.astype(np.int32) for ranks in (boxes.low, boxes.high))
    held = np.empty(asked.low.shape[1], np.int64)
    for number, (least, greatest) in enumerate(zip(asked.low.T.tolist(), asked.high.T.tolist(), strict=True)):
        meets = np.ones(boxes.files, bool)
        for column in range(len(low)):
            meets &= low[column] <= greatest[column]
            meets &= high[column] >= least[column]
        held[number] = np.count_nonzero(meets)
    return held
