"""Ranges of a sort order: the keys of a row say to which range it goes.

    keys      day downwards, id                     cuts    (9, "k")   (4, "b")
    rows      (9, "a") -> range 0    (9, "k") -> range 1    (7, "x") -> range 1    (4, "c") -> range 2

A key is a column, or the place of several columns on a curve. All rows are compared with all cuts at once, key by
key: a value becomes its place among the values that the cuts have, and the places of all keys become one number.
A range may begin *behind* a cut: then the rows that equal the cut have a range of their own, in which nothing has to be
sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from deltacompact.layout.curves import hilbert, zorder
from deltacompact.layout.order import Numbers, below, dense_ranks, not_above, stable_order, values_of
from deltacompact.layout.sort_order import Curve
from deltacompact.layout.split_tree import Cells, CutColumn, Leaf

BITS = 10
"""Bits of a column's rank on a curve: 1,024 ranks. Four columns make 40 bits."""


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """Rows in the order of a column."""

    name: str
    descending: bool = False
    nulls_first: bool = True

    @property
    def names(self) -> list[str]:
        return [self.name]

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows[self.name]


@dataclass(frozen=True, slots=True)
class CurveKey:
    """Rows in the order of a curve through ranks of columns. `columns`: the cuts that give the ranks."""

    curve: Curve
    columns: tuple[CutColumn, ...]
    descending: bool = False
    nulls_first: bool = True

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        ranks = np.array([column.ranks(rows[column.name]) for column in self.columns], np.uint64)
        numbers = hilbert(ranks, BITS) if self.curve is Curve.HILBERT else zorder(ranks, BITS)
        return pa.chunked_array([pa.array(numbers)])


Key = ColumnKey | CurveKey


@dataclass(frozen=True, slots=True)
class RangeCuts:
    """The cuts between ranges.

    cuts      for each key, its values in the cuts. A cut has the keys of the first row of a range; the first range has
              no cut
    leaves    ranges that follow each other make a leaf
    behind    for each cut, whether its range begins after the rows that equal it; these are the range before then.
              Empty: no range does
    """

    keys: tuple[Key, ...]
    cuts: tuple[pa.Array, ...] = field(hash=False)
    leaves: tuple[Leaf, ...]
    behind: tuple[bool, ...] = ()

    @property
    def cells(self) -> int:
        return sum(leaf.cells for leaf in self.leaves)

    def are_alike(self, cell: int) -> bool:
        """Whether all rows of a range have equal keys, so that they need no sorting."""
        return cell < len(self.behind) and self.behind[cell]

    def cells_of(self, rows: pa.Table) -> Cells:
        """For each row, the number of its range."""
        count = len(self.cuts[0])
        of_rows, of_cuts = np.zeros(rows.num_rows, np.int64), np.zeros(count, np.int64)
        for key, cuts in zip(self.keys, self.cuts, strict=True):
            width = 2 * count + 3
            known = _KeyPlaces.of(cuts, key)
            of_rows = of_rows * width + known.of_values(key.of(rows))
            of_cuts = of_cuts * width + known.of_values(pa.chunked_array([cuts]))
            of_rows, of_cuts = _compressed(of_rows, of_cuts)
        if self.behind:
            of_cuts = of_cuts + np.array(self.behind)  # cuts have odd numbers, so the next number is just after a cut
        return np.searchsorted(of_cuts, of_rows, side="right").astype(np.int32)


def _compressed(of_rows: Numbers, of_cuts: Numbers) -> tuple[Numbers, Numbers]:
    """Both as small numbers in the same order: those of cuts are odd, those between cuts even."""
    distinct = np.unique(of_cuts)

    def placed(numbers: Numbers) -> Numbers:
        below = np.searchsorted(distinct, numbers, side="left")
        return (below + np.searchsorted(distinct, numbers, side="right")).astype(np.int64)

    return placed(of_rows), placed(of_cuts)


@dataclass(frozen=True, slots=True)
class _KeyPlaces:
    """The places of values among some distinct ones: 2 n + 1 for the n-th of these, even numbers in between."""

    cuts: CutColumn
    descending: bool
    nulls_first: bool

    @classmethod
    def of(cls, values: pa.Array, key: Key) -> _KeyPlaces:
        found = values_of(values)
        _, first = dense_ranks(found.of)
        distinct = values.drop_null().take(pa.array(first))
        return cls(CutColumn("", distinct), key.descending, key.nulls_first)

    def of_values(self, column: pa.ChunkedArray) -> Numbers:
        values = values_of(column)
        cuts = values_of(self.cuts.as_type(column.type)).of
        found = np.empty(len(values.is_null), np.int64)
        places = not_above(cuts, values.of) + below(cuts, values.of)
        last = 2 * len(self.cuts.cuts)
        found[~values.is_null] = (last - places if self.descending else places) + 1
        found[values.is_null] = 0 if self.nulls_first else last + 2
        return found


def sorted_by(keys: Sequence[Key], rows: pa.Table) -> Numbers:
    """The row numbers in the order of the keys. Rows with equal keys keep their order."""
    if len(keys) == 1:
        (key,) = keys
        values = values_of(key.of(rows))
        if isinstance(values.of, np.ndarray) and values.of.dtype.kind in "iu":  # they need no ranks
            order = stable_order(~values.of if key.descending else values.of)
            present, nulls = np.flatnonzero(~values.is_null)[order], np.flatnonzero(values.is_null)
            return np.concatenate([nulls, present] if key.nulls_first else [present, nulls]).astype(np.int64)
    whole = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        ranks = key_ranks(key, rows) + 1
        whole = whole * (rows.num_rows + 2) + ranks
        if key is not keys[-1]:
            whole, _ = dense_ranks(whole)
    return stable_order(whole)


def key_ranks(key: Key, rows: pa.Table) -> Numbers:
    """The rank of each row by a key. Equal values have equal ranks."""
    values = values_of(key.of(rows))
    ranks, first = dense_ranks(values.of)
    found = np.full(len(values.is_null), -1 if key.nulls_first else len(first), np.int64)
    found[~values.is_null] = len(first) - 1 - ranks if key.descending else ranks
    return found
