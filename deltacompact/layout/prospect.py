"""Foresees the files that clustering would write: the boxes of the leaves of a split tree, grown on a sample. Pure.

    sample     20,000 rows of day 3, which has 4 M rows and becomes 12 files
    tree       12 leaves of 4 cells: a box around the rows of each

The tree is thrown away: a rewrite grows its own, from more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltacompact.layout.advice import Outlook
from deltacompact.layout.boxes import Boxes, Ranks
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import LayoutDepth, depth_of
from deltacompact.layout.growing import grow
from deltacompact.layout.order import dense_ranks, values_of

_SAMPLE_PER_FILE = 8
"""With fewer rows of the sample in a file, its box would be too small. If a sample has too few rows for all files of
its partition, fewer files are foreseen."""


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """Some rows of a partition, the number of all its rows, and the number of files that these become."""

    sample: pa.Table
    rows: int
    files: int


@dataclass(frozen=True, slots=True)
class Prospect:
    """The boxes of files and of row groups, and of the sampled rows, whose values readers ask for."""

    files: Boxes
    groups: Boxes
    rows: Boxes

    def depth(self, column: int | None) -> LayoutDepth:
        """The depth of a column. None: of all columns together."""
        each = self.files, self.groups, self.rows
        return depth_of(*(each if column is None else (boxes.of(column) for boxes in each)))


def outlooks(now: Prospect, then: Prospect) -> tuple[Outlook, ...]:
    """The depth of each column now and then. If there are several columns, also that of all together."""
    columns = len(now.files.columns)
    places: list[int | None] = [*range(columns), *([None] if columns > 1 else [])]
    return tuple(Outlook(now.depth(place), then.depth(place)) for place in places)


def foreseen(samples: Sequence[PartitionSample], by: Sequence[ClusterColumn], cells_per_file: int) -> Prospect:
    """What clustering would make of the sampled partitions."""
    names = tuple(column.name for column in by)
    found: list[list[Ranks]] = [[np.zeros((2 * len(names) + 2, 0), np.int64)] for _ in range(3)]
    start = 0
    for partition, sampled in enumerate(samples):
        if sampled.sample.num_rows:
            for boxes, of_partition in zip(found, _of_partition(sampled, by, cells_per_file), strict=True):
                boxes.append(_placed(of_partition, start, partition, sampled))
            start += sampled.sample.num_rows + 1
    return Prospect(*(_boxes(names, np.concatenate(boxes, axis=1)) for boxes in found))


def _of_partition(sampled: PartitionSample, by: Sequence[ClusterColumn], cells_per_file: int) -> tuple[Ranks, ...]:
    """Boxes of files, of cells, and of rows. Each array: (least rank of each column, greatest rank of each column, rows
    of the sample) by box."""
    files = max(1, min(sampled.files, sampled.sample.num_rows // _SAMPLE_PER_FILE))
    tree = grow(sampled.sample, by, np.ones(sampled.sample.num_rows), files, cells_per_file)
    ranks = np.array([_ranks(sampled.sample[column.name]) for column in by])
    cells = tree.cells_of(sampled.sample)
    leaf_of = np.repeat(np.arange(len(tree.leaves)), [leaf.cells for leaf in tree.leaves])
    times = np.array([leaf.files for leaf in tree.leaves])
    leaves = leaf_of[cells]
    rows = np.concatenate([ranks, ranks, np.ones((1, len(cells)), np.int64)])
    return _around(ranks, leaves, times), _around(ranks, cells.astype(np.int64), times[leaf_of]), rows


def _ranks(column: pa.ChunkedArray) -> Ranks:
    """The rank of each row. Nulls come before all values."""
    values = values_of(column)
    found = np.zeros(len(values.is_null), np.int64)
    found[~values.is_null] = dense_ranks(values.of)[0] + 1
    return found


def _around(ranks: Ranks, box_of: Ranks, times: Ranks) -> Ranks:
    """The box around the rows of each number. `times`: how often each box comes: once for each file of a leaf."""
    low = np.full((len(ranks), len(times)), np.iinfo(np.int64).max)
    high = np.full((len(ranks), len(times)), -1)
    for column, of_column in enumerate(ranks):
        np.minimum.at(low[column], box_of, of_column)
        np.maximum.at(high[column], box_of, of_column)
    rows = np.bincount(box_of, minlength=len(times))
    found = np.concatenate([low, high, rows[None, :]])
    return np.repeat(found, np.where(rows > 0, times, 0), axis=1)


def _placed(found: Ranks, start: int, partition: int, sampled: PartitionSample) -> Ranks:
    """The boxes in terms of the table: ranks from `start` on, rows of the table, and the number of the partition."""
    found = found.copy()
    found[:-1] += start
    found[-1] = found[-1] * max(1, sampled.rows // sampled.sample.num_rows)
    return np.concatenate([found, np.full((1, found.shape[1]), partition, np.int64)])


def _boxes(names: tuple[str, ...], found: Ranks) -> Boxes:
    count = len(names)
    return Boxes(names, found[:count], found[count : 2 * count], found[-1], found[-2])
