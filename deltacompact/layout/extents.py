"""Extents: the share of a partition's rows whose files a group of files meets in a column. Pure.

    partition     day         customer      rows
    a   stays     1 to 30     ada to zoe     900
    b   stays     31 to 31    ada to kim      60
    c   written   31 to 31    ada to eve      20
    d   written   31 to 32    bob to zoe      20
    extent        day 0.1: the files that meet c and d by day have 100 of 1,000 rows. customer 1.0: all files do

A split tree cuts the column in which its rows are widest. It sees only the rows that are written: it would divide two
days into as many parts as the days of a whole table. Weighted with extents, a column is as wide as its rows are in the
partition. So rows that came in the order of time, and are close in time already, are divided by customer. If all files
are written, all extents are 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deltacompact.layout.boxes import Boxes, Ranks
from deltacompact.layout.cluster_by import ClusterColumn

Extents = Mapping[str, float]
"""The extent of each column. A column without an entry has extent 1."""

STAYS = -1


def extents_of(boxes: Boxes, written: Ranks, groups: int) -> list[Extents]:
    """The extents of each group of files that are written together. A group is in one partition.

    `written`: for each file the number of its group, or STAYS if it is in none. A file without bounds may hold any
    value, so it meets all others.
    """
    chosen = written != STAYS
    of_partition = np.zeros(int(boxes.partitions.max(initial=-1)) + 1, np.int64)
    np.add.at(of_partition, boxes.partitions, boxes.rows)
    rows = np.zeros(groups, np.int64)
    rows[written[chosen]] = of_partition[boxes.partitions[chosen]]
    met = [
        _rows_met(low, high, boxes.rows, _span(low[chosen], high[chosen], written[chosen], groups))
        for low, high in zip(boxes.low, boxes.high, strict=True)
    ]
    return [
        {name: int(of_column[group]) / int(rows[group]) for name, of_column in zip(boxes.columns, met, strict=True)}
        if rows[group]
        else {}
        for group in range(groups)
    ]


def _span(low: Ranks, high: Ranks, written: Ranks, groups: int) -> tuple[Ranks, Ranks]:
    """The least and the greatest rank of each group."""
    least, greatest = np.full(groups, np.iinfo(np.int64).max), np.full(groups, -1, np.int64)
    np.minimum.at(least, written, low)
    np.maximum.at(greatest, written, high)
    return least, greatest


def _rows_met(low: Ranks, high: Ranks, rows: Ranks, span: tuple[Ranks, Ranks]) -> npt.NDArray[np.int64]:
    """For each span, the rows of files that meet it: files that begin before its end, minus files that end before its
    beginning. Files of earlier partitions count in both, and cancel out."""
    least, greatest = span
    return _rows_until(low, rows, greatest + 1) - _rows_until(high, rows, least)


def _rows_until(bounds: Ranks, rows: Ranks, until: Ranks) -> npt.NDArray[np.int64]:
    """For each rank of `until`, the rows of the files whose bound is less."""
    order = np.argsort(bounds, kind="stable")
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows[order], dtype=np.int64)])
    found: npt.NDArray[np.int64] = below[np.searchsorted(bounds[order], until)]
    return found


def weighed(columns: Sequence[ClusterColumn], extents: Extents) -> tuple[ClusterColumn, ...]:
    """The columns, with each weight times the column's extent. A weight above 0 never becomes 0."""
    return tuple(
        replace(column, weight=column.weight * extents.get(column.name, 1.0) or column.weight) for column in columns
    )
