"""Depth: how many files hold a value, and the share of files that a reader opens for it, by bounds alone.

    files      a: 1 to 3    b: 3 to 5    c: 1 to 5
    value      1   2   3   4   5
    depth      2   2   3   2   2          mean 2.2, at most 3

What is asked is drawn where rows lie: a file by its rows, and a value in its range.

value      one value of a column, or of each of several columns
range      from such a value on, a twentieth of the values that the partition's files begin or end with

The share is of the files of the partition. Files that lie well have a depth of 1, and of 100 files a reader opens one;
with several columns each of k has its turn, and about 100^(-1/k) of the files are opened for a value of one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.layout.boxes import Boxes, Ranks

DRAWN = 1024
"""So many values and ranges are drawn: shares are known to about one and a half points."""
RANGE_SHARE = 0.05

_GOLDEN = 1.32471795724474602596
"""The plastic number: its powers step evenly through several dimensions at a time (Roberts' R sequence)."""


@dataclass(frozen=True, slots=True)
class LayoutDepth:
    """How many files hold a value, on average and at most. The shares of files that are opened for a value, a range.

    With several columns: for values or ranges of all of them at a time.
    """

    columns: tuple[str, ...]
    mean: float
    most: int
    value_share: float
    range_share: float


@dataclass(frozen=True, slots=True)
class Predicates:
    """What readers ask: ranges of ranks, of shape (columns, questions), each in the partition of a file."""

    low: Ranks
    high: Ranks
    files: Ranks


def depth_of(boxes: Boxes) -> LayoutDepth:
    """The depth of all columns together. Of one: `depth_of(boxes.of(0))`."""
    if not boxes.files:
        return LayoutDepth(boxes.columns, 0.0, 0, 0.0, 0.0)
    values, ranges = drawn(boxes), drawn(boxes, RANGE_SHARE)
    held = held_by(boxes, values)
    there = np.bincount(boxes.partitions)[boxes.partitions]
    most = deepest(boxes) if len(boxes.columns) == 1 else int(held.max())
    return LayoutDepth(
        boxes.columns,
        float(held.mean()),
        most,
        float((held / there[values.files]).mean()),
        float((held_by(boxes, ranges) / there[ranges.files]).mean()),
    )


def deepest(boxes: Boxes) -> int:
    """The greatest number of files that hold one value of the only column. A box begins where depth is greatest."""
    low, high = boxes.low[0], boxes.high[0]
    changes = np.bincount(low, minlength=int(high.max()) + 2)
    changes[1:] -= np.bincount(high, minlength=len(changes) - 1)
    return int(np.cumsum(changes).max())


def drawn(boxes: Boxes, share: float = 0.0, count: int = DRAWN) -> Predicates:
    """Questions, always the same: values, or ranges of this share of a partition's ranks."""
    weights = np.maximum(boxes.rows, 1)
    places = (np.arange(count) + 0.5) / count * weights.sum()
    files = np.searchsorted(np.cumsum(weights), places, side="right")
    low = np.empty((len(boxes.columns), count), np.int64)
    high = np.empty_like(low)
    for column in range(len(low)):
        first, last = boxes.low[column][files], boxes.high[column][files]
        step = (np.arange(1, count + 1) * _GOLDEN ** -(column + 1)) % 1.0
        low[column] = first + (step * (last - first + 1)).astype(np.int64)
        begin, end = _spans(boxes, column)
        of_file = boxes.partitions[files]
        wide = (share * (end - begin + 1)[of_file]).astype(np.int64)
        high[column] = np.minimum(low[column] + wide, end[of_file])
    return Predicates(low, high, files)


def _spans(boxes: Boxes, column: int) -> tuple[Ranks, Ranks]:
    """The least and the greatest rank of each partition."""
    partitions = int(boxes.partitions.max()) + 1
    begin = np.full(partitions, np.iinfo(np.int64).max)
    end = np.zeros(partitions, np.int64)
    np.minimum.at(begin, boxes.partitions, boxes.low[column])
    np.maximum.at(end, boxes.partitions, boxes.high[column])
    return begin, end


def held_by(boxes: Boxes, asked: Predicates) -> npt.NDArray[np.int64]:
    """How many boxes each question meets. Of one column, two sorted lists tell."""
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
