"""How much laying out files anew gains: core-seconds that reads save, beside core-seconds of work. Pure.

    day 3     1 GB, a file meets 6 others by customer     a read by customer opens 6 files less: 0.6 s for 4 s of work
    day 4     1 GB, they meet 1 other                     0.1 s for 4 s: later
    heat      100 reads by customer of one of the days    35 s saved, 4.4 times what both cost

A read waits for each file that it opens, and decodes the rows that it reads. Reads ask for one column at a time, and
for each column as often as its share of the heat says. Nothing can be gained where each file meets only as many others
as in a grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from deltacompact.base.expected import Expected
from deltacompact.layout.advice import Advice
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import LayoutDepth
from deltacompact.layout.overlap import meetings
from deltacompact.planning.work import FIRST_RATES

FILE_S = 0.09
"""Seconds that a reader waits for each file that it opens: three round trips of 30 ms."""


def read_s(files: float, bytes_: float) -> float:
    """Core-seconds of a read that opens so many files, and decodes so many bytes."""
    return files * FILE_S + bytes_ * FIRST_RATES["base_byte"]


def saved_s(boxes: Boxes, file_bytes: float) -> list[float]:
    """How many core-seconds a read by each column would save if the partition's files lay as in a grid."""
    in_grid = boxes.files ** (1 - 1 / max(1, len(boxes.columns)))
    met = [meetings(*ranges) / boxes.files - in_grid for ranges in zip(boxes.low, boxes.high, strict=True)]
    return [read_s(max(0.0, one), max(0.0, one) * file_bytes) for one in met]


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """How files lie, and what laying them out would bring and cost.

    depth      how many files hold a value of the columns, on average; 0: no columns are named, or there is no file
    saved_s    by column, core-seconds that a read by it takes less; files that a run would leave count for none
    cost_s     core-seconds of the run
    """

    depth: float = 0.0
    saved_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    cost_s: float = 0.0

    def by_heat(self, heat: Mapping[str, float]) -> float:
        """What the reads of a heat would save, as a multiple of what clustering costs."""
        saved = sum(heat.get(name, 0.0) * one for name, one in self.saved_s.items())
        return saved / self.cost_s if self.cost_s else 0.0


def gained_s(boxes: Boxes, sizes: Sequence[int], chosen: Sequence[bool]) -> dict[str, float]:
    """The seconds of `LayoutGain`, where a run chooses these files. Of a read, all rows have the same chance."""
    is_chosen, bytes_ = np.array(chosen, bool), np.array(sizes, np.int64)
    saved = np.zeros(len(boxes.columns))
    for partition in np.unique(boxes.partitions[is_chosen]).tolist():
        own = np.flatnonzero(boxes.partitions == partition)
        share = boxes.rows[own].sum() / max(1, boxes.rows.sum())
        saved += share * np.array(saved_s(boxes.take(own), float(bytes_[own].mean())))
    return dict(zip(boxes.columns, saved.tolist(), strict=True))


def with_gain(advice: Advice, by: Sequence[ClusterColumn], files: int, bytes_: int, cost: Expected) -> Advice:
    """The advice, with what it takes to write so many files anew, and after how many reads that has paid.

    A read asks for a range of one of the columns, each as often as its weight says.
    """
    weights = sum(column.weight for column in by)
    outlooks = zip(by, advice.outlooks, strict=False)  # behind them, the one of all columns
    each = advice.bytes / max(1, advice.partitions)
    saved = sum(column.weight / weights * _range_saved_s(one.now, one.clustered, each) for column, one in outlooks)
    pays = math.ceil(cost.core_seconds / saved) if saved > 0 and files else None
    return replace(advice, rewrite_files=files, rewrite_bytes=bytes_, expected=cost, saved_s=saved, pays_after=pays)


def _range_saved_s(now: LayoutDepth, then: LayoutDepth | None, partition_bytes: float) -> float:
    """What a read of a range takes less in a partition: files that are not opened, bytes that are not decoded."""
    if then is None:
        return 0.0
    unread = (now.range_share - then.range_share) * partition_bytes
    return read_s(now.range_mean - then.range_mean, unread)
