"""What a new layout gains: the core-seconds that reads save, against the core-seconds of the work. Pure.

    day 3     1 GB, a file meets 6 others by customer     a read by customer opens 6 files less: 0.6 s for 4 s of work
    day 4     1 GB, they meet 1 other                     0.1 s for 4 s: later
    heat      100 reads by customer of one of the days    35 s saved, 4.4 times what both cost

A read waits for each file that it opens, and decodes the rows that it reads. Each read asks for one column, and for
each column as often as its heat says. If each file meets only as many others as in a grid, nothing can be gained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from deltacompact.base.expected import Expected
from deltacompact.layout.advice import Advice
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import LayoutDepth
from deltacompact.layout.overlap import meetings, met_in_partitions
from deltacompact.planning.work import FIRST_RATES

FILE_S = 0.09
"""Seconds that a reader waits for each file that it opens: three round trips of 30 ms."""


_Amount = TypeVar("_Amount", float, npt.NDArray[np.float64])


def read_s(files: _Amount, bytes_: _Amount) -> _Amount:
    """Core-seconds of a read that opens `files` files, and decodes `bytes_` bytes."""
    return files * FILE_S + bytes_ * FIRST_RATES["base_byte"]


def saved_s(boxes: Boxes, file_bytes: float) -> list[float]:
    """For each column, the core-seconds that a read by it would save if the partition's files were laid out in a
    grid."""
    met = [meetings(*ranges) / boxes.files for ranges in zip(boxes.low, boxes.high, strict=True)]
    by_column = np.array(met, np.float64).reshape(len(met), 1)  # also without columns
    return [float(saved) for (saved,) in _in_grid_s(by_column, np.array([boxes.files]), np.array([file_bytes]))]


def _in_grid_s(
    met: npt.NDArray[np.float64], files: npt.NDArray[np.int64], file_bytes: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """By column and partition, the core-seconds that a grid saves. `met`: how many files each meets, of the same shape;
    `files`, `file_bytes`: of each partition."""
    spared = np.maximum(0.0, met - files ** (1 - 1 / max(1, len(met))))
    return read_s(spared, spared * file_bytes)


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """What a new layout of the files would gain and cost.

    depth      how many files hold a value of the columns now, on average. 0: there are no columns, or no files
    saved_s    by column, the core-seconds that each read by it saves
    cost_s     core-seconds of the rewrite
    """

    depth: float = 0.0
    saved_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    cost_s: float = 0.0

    def by_heat(self, heat: Mapping[str, float]) -> float:
        """The core-seconds that the reads of a heat would save, as a multiple of `cost_s`."""
        saved = sum(heat.get(name, 0.0) * seconds for name, seconds in self.saved_s.items())
        return saved / self.cost_s if self.cost_s else 0.0


def gained_s(boxes: Boxes, sizes: Sequence[int], chosen: Sequence[bool]) -> dict[str, float]:
    """`saved_s` of LayoutGain, if these files are laid out anew. A read asks for each row with the same chance."""
    of = boxes.partitions
    files, bytes_, rows = (np.bincount(of, amounts) for amounts in (None, sizes, boxes.rows))
    shares = rows / max(1, boxes.rows.sum()) * (np.bincount(of, chosen) > 0)
    each = bytes_ / np.maximum(1, files)
    saved = _in_grid_s(met_in_partitions(boxes), files, each) @ shares
    return dict(zip(boxes.columns, saved.tolist(), strict=True))


def with_gain(advice: Advice, by: Sequence[ClusterColumn], files: int, bytes_: int, cost: Expected) -> Advice:
    """The advice, with the cost of rewriting `files` files, and the number of reads that pay for it.

    A read asks for a range of one column; for each column as often as its weight says.
    """
    weights = sum(column.weight for column in by)
    outlooks = zip(by, advice.outlooks, strict=False)  # the last outlook, of all columns, is left out
    each = advice.bytes / max(1, advice.partitions)
    saved = sum(
        column.weight / weights * _range_saved_s(outlook.now, outlook.clustered, each) for column, outlook in outlooks
    )
    pays = math.ceil(cost.core_seconds / saved) if saved > 0 and files else None
    return replace(advice, rewrite_files=files, rewrite_bytes=bytes_, expected=cost, saved_s=saved, pays_after=pays)


def _range_saved_s(now: LayoutDepth, then: LayoutDepth | None, partition_bytes: float) -> float:
    """The seconds that a read of a range saves in a partition, for files not opened and bytes not decoded."""
    if then is None:
        return 0.0
    unread = (now.range_share - then.range_share) * partition_bytes
    return read_s(now.range_mean - then.range_mean, unread)
