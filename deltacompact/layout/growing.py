"""Grows a split tree on a sample of rows: a k-d tree over ranks. It ends when a leaf is a file, and a cell a row group.

    day        1 1 2 2 3 3 4 4      3 files: 1 to the left with a third of the bytes, 2 to the right
    customer   a z b y c x d w      the column with the greatest width times weight is cut: day < 2, then …

A value's rank is the share of the table's bytes before the middle of its rows. Equal values share a rank, and the width
of a column is the difference of its greatest and least rank. A column with one value here cannot be cut. A cut into
files of very unequal sizes is taken only if no other column has a better one. Columns that identify a row come last:
they divide the rows of a value that is larger than a file. Rows that no column can divide become a leaf of several
files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.order import Numbers, dense_ranks, values_of
from deltacompact.layout.split_tree import CutColumn, Leaf, Split, SplitTree

UNEVEN = 1.25
"""If a part would be larger than its size by more than this factor, the next column is tried."""
UNEVEN_MAX = 1.5
"""If it is larger by more than this factor for every column, the rows are divided by their position alone."""
SAMPLE_PER_CELL_MIN = 4

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _RankedColumn:
    """A column of the sample. `dense`: the rank of each row; `first`: a row with each rank; `share`: each rank as a
    share of the table's bytes."""

    column: ClusterColumn
    dense: Numbers
    first: Numbers
    share: Weights


def grow(
    sample: pa.Table, columns: Sequence[ClusterColumn], sizes: Weights, files: int, cells_per_file: int = 1
) -> SplitTree:
    """The tree that divides rows like the sample's into `files` files. `sizes`: the bytes that each row stands for."""
    grower = _Grower([_ranked(sample, column, sizes) for column in columns], sizes, cells_per_file)
    grower.leaf_or_split(np.arange(sample.num_rows), files)
    return grower.tree(sample)


def _ranked(sample: pa.Table, column: ClusterColumn, sizes: Weights) -> _RankedColumn:
    values = values_of(sample[column.name])
    present = np.flatnonzero(~values.is_null)
    ranks, first = dense_ranks(values.of)
    dense = np.empty(sample.num_rows, np.int64)
    before = int(column.nulls_first and values.is_null.any())
    dense[present] = ranks + before
    first = present[first]
    if values.is_null.any():
        dense[values.is_null] = 0 if column.nulls_first else len(first)
        a_null = np.flatnonzero(values.is_null)[:1]
        first = np.concatenate([a_null, first] if column.nulls_first else [first, a_null])
    of_value = np.bincount(dense, sizes, minlength=len(first))
    below = np.cumsum(of_value) - of_value / 2
    return _RankedColumn(column, dense, first, below / (float(sizes.sum()) or 1.0))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows with a rank below `rank` go left, into `parts_left` of the parts. `uneven`: how many times its size the
    larger side has."""

    column: int
    rank: int
    parts_left: int
    uneven: float


@dataclass(slots=True)
class _Grower:
    """`splits`: by number, (column, dense rank of the sample, left child, right child)."""

    columns: Sequence[_RankedColumn]
    sizes: Weights
    cells_per_file: int
    splits: list[tuple[int, int, int, int]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    cells: int = 0

    def leaf_or_split(self, rows: Numbers, files: int) -> int:
        """Grow the subtree of these rows of the sample. Returns its first split, or ~cell for its only cell."""
        cut = self._best(rows, files) if files > 1 else None
        if cut is not None and cut.uneven <= UNEVEN_MAX:
            return self._split(rows, files, cut, self.leaf_or_split)
        before = self.cells
        top = self._cell_or_split(rows, files * self.cells_per_file)
        self.leaves.append(Leaf(self.cells - before, files))
        return top

    def _cell_or_split(self, rows: Numbers, cells: int) -> int:
        cells = min(cells, len(rows) // SAMPLE_PER_CELL_MIN)
        cut = self._best(rows, cells) if cells > 1 else None
        if cut is not None:
            return self._split(rows, cells, cut, self._cell_or_split)
        self.cells += 1
        return ~(self.cells - 1)

    def _split(self, rows: Numbers, parts: int, cut: _Cut, below: Callable[[Numbers, int], int]) -> int:
        number = len(self.splits)
        self.splits.append((0, 0, 0, 0))
        goes_left = self.columns[cut.column].dense[rows] < cut.rank
        left = below(rows[goes_left], cut.parts_left)
        right = below(rows[~goes_left], parts - cut.parts_left)
        self.splits[number] = cut.column, cut.rank, left, right
        return number

    def _best(self, rows: Numbers, parts: int) -> _Cut | None:
        """The cut of the widest column whose parts are even, or else the most even cut. None: no column can be cut."""
        found = []
        for column in self._widest_first(rows):
            cut = self._cut(column, rows, parts)
            if cut.uneven <= UNEVEN:
                return cut
            found.append(cut)
        return min(found, key=lambda cut: cut.uneven, default=None)

    def _widest_first(self, rows: Numbers) -> list[int]:
        """The columns with several values in these rows."""
        widths = {}
        for number, column in enumerate(self.columns):
            low, high = (column.dense[rows].min(), column.dense[rows].max()) if len(rows) else (0, 0)
            if low < high:
                widths[number] = (column.share[high] - column.share[low]) * column.column.weight
        return sorted(widths, key=lambda number: -widths[number])

    def _cut(self, number: int, rows: Numbers, parts: int) -> _Cut:
        """The cut between two values whose left side is nearest to half of the parts."""
        dense = self.columns[number].dense[rows]
        order = np.argsort(dense, kind="stable")
        sorted_ = dense[order]
        borders = np.flatnonzero(sorted_[1:] > sorted_[:-1])
        below = np.cumsum(self.sizes[rows][order])
        shares = below[borders] / (below[-1] or 1.0)
        nearest = int(np.argmin(np.abs(shares - (parts // 2) / parts)))
        share = float(shares[nearest])
        left = min(max(round(share * parts), 1), parts - 1)
        uneven = parts * max(share / left, (1 - share) / (parts - left))
        return _Cut(number, int(sorted_[borders[nearest] + 1]), left, uneven)

    def tree(self, sample: pa.Table) -> SplitTree:
        """The tree, with values of the sample as cuts."""
        used = [sorted({rank for column, rank, *_ in self.splits if column == of}) for of in range(len(self.columns))]
        places = [{rank: place for place, rank in enumerate(ranks)} for ranks in used]
        columns = tuple(_cut_column(sample, ranked, ranks) for ranked, ranks in zip(self.columns, used, strict=True))
        splits = tuple(Split(column, places[column][rank], *below) for column, rank, *below in self.splits)
        return SplitTree(columns, splits, tuple(self.leaves))


def _cut_column(sample: pa.Table, ranked: _RankedColumn, ranks: Sequence[int]) -> CutColumn:
    column = sample[ranked.column.name]
    cuts = column.take(pa.array(ranked.first[list(ranks)], pa.int64())).combine_chunks()
    return CutColumn(ranked.column.name, cuts, ranked.column.nulls_first)
