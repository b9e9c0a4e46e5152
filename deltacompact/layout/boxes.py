"""Boxes: the range of ranks that each file has in each column, from its least and greatest values alone.

    partition    file    day        customer             day       customer
    1            a       1 to 3     "ada" to "bob"       1 to 2    1 to 2
    1            b       3 to 5     unknown              2 to 3    0 to 4      it may hold any value
    1            c       only null  "eve" to "eve"       0 to 0    3 to 3      null comes before all values
    2            d       3 to 3     "ada" to "ada"       5 to 5    6 to 6      ranks of partitions never meet

A rank counts the bounds of all files, so every type that has an order becomes whole numbers, and skewed columns become
even ones. Partitions have ranks of their own, one after the other: readers skip the files of other partitions anyway.
A file with nulls and values lies where its values are: how many nulls it has, readers know besides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of a column, file by file. `low`, `high`: of one Arrow type with an order; null: unknown.

    nulls, nans    the files that have nothing but null, and nothing but NaN and null
    """

    low: pa.Array
    high: pa.Array
    nulls: npt.NDArray[np.bool_]
    nans: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of files. `low`, `high`: ranks of shape (columns, files), both inclusive.

    partitions    the number of the partition of each file, from 0 on
    rows          of each file: where rows lie, readers ask
    """

    columns: tuple[str, ...]
    low: Ranks
    high: Ranks
    partitions: Ranks
    rows: Ranks

    @property
    def files(self) -> int:
        return len(self.rows)

    def of(self, column: int) -> Boxes:
        """The boxes of one column."""
        here = slice(column, column + 1)
        return Boxes(self.columns[here], self.low[here], self.high[here], self.partitions, self.rows)

    def take(self, files: Ranks) -> Boxes:
        """The boxes of these files."""
        low, high = self.low[:, files], self.high[:, files]
        return Boxes(self.columns, low, high, self.partitions[files], self.rows[files])


def boxes_of(columns: Sequence[str], bounds: Sequence[ColumnBounds], partitions: Ranks, rows: Iterable[int]) -> Boxes:
    """The boxes of files, of which each column has these bounds."""
    ranges = [_ranges(of_column, partitions) for of_column in bounds]
    shape = len(ranges), len(partitions)
    low = np.array([low for low, _ in ranges], np.int64).reshape(shape)
    high = np.array([high for _, high in ranges], np.int64).reshape(shape)
    return Boxes(tuple(columns), low, high, partitions, np.fromiter(rows, np.int64, len(partitions)))


def numbered(partitions: Iterable[Hashable]) -> Ranks:
    """Of each file, the number of its partition."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(partition, len(known)) for partition in partitions], np.int64)


def _ranges(bounds: ColumnBounds, partitions: Ranks) -> tuple[Ranks, Ranks]:
    """The range of each file. What has no bounds, or bounds that contradict each other, may hold any value."""
    files = len(partitions)
    ranks, last = _ranks(pa.chunked_array([bounds.low, bounds.high]).combine_chunks())
    low, high = ranks[:files].copy(), ranks[files:].copy()
    low[low < 0] = 0
    high[high < 0] = last
    wrong = low > high
    low[wrong], high[wrong] = 0, last
    low[bounds.nulls], high[bounds.nulls] = 0, 0
    low[bounds.nans], high[bounds.nans] = last, last
    start = partitions * (last + 1)
    _, dense = np.unique(np.concatenate([low + start, high + start]), return_inverse=True)
    return dense[:files].astype(np.int64), dense[files:].astype(np.int64)


def _ranks(values: pa.Array) -> tuple[Ranks, int]:
    """Ranks of values from 1 on, -1 where unknown; and the rank after all of them. Equal values share one."""
    coded = _without_nan(values).dictionary_encode()
    order = np.asarray(pc.sort_indices(coded.dictionary), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    known = np.asarray(pc.is_valid(coded.indices))
    ranks = np.full(len(values), -1, np.int64)
    ranks[known] = rank[np.asarray(pc.drop_null(coded.indices), np.int64)]
    return ranks, len(order) + 1


def _without_nan(values: pa.Array) -> pa.Array:
    """NaN is no bound, and a zero has no sign."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), pa.scalar(0.0, values.type))
