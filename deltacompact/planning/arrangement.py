"""Arranges the rows that a session lays out by a split tree: gives each row a file and a place there, from the number
of rows of each cell. Pure.

    tree       leaf 0 with cells 0 and 1, leaf 1 with cell 2        rows of the cells    3  1  4
    outputs    cells 0 and 1: 4 rows      cell 2: 4 rows            one output's span: 4
    order      by cell, then by run, then as the rows came
    rank 5     the second row of cell 0 -> output 0, row 1 -> destination 1       of cell 2: 4 + …

A destination is the number of the output times the span, plus the row in the output. The index divides it again, as it
divides the ranks of rows that keep their order. An output has at most the rows of a compacted file. If a leaf has more,
the tree's own splits divide it further; if a cell has more, the order of its rows divides it. A part is a range of
cells that fits memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.layout.split_tree import SplitTree

DESTINATIONS_MAX = 2**32 - 1
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArrangedOutput:
    """An output: the rows [start, stop) of the parts [first_part, stop_part), counted in the order of cells."""

    first_part: int
    stop_part: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def to_json(self) -> list[int]:
        return [self.first_part, self.stop_part, self.start, self.stop]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a session lays out the rows that it writes. Its last round records it.

    by             the columns, "day*3,customer"
    parts          the number of cells of each part
    runs           the objects with the rows, sorted by cell, one block for each part
    blocks         the object that says where the blocks are. "": rows stay in memory, and a session that is resumed
                   routes them again
    codec          of the outputs. None: the default
    fingerprint    of the rows. None: nobody certifies them
    """

    by: str
    parts: tuple[int, ...]
    outputs: tuple[ArrangedOutput, ...]
    runs: tuple[str, ...]
    blocks: str
    codec: str | None = None
    fingerprint: Fingerprint | None = None

    @property
    def span(self) -> int:
        return max((output.rows for output in self.outputs), default=1)

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects that are needed to write the outputs."""
        return (*self.runs, self.blocks) if self.blocks else ()

    def to_json(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "parts": list(self.parts),
            "outputs": [output.to_json() for output in self.outputs],
            **({"runs": list(self.runs), "blocks": self.blocks} if self.blocks else {}),
            "codec": self.codec,
            "fingerprint": None if self.fingerprint is None else str(self.fingerprint),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Arrangement:
        """Raises KeyError, TypeError or ValueError for anything that is not an arrangement."""
        outputs = tuple(ArrangedOutput(*map(int, output)) for output in value["outputs"])
        certified = Fingerprint.certain(value["fingerprint"])
        runs, blocks = (tuple(value["runs"]), value["blocks"]) if "blocks" in value else ((), "")
        return cls(value["by"], tuple(map(int, value["parts"])), outputs, runs, blocks, value["codec"], certified)


def parts_of(tree: SplitTree, rows: int, part_rows: float) -> tuple[int, ...]:
    """The number of cells of each part. A part has about `part_rows` of the `rows`, or is one cell, and lies in one
    leaf."""
    files = sum(leaf.files for leaf in tree.leaves)
    expected = (rows * leaf.files / files / part_rows for leaf in tree.leaves)
    return tuple(
        cells
        for leaf, parts in zip(tree.leaves, expected, strict=True)
        for cells in _divided(leaf.cells, min(leaf.cells, max(1, math.ceil(parts))))
    )


def parts_of_leaves(tree: SplitTree, parts: Sequence[int]) -> tuple[int, ...]:
    """The number of parts of each leaf. Raises ValueError for parts of another tree."""
    ends = list(accumulate(parts))
    stops = [ends.index(end) + 1 for end in accumulate(leaf.cells for leaf in tree.leaves)]
    if stops[-1:] != [len(parts)]:
        raise ValueError("they have other cells than the tree")
    return tuple(stop - start for start, stop in pairwise([0, *stops]))


def outputs_of(tree: SplitTree, rows: Counts, parts: Sequence[int], rows_max: int) -> tuple[ArrangedOutput, ...]:
    """The outputs. `rows`: of each cell. Raises ValueError if destinations do not fit 32 bits."""
    before = np.concatenate([[0], np.cumsum(rows)])
    starts = np.concatenate([[0], np.cumsum(parts)])
    found = []
    for low, high, files in _cells_of_outputs(tree, before, rows_max):
        first = int(np.searchsorted(starts, low, side="right")) - 1
        stop = int(np.searchsorted(starts, high, side="left"))
        begin, end = (int(before[cell] - before[starts[first]]) for cell in (low, high))
        per_file = max(1, math.ceil((end - begin) / max(files, math.ceil((end - begin) / rows_max))))
        found += [ArrangedOutput(first, stop, row, min(end, row + per_file)) for row in range(begin, end, per_file)]
    if len(found) * max((output.rows for output in found), default=0) > DESTINATIONS_MAX:
        raise ValueError(f"{int(before[-1]):,} rows are too many to lay out at once")
    return tuple(found)


def _cells_of_outputs(tree: SplitTree, before: Counts, rows_max: int) -> Iterator[tuple[int, int, int]]:
    """The cells [low, high) of each output, and the number of files that share them."""
    nodes = _nodes(tree)
    ends = list(accumulate(leaf.cells for leaf in tree.leaves))
    for leaf, end in zip(tree.leaves, ends, strict=True):
        low = end - leaf.cells
        if leaf.files > 1:
            yield low, end, leaf.files
        else:
            yield from _cut(nodes, low, end, before, rows_max)


def _cut(
    nodes: Mapping[tuple[int, int], int], low: int, high: int, before: Counts, rows_max: int
) -> Iterator[tuple[int, int, int]]:
    """The cells of a subtree, divided at its splits until no part has too many rows."""
    if before[high] - before[low] <= rows_max or (low, high) not in nodes:
        yield low, high, 1
        return
    middle = nodes[low, high]
    yield from _cut(nodes, low, middle, before, rows_max)
    yield from _cut(nodes, middle, high, before, rows_max)


def _nodes(tree: SplitTree) -> dict[tuple[int, int], int]:
    """For the cells [low, high) of each split, the first cell on its right side."""
    found: dict[tuple[int, int], int] = {}
    cells: list[tuple[int, int]] = [(0, 0)] * len(tree.splits)

    def of(node: int) -> tuple[int, int]:
        return (~node, ~node + 1) if node < 0 else cells[node]

    for number in range(len(tree.splits) - 1, -1, -1):  # children have higher numbers than their parents
        split = tree.splits[number]
        (low, middle), (_, high) = of(split.left), of(split.right)
        cells[number] = low, high
        found[low, high] = middle
    return found


def _divided(cells: int, parts: int) -> Iterator[int]:
    return (cells // parts + (number < cells % parts) for number in range(parts))


def destinations(
    cells: npt.NDArray[np.integer], first_of_cell: Counts, stops: Counts, span: int
) -> npt.NDArray[np.uint32]:
    """The destination of each row of a run. `cells`: the cell of each row.

    first_of_cell    the place of the run's first row of each cell, counted through all outputs
    stops            the place at which each output ends
    """
    small = cells.astype(np.uint16) if len(first_of_cell) <= 1 << 16 else cells  # sorted in one pass
    order = np.argsort(small, kind="stable")
    counts = np.bincount(cells, minlength=len(first_of_cell))
    places = np.arange(len(cells)) + np.repeat(first_of_cell - np.cumsum(counts) + counts, counts)
    output = np.searchsorted(stops, places, side="right")
    starts = np.concatenate([[0], stops[:-1]])
    found = np.empty(len(cells), np.uint32)
    found[order] = output * span + places - starts[output]
    return found


def first_of_cells(of_runs: Sequence[Counts]) -> Iterator[Counts]:
    """For each run, the place of its first row of each cell. Places follow the cells, and in a cell the runs."""
    rows = np.sum(of_runs, axis=0) if of_runs else np.zeros(0, np.int64)
    next_ = np.cumsum(rows) - rows
    for counts in of_runs:
        yield next_.copy()
        next_ = next_ + counts
