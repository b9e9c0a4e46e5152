"""Boxes: for each file and column the range of its values, as ranks. Least and greatest values are all it takes.

    partition    file    day        customer             day       customer
    1            a       1 to 3     "ada" to "bob"       0 to 2    2 to 4
    1            b       3 to 5     unknown              2 to 4    0 to 8      it may hold any value
    1            c       5 to 9     only null            4 to 6    0 to 0      null comes before all values
    1            d       9 to 9     "eve" to "eve"       6 to 6    6 to 6
    2            e       3 to 3     "ada" to "ada"       8 to 8    10 to 10    ranks of partitions never meet

The bounds of all files are sorted and numbered, so values of every type with an order become whole numbers. Bounds have
even ranks; values between two bounds have the odd rank between them. Each partition has its own stretch of ranks,
because readers skip the files of other partitions anyway. The box of a file with nulls and values is around the values:
readers know its number of nulls from elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.layout.order import common_prefix

Ranks = npt.NDArray[np.int64]
_HEAD = 8
"""Bytes of a value that are enough to tell roughly where it lies between two others."""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of a column, file by file. `low`, `high`: values of one Arrow type with an order; null: unknown.

    nulls, nans    whether a file has only nulls; whether it has only NaN and nulls
    """

    low: pa.Array
    high: pa.Array
    nulls: npt.NDArray[np.bool_]
    nans: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BoundPlaces:
    """Each bound of a column as a number, roughly. `whole`: the values are whole numbers, with nothing in between."""

    of: npt.NDArray[np.float64] = field(hash=False)
    whole: bool


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of files. `low`, `high`: ranks of shape (columns, files), both inclusive.

    partitions    for each file, the number of its partition, from 0 on
    rows          for each file, its rows: readers ask more often where more rows are
    places        for each column, its bounds as numbers
    """

    columns: tuple[str, ...]
    low: Ranks
    high: Ranks
    partitions: Ranks
    rows: Ranks
    places: tuple[BoundPlaces, ...] = ()

    @property
    def files(self) -> int:
        return len(self.rows)

    def of(self, column: int) -> Boxes:
        """The boxes of one column."""
        here = slice(column, column + 1)
        return Boxes(self.columns[here], self.low[here], self.high[here], self.partitions, self.rows, self.places[here])

    def take(self, files: Ranks) -> Boxes:
        """The boxes of these files."""
        low, high = self.low[:, files], self.high[:, files]
        return Boxes(self.columns, low, high, self.partitions[files], self.rows[files], self.places)


def boxes_of(columns: Sequence[str], bounds: Sequence[ColumnBounds], partitions: Ranks, rows: Iterable[int]) -> Boxes:
    """The boxes of files. `bounds`: those of each column."""
    ranges = [_ranges(of_column, partitions) for of_column in bounds]
    shape = len(ranges), len(partitions)
    low = np.array([low for low, _, _ in ranges], np.int64).reshape(shape)
    high = np.array([high for _, high, _ in ranges], np.int64).reshape(shape)
    places = tuple(places for _, _, places in ranges)
    return Boxes(tuple(columns), low, high, partitions, np.fromiter(rows, np.int64, len(partitions)), places)


def numbered(partitions: Iterable[Hashable]) -> Ranks:
    """For each file, the number of its partition."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(partition, len(known)) for partition in partitions], np.int64)


def _ranges(bounds: ColumnBounds, partitions: Ranks) -> tuple[Ranks, Ranks, BoundPlaces]:
    """(low, high, places) of one column. A file without bounds, or with contradictory ones, may hold any value."""
    files = len(partitions)
    ranks, places = _ranks(_without_nan(pa.chunked_array([bounds.low, bounds.high]).combine_chunks()))
    last = len(places.of) - 1
    low, high = ranks[:files].copy(), ranks[files:].copy()
    low[low < 0] = 0
    high[high < 0] = last
    wrong = low > high
    low[wrong], high[wrong] = 0, last
    low[bounds.nulls], high[bounds.nulls] = 0, 0
    low[bounds.nans], high[bounds.nans] = last, last
    start = partitions * (last + 1)
    known, dense = np.unique(np.concatenate([low + start, high + start]), return_inverse=True)
    dense = 2 * dense.astype(np.int64)
    return dense[:files], dense[files:], BoundPlaces(places.of[known % (last + 1)], places.whole)


def _ranks(values: pa.Array) -> tuple[Ranks, BoundPlaces]:
    """The ranks of values, from 1 on (-1: unknown), and the places of all ranks, from 0 to one beyond the last."""
    coded = values.dictionary_encode()
    order = np.asarray(pc.array_sort_indices(coded.dictionary)).astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    known = np.asarray(pc.is_valid(coded.indices))
    ranks = np.full(len(values), -1, np.int64)
    ranks[known] = rank[np.asarray(pc.drop_null(coded.indices)).astype(np.int64)]
    places = _places(coded.dictionary.take(pa.array(order)))
    ends = places[:1], places[-1:]
    nothing = np.zeros(0 if len(places) else 1)
    of_all = np.concatenate([*(nothing, nothing), ends[0], places, ends[1]])
    return ranks, BoundPlaces(of_all, pa.types.is_integer(values.type))


def _places(values: pa.Array) -> npt.NDArray[np.float64]:
    """Sorted values as numbers, roughly. For bytes: the eight after the prefix that all values share."""
    if not pa.types.is_binary(values.type):
        return np.clip(np.asarray(values.cast(pa.float64(), safe=False), np.float64), -1e300, 1e300)
    found = values.to_pylist()
    skipped = common_prefix(found[0], found[-1]) if found else 0
    heads = (value[skipped : skipped + _HEAD].ljust(_HEAD, b"\0") for value in found)
    return np.array([float(int.from_bytes(head, "big")) for head in heads], np.float64)


def _without_nan(values: pa.Array) -> pa.Array:
    """The values with null instead of NaN, which is no bound, and 0.0 instead of -0.0."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), pa.scalar(0.0, values.type))
