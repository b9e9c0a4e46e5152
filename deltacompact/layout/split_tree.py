"""A split tree: each row goes to exactly one cell. Cells that follow each other make a leaf, which is a file.

    day < 3 ?    yes    customer < "m" ?    yes    cell 0    leaf 0
                                            no     cell 1    leaf 0
                 no     cell 2              leaf 1           day >= 3, whatever the customer

A column has its cut values, sorted. Rows are first ranked (how many cuts are not above the value), then sent down the
tree by whole numbers: nothing is done for one row alone. Equal values have one rank, so they are never separated by
their own column. Nulls have a place before or behind all values, NaN is above all numbers.
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
"""They stay in the processor's cache."""
_WIDENED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
"""Kinds of types within which a column may have been widened, and its values keep their order."""


@dataclass(frozen=True, slots=True)
class CutColumn:
    """A column and its cuts, sorted. A null among them is the last: it divides values from nulls.

    Those of a tree are there once. On the grid of a curve, as many ranks begin with a value as the one before it fills.
    """

    name: str
    cuts: pa.Array = field(hash=False)
    nulls_first: bool = True

    def ranks(self, column: pa.ChunkedArray) -> Numbers:
        """Of each row, how many cuts are not above it. Raises InputError where types do not fit."""
        values = values_of(column)
        found = np.zeros(len(values.is_null), np.int64)
        if not self.nulls_first:
            found[values.is_null] = len(self.cuts)
        found[~values.is_null] = not_above(values_of(self.as_type(column.type)).of, values.of)
        return found

    def as_type(self, type_: pa.DataType) -> pa.Array:
        """The cuts in the type that the column has by now: it may have been widened."""
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
    """Rows whose rank in a column is above `cut` go right, all others left. A child below 0 is a cell: ~0 is cell 0."""

    column: int
    cut: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """Cells that follow each other. More than one file: one value fills several, and its rows are divided evenly."""

    cells: int
    files: int = 1


@dataclass(frozen=True, slots=True)
class SplitTree:
    """The first split is the root; without splits, all rows lie in cell 0. Leaves are in the order of their cells."""

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
        """Whether rows of a cell have no order among them: always."""
        return True

    def cells_of(self, rows: pa.Table) -> Cells:
        """Of each row, the number of its cell. Raises InputError where a column is missing or has another type."""
        if missing := [name for name in self.names if name not in rows.column_names]:
            raise InputError(f"the split tree has column {missing[0]!r}, which the rows lack: it is of another schema")
        if not self.splits:
            return np.zeros(rows.num_rows, np.int32)
        ranks = np.array([column.ranks(rows[column.name]) for column in self.columns])
        return _descended(ranks, self.splits)


def _descended(ranks: npt.NDArray[np.int64], splits: Sequence[Split]) -> Cells:
    """The cells of rows with these ranks, by column. Some rows go down at a time, all of them one step at once.

    A cell is a split with itself below on both sides, so rows that are there stay.
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
