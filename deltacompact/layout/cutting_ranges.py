"""Cuts a sort order into files and cells, on a sample of rows.

    a column    files of one size: a cut is the value with which the next file begins
    a curve     files of 0.75 to 1.25 of that size: a cut is where neighbours on the curve differ in the highest bit,
                which is the border of a large cell of the grid

A cut never divides equal keys. If one key fills several files, they are one leaf, and its rows are divided evenly. A
key that fills a cell gets a cell of its own, whose rows need no sorting.

    keys      1 2 2 2 2 2 3 4 5 6      cells of 2 rows      1 · 2 alone · 3 4 · 5 6
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.layout.growing import SAMPLE_PER_CELL_MIN, Weights
from deltacompact.layout.order import Numbers, dense_ranks, values_of
from deltacompact.layout.ranges import BITS, ColumnKey, CurveKey, Key, RangeCuts, key_ranks, sorted_by
from deltacompact.layout.sort_order import OrderedColumn, SortItem
from deltacompact.layout.split_tree import CutColumn, Leaf

WINDOW = 0.25
"""A file may be larger or smaller than the others by this share, to end at the border of a cell."""


def keys_of(sample: pa.Table, items: Sequence[SortItem]) -> tuple[Key, ...]:
    """The keys to sort rows by. The ranks of a curve are those of the sample."""
    return tuple(
        ColumnKey(item.name, item.descending, item.nulls_first)
        if isinstance(item, OrderedColumn)
        else CurveKey(item.curve, tuple(_grid(sample[name], name) for name in item.names))
        for item in items
    )


def _grid(column: pa.ChunkedArray, name: str) -> CutColumn:
    """The values with which ranks begin, chosen so that a rank is the share of rows below it.

    After the nulls, and after a value of many rows, several ranks begin with the next value. Otherwise all later values
    would be in one corner of the grid, and a curve would hardly separate them.
    """
    present = column.combine_chunks().drop_null()
    ranks, first = dense_ranks(values_of(present).of)
    ends = np.cumsum([column.null_count, *np.bincount(ranks, minlength=len(first))])[:-1]
    chosen = np.searchsorted(ends, np.arange(1, 1 << BITS) * len(column) / (1 << BITS))
    return CutColumn(name, present.take(pa.array(first[chosen[chosen < len(first)]])))


def cut_ranges(sample: pa.Table, keys: Sequence[Key], sizes: Weights, files: int, cells_per_file: int = 1) -> RangeCuts:
    """The ranges that divide rows like the sample's into `files` files. `sizes`: the bytes that each row stands for."""
    order = sorted_by(keys, sample)
    ranks = np.array([key_ranks(key, sample)[order] for key in keys])
    borders = np.flatnonzero((ranks[:, 1:] != ranks[:, :-1]).any(axis=0)) + 1
    ends = np.cumsum(sizes[order])[borders - 1]
    total = float(sizes.sum())
    heights = _heights(keys, sample, order, borders)
    leaf_cuts = _leaf_cuts(ends, heights, total, files)
    alone = _alone(ends, borders, sample.num_rows, total, files * cells_per_file)
    begins = [_cut_before(place + 1, alone) for place, _ in leaf_cuts]
    chosen = set(begins[1:]) | {(key, behind) for key in alone for behind in (False, True)}
    for (first, of_leaf), stop in zip(leaf_cuts, [*(place for place, _ in leaf_cuts[1:]), len(borders)], strict=True):
        inside = _inside(ends, first, stop, total, min(of_leaf * cells_per_file, (stop - first) // SAMPLE_PER_CELL_MIN))
        chosen |= {_cut_before(place + 1, alone) for place in inside}
    cuts = sorted(chosen)
    starts = [0, *(1 + cuts.index(begin) for begin in begins[1:]), 1 + len(cuts)]
    leaves = tuple(
        Leaf(stop - start, of_leaf) for (_, of_leaf), (start, stop) in zip(leaf_cuts, pairwise(starts), strict=True)
    )
    firsts = np.concatenate([[0], borders])
    values = tuple(_taken(key, sample, order[firsts[[number for number, _ in cuts]]]) for key in keys)
    return RangeCuts(tuple(keys), values, leaves, tuple(behind for _, behind in cuts) if alone else ())


_Cut = tuple[int, bool]
"""(number of a distinct key of the sample, False): a range begins with this key. True: it begins after this key."""


def _alone(ends: npt.NDArray[np.float64], borders: Numbers, rows: int, total: float, cells: int) -> set[int]:
    """The numbers of the keys that fill a cell each, if the sample has enough of their rows to tell."""
    of_key = np.diff(np.concatenate([[0.0], ends, [total]]))
    rows_of_key = np.diff(np.concatenate([[0], borders, [rows]]))
    fills = (of_key >= total / cells) & (rows_of_key >= SAMPLE_PER_CELL_MIN)
    return set(np.flatnonzero(fills).tolist()) if cells > 1 else set()


def _cut_before(key: int, alone: Collection[int]) -> _Cut:
    """The cut in front of a key: at the key, or after the key before it, if that has a cell of its own."""
    return (key - 1, True) if key - 1 in alone and key not in alone else (key, False)


def _taken(key: Key, sample: pa.Table, rows: Numbers) -> pa.Array:
    return key.of(sample.take(pa.array(rows))).combine_chunks()


def _heights(keys: Sequence[Key], sample: pa.Table, order: Numbers, borders: Numbers) -> npt.NDArray[np.float64]:
    """For each border, the highest bit in which the neighbours on a curve differ. Without a curve: 0."""
    if len(keys) > 1 or not isinstance(keys[0], CurveKey) or not len(borders):
        return np.zeros(len(borders))
    numbers = np.asarray(keys[0].of(sample)).astype(np.uint64)[order]
    differ = numbers[borders] ^ numbers[borders - 1]
    return np.frexp(differ.astype(np.float64))[1].astype(np.float64)


def _leaf_cuts(
    ends: npt.NDArray[np.float64], heights: npt.NDArray[np.float64], total: float, files: int
) -> list[tuple[int, int]]:
    """For each leaf, the border with which it begins (-1: the first row), and its number of files."""
    found, begun = [(-1, 0)], 0.0
    for left in range(files, 1, -1):
        found[-1] = found[-1][0], found[-1][1] + 1
        size = (total - begun) / left
        near = np.flatnonzero((ends >= begun + (1 - WINDOW) * size) & (ends <= begun + (1 + WINDOW) * size))
        if len(near):
            best = near[heights[near] == heights[near].max()]
            place = int(best[np.argmin(np.abs(ends[best] - begun - size))])
            found.append((place, 0))
            begun = float(ends[place])
        else:  # one key fills this file and the next
            begun += size
    found[-1] = found[-1][0], found[-1][1] + 1
    return found


def _inside(ends: npt.NDArray[np.float64], first: int, stop: int, total: float, cells: int) -> list[int]:
    """The borders that divide a leaf into `cells` cells."""
    low = ends[first] if first >= 0 else 0.0
    high = ends[stop] if stop < len(ends) else total
    wanted = low + np.arange(1, cells) * (high - low) / max(1, cells)
    chosen = np.unique(np.searchsorted(ends, wanted)).tolist()
    return [place for place in chosen if first < place < stop]
