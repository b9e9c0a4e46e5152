"""A split tree sends each row to one cell. Cells that follow each other make a leaf, which is a file.

    day < 3 ?    yes    customer < "m" ?    yes    cell 0    leaf 0
                                            no     cell 1    leaf 0
                 no     cell 2              leaf 1           day >= 3, whatever the customer

A column has sorted cut values. The rank of a row in it is the number of cuts that are not above its value. All rows are
ranked at once, and then go down the tree together, by their ranks. Equal values have one rank, so their own column
never separates them. Nulls come before or after all values, NaN after all numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.layout.order import Numbers, not_above, values_of

Cells = npt.NDArray[np.int32]
_ROWS_AT_ONCE = 16 << 10
"""So many rows stay in the processor's cache."""
_WIDENED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
"""Kinds of types. If a column is widened within a kind, its values keep their order."""


@dataclass(frozen=True, slots=True)
class CutColumn:
    """A column and its sorted cuts. A null among them is the last: it divides values from nulls.

    In a tree, cuts are distinct. On the grid of a curve, a cut is repeated once for each rank that begins with it.
    """

    name: str
    cuts: pa.Array = field(hash=False)
    nulls_first: bool = True

    def ranks(self, column: pa.ChunkedArray) -> Numbers:
        """For each row, how many cuts are not above it. Raises InputError if the types do not fit."""
        values = values_of(column)
        found = np.zeros(len(values.is_null), np.int64)
        if not self.nulls_first:
            found[values.is_null] = len(self.cuts)
        found[~values.is_null] = not_above(values_of(self.as_type(column.type)).of, values.of)
        return found

    def as_type(self, type_: pa.DataType) -> pa.Array:
        """The cuts in the column's current type, which may be wider than theirs."""
        if self.cuts.type == type_:
            return self.cuts
        if any(is_kind(self.cuts.type) and is_kind(type_) for is_kind in _WIDENED):
            with contextlib.suppress(pa.ArrowException):
                return self.cuts.cast(type_)
        raise InputError(
            f"the split tree has column {self.name!r} as {self.cuts.type}, and the rows have it as {type_}: "
            "the tree is of another schema"
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Rows with a rank above `cut` in a column go right, all others left. A negative child is a cell: ~0 is cell 0."""

    column: int
    cut: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """Cells that follow each other. If one value fills several files, the leaf has several, with equal shares of
    rows."""

    cells: int
    files: int = 1


@dataclass(frozen=True, slots=True)
class SplitTree:
    """The first split is the root. Without splits, all rows are in cell 0. Leaves are in the order of their cells."""

    columns: tuple[CutColumn, ...]
    splits: tuple[Split, ...]
    leaves: tuple[Leaf, ...]

    keys: ClassVar[tuple[()]] = ()

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def cells(self) -> int:
        return sum(leaf.cells for leaf in self.leaves)

    def are_alike(self, cell: int) -> bool:
        """Whether the rows of a cell need no sorting: always."""
        return True

    def cells_of(self, rows: pa.Table) -> Cells:
        """For each row, the number of its cell. Raises InputError if a column is missing or has another type."""
        if missing := [name for name in self.names if name not in rows.column_names]:
            raise InputError(f"the split tree has column {missing[0]!r}, which the rows lack: it is of another schema")
        if not self.splits:
            return np.zeros(rows.num_rows, np.int32)
        ranks = np.array([column.ranks(rows[column.name]) for column in self.columns])
        return _descended(ranks, self.splits)


def _descended(ranks: npt.NDArray[np.int64], splits: Sequence[Split]) -> Cells:
    """The cell of each row. `ranks`: of shape (columns, rows). A block of rows goes down the tree, all one step at a
    time.

    A cell is a split whose children are the cell itself, so rows that have arrived stay there.
    """
    first = len(splits)
    below = np.array([(split.left, split.right) for split in splits], np.int32)
    cells = np.repeat(np.arange(first, 2 * first + 1, dtype=np.int32), 2)
    children = np.concatenate([np.where(below < 0, first + ~below, below).ravel(), cells])
    column, cut = (
        np.array([getattr(split, name) for split in splits] + [0] * (first + 1), np.int32) for name in ("column", "cut")
    )
    found = np.empty(ranks.shape[1], np.int32)
    for start in range(0, len(found), _ROWS_AT_ONCE):
        of_rows = np.ascontiguousarray(ranks[:, start : start + _ROWS_AT_ONCE].T, np.int32).ravel()
        row = np.arange(0, len(of_rows), len(ranks))
        at = np.zeros(len(row), np.int32)
        while at.min() < first:
            goes_right = of_rows.take(row + column.take(at)) > cut.take(at)
            at = children.take(2 * at + goes_right)
        found[start : start + _ROWS_AT_ONCE] = at - first
    return found
