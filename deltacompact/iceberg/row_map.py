"""Where the live rows of some files went that were written anew: pure functions over live bitmaps.

sources    a    rows 0 1 2 3    live 1 0 1 1        b    rows 0 1    live 1 1
numbers    live rows, source after source           a 0 -> 0    a 2 -> 1    a 3 -> 2    b 0 -> 3    b 1 -> 4
outputs    y has the first 3 rows, z the others     a 3 -> y 2    b 0 -> z 0

So a map costs one bit for each row that was read, and no row of an output has to be looked at. If rows got another
order, each output says which numbers its rows have:

outputs    y has the numbers 4 0 2, z 1 3        a 3 -> y 2    b 0 -> z 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowMap:
    """The live bitmap of each source, least significant bit first, and the rows of each output."""

    live: Sequence[Bits]
    outputs: Sequence[int]

    def translate(self, dead: Sequence[Rows | None]) -> Iterator[tuple[int, Rows]]:
        """The rows of outputs that rows of the sources became: the number of each output, and its rows in order.

        `dead`: positions in each source; None: all of its rows. Rows that lived no more when the outputs were written
        are in none of them.
        """
        found = np.unique(np.concatenate([np.empty(0, np.int64), *_numbers(self.live, dead)]))
        stops = np.cumsum(self.outputs, dtype=np.int64)
        for output, rows in enumerate(np.split(found, np.searchsorted(found, stops[:-1]))):
            if len(rows):
                yield output, rows - (stops[output] - self.outputs[output])


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The live bitmap of each source, and of each output, how to read the numbers that its rows have."""

    live: Sequence[Bits]
    outputs: Sequence[Callable[[], Rows]]

    def translate(self, dead: Sequence[Rows | None]) -> Iterator[tuple[int, Rows]]:
        """As `RowMap.translate`. The numbers of one output are in memory at a time."""
        is_dead = np.zeros(sum(int(np.bitwise_count(bits).sum()) for bits in self.live), bool)
        for numbers in _numbers(self.live, dead):
            is_dead[numbers] = True
        for output, read in enumerate(self.outputs):
            rows = np.flatnonzero(is_dead[read()])
            if len(rows):
                yield output, rows


def _numbers(live: Sequence[Bits], dead: Sequence[Rows | None]) -> Iterator[Rows]:
    """The numbers of rows of each source."""
    first = 0
    for bits, positions in zip(live, dead, strict=True):
        counts = np.cumsum(np.bitwise_count(bits), dtype=np.int64)
        there = int(counts[-1]) if len(counts) else 0
        yield first + (np.arange(there) if positions is None else _ranks(bits, counts, positions))
        first += there


def _ranks(bits: Bits, counts: Rows, positions: Rows) -> Rows:
    """How many rows live before each of these that live themselves. `counts`: up to and with each byte."""
    bytes_, bit = positions >> 3, (positions & 7).astype(np.uint8)
    of_byte = bits[bytes_]
    lives = (of_byte >> bit) & 1 == 1
    below = of_byte & ((np.uint8(1) << bit) - np.uint8(1))
    whole = counts[bytes_] - np.bitwise_count(of_byte)
    ranks: Rows = (whole + np.bitwise_count(below))[lives]
    return ranks
