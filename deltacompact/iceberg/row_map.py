"""Follows live rows through a rewrite: from a row of a source file to its row in an output. Pure, over live bitmaps.

sources    a    rows 0 1 2 3    live 1 0 1 1        b    rows 0 1    live 1 1
numbers    live rows, source after source           a 0 -> 0    a 2 -> 1    a 3 -> 2    b 0 -> 3    b 1 -> 4
outputs    y has the first 3 rows, z the others     a 3 -> y 2    b 0 -> z 0

So a map costs one bit for each row that was read, and no output has to be read. If the rewrite sorted the rows, each
output says which numbers its rows have:

outputs    y has the numbers 4 0 2, z 1 3           a 3 -> y 2    b 0 -> z 1

Rows that go to several partitions are first written as runs, sorted by partition. A run says which numbers its rows
have. A share, the rows of one partition, is made of pieces of runs, and its rows are numbered anew. So there are two
maps, one after the other.

run 0      the numbers 0 2 1, run 1 4 3             a 3 -> run 0, row 1    b 0 -> run 1, row 1
shares     p: run 0 rows 0 to 1, run 1 row 0        a 3 -> p 1             its output y has p's rows in any order
           q: run 0 row 2, run 1 row 1              b 0 -> q 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from deltacompact.base.batching import batched
from deltacompact.base.distinct import distinct_numbers

Bits = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
ReadNumbers = Callable[[], Iterable[npt.NDArray[np.integer]]]
"""Reads the numbers of the rows of an output, or of a run, in their order, a block at a time."""
_BYTES_AT_ONCE = 1 << 20
"""Bytes of live bitmaps that are ranked together. Ranks take eight times as many."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows [start, stop) of a run."""

    run: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RowShare:
    """Rows that became some outputs.

    outputs    the rows of each output
    numbers    for each output, reads the numbers of its rows; empty: the rows kept their order
    pieces     the pieces of runs that the rows come from, in order; empty: there were no runs, these are all live rows
    """

    outputs: Sequence[int]
    numbers: Sequence[ReadNumbers] = ()
    pieces: Sequence[Piece] = ()

    def translate(self, dead: Rows) -> Iterator[tuple[int, Rows]]:
        """(output, its rows): where the rows of the share with the numbers `dead` are now."""
        if self.numbers:
            yield from _with_numbers(self.numbers, dead, sum(self.outputs))
            return
        stops = np.cumsum(self.outputs, dtype=np.int64)
        for output, rows in enumerate(np.split(dead, np.searchsorted(dead, stops[:-1]))):
            if len(rows):
                yield output, rows - (stops[output] - self.outputs[output])


@dataclass(frozen=True, slots=True)
class RowMap:
    """The live bitmap of each source (least significant bit first), and the shares that its rows went to, in order."""

    live: Sequence[Bits]
    shares: Sequence[RowShare]
    runs: Sequence[ReadNumbers] = ()

    def translate(self, dead: Sequence[Rows | None]) -> Iterator[tuple[int, Rows]]:
        """(output, its rows in order): where the dead rows of the sources are now.

        `dead`: positions in each source; None: all of its rows. Rows that were dead before the rewrite are in no
        output. In memory are one block of numbers, and a byte for each row that lived.
        """
        first = 0
        numbers = distinct_numbers(np.concatenate([np.empty(0, np.int64), *_numbers(self.live, dead)]))
        for share, of_share in zip(self.shares, self._by_share(numbers), strict=True):
            for output, rows in share.translate(of_share):
                yield first + output, rows
            first += len(share.outputs)

    def _by_share(self, numbers: Rows) -> list[Rows]:
        if not self.runs:
            return [numbers] * len(self.shares)  # there is at most one share
        of_runs = dict(_with_numbers(self.runs, numbers, sum(map(_count, self.live))))
        return [_of_pieces(share.pieces, of_runs) for share in self.shares]


def _with_numbers(files: Sequence[ReadNumbers], numbers: Rows, rows: int) -> Iterator[tuple[int, Rows]]:
    """The rows of each file that have one of these numbers. All numbers are below `rows`."""
    if not len(numbers):
        return
    is_wanted = np.zeros(rows, bool)
    is_wanted[numbers] = True
    for file, read in enumerate(files):
        found, first = [], 0
        for block in read():
            if len(here := np.flatnonzero(is_wanted[block])):
                found.append(first + here)
            first += len(block)
        if found:
            yield file, np.concatenate(found)


def _of_pieces(pieces: Sequence[Piece], of_runs: dict[int, Rows]) -> Rows:
    """The numbers in a share of rows of runs."""
    found, first = [np.empty(0, np.int64)], 0
    for piece in pieces:
        if (rows := of_runs.get(piece.run)) is not None:
            low, high = np.searchsorted(rows, (piece.start, piece.stop))
            found.append(rows[low:high] - piece.start + first)
        first += piece.stop - piece.start
    return np.concatenate(found)


def _count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum())


def _numbers(live: Sequence[Bits], dead: Sequence[Rows | None]) -> Iterator[Rows]:
    """The numbers of the dead rows that lived before. Sources are taken in batches, because there may be thousands of
    small ones."""
    first = 0
    for batch in batched(list(zip(live, dead, strict=True)), lambda entry: len(entry[0]), _BYTES_AT_ONCE):
        bits = np.concatenate([of_source for of_source, _ in batch])
        starts = accumulate((8 * len(of_source) for of_source, _ in batch), initial=0)
        positions = np.concatenate(
            [
                start + (np.arange(8 * len(of_source)) if rows is None else rows)
                for start, (of_source, rows) in zip(starts, batch, strict=False)
            ]
        )
        counts = np.cumsum(np.bitwise_count(bits), dtype=np.int64)
        yield first + _ranks(bits, counts, positions)
        first += int(counts[-1]) if len(counts) else 0


def _ranks(bits: Bits, counts: Rows, positions: Rows) -> Rows:
    """For each position of a live row: how many live rows come before it. Dead positions are left out.

    `counts`: the live rows up to the end of each byte.
    """
    bytes_, bit = positions >> 3, (positions & 7).astype(np.uint8)
    of_byte = bits[bytes_]
    lives = (of_byte >> bit) & 1 == 1
    below = of_byte & ((np.uint8(1) << bit) - np.uint8(1))
    whole = counts[bytes_] - np.bitwise_count(of_byte)
    ranks: Rows = (whole + np.bitwise_count(below))[lives]
    return ranks
