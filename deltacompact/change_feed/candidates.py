"""Rows of one file that may have come, or gone: the file, and a bit for each row.

before    a.parquet: 0 1 2 live      b.parquet: all     c.parquet: all
after     a.parquet: 0   2 live                         c.parquet: all     d.parquet: all

removed   a: row 1                   b: all rows        c is as it was: nobody opens it
added                                                                      d: all rows

They are only candidates, because a copy on write removes a file and adds most of its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.index.live_bitmaps import live_mask
from deltacompact.layout.skipping import KnownColumns
from deltacompact.reading.selection import Selected
from deltacompact.reading.skipping import Skipping

Bits = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_NUMBER = "_deltacompact_row_number"


class RowsOfFile(Protocol):
    """One file as either kind of table has it."""

    @property
    def rows(self) -> int:
        """The rows that are stored."""

    @property
    def row_bytes(self) -> int:
        """About the memory that a row takes, as far as it is known without opening the file."""

    @property
    def path(self) -> str: ...

    def known(self, columns: pa.Schema) -> KnownColumns:
        """What is known of these columns without opening the file."""

    def tables(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        """The rows whose bits are set (None: all) and that are not skipped, with these columns and their numbers in
        the file."""

    def lineage(self, bits: Bits | None) -> Iterator[tuple[Numbers, pa.Table]] | None:
        """The columns that identify a row in all its copies; None: its rows have none."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of a file on one side. `bits`: which of them; None: all."""

    file: RowsOfFile
    is_added: bool
    bits: Bits | None = None

    @property
    def count(self) -> int:
        return self.file.rows if self.bits is None else int(np.bitwise_count(self.bits).sum())

    @property
    def bytes(self) -> int:
        """About the memory that the rows take."""
        return self.count * self.file.row_bytes

    def kept(self, room: HeldBytes) -> Candidates:
        """The same candidates. Their first read keeps the rows in memory, if they fit into the room."""
        return replace(self, file=_RowsInMemory(self.file, room))

    def only(self, numbers: Numbers) -> Candidates:
        """Only the rows with these numbers."""
        chosen = np.zeros(self.file.rows, bool)
        chosen[numbers] = True
        return replace(self, bits=np.packbits(chosen, bitorder="little"))

    def tables(self, selected: Selected) -> Iterator[tuple[Numbers, pa.Table]]:
        """The rows that the selection keeps, with the columns that it reads, and their numbers in the file."""
        for numbers, table in self.file.tables(selected.needed, self.bits, Skipping.of(selected)):
            if selected.expression is None:
                yield numbers, table
                continue
            kept = selected.filtered(table.append_column(_NUMBER, pa.array(numbers)))
            if kept.num_rows:
                yield np.asarray(kept[_NUMBER]), kept.drop_columns([_NUMBER])


@dataclass(slots=True)
class HeldBytes:
    """The memory for rows that are read twice. `left`: the bytes that are free."""

    left: int

    def takes(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(slots=True)
class _RowsInMemory:
    """Rows of a file. The first read keeps them in memory if they fit into the room; if not, it tells how large they
    are.

    The first read must be of all rows that are ever asked for, with all columns.
    """

    file: RowsOfFile
    room: HeldBytes
    _held: list[tuple[Numbers, pa.Table]] | None = None
    _read: tuple[int, int] = (0, 0)
    """Rows that were read, and their bytes."""

    @property
    def rows(self) -> int:
        return self.file.rows

    @property
    def row_bytes(self) -> int:
        rows, size = self._read
        return 1 + size // rows if rows else self.file.row_bytes

    @property
    def path(self) -> str:
        return self.file.path

    def known(self, columns: pa.Schema) -> KnownColumns:
        return self.file.known(columns)

    def tables(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        if self._held is None:
            yield from self._first(columns, bits, skipping)
            return
        wanted = None if bits is None else live_mask(bits, self.rows)
        for numbers, table in self._held:
            table = table.select(columns.names)
            if wanted is not None and not (own := wanted[numbers]).all():
                numbers, table = numbers[own], table.filter(pa.array(own))
            if len(numbers):
                yield numbers, table

    def _first(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        held: list[tuple[Numbers, pa.Table]] | None = [] if self._read == (0, 0) else None
        rows = size = taken = 0
        for numbers, table in self.file.tables(columns, bits, skipping):
            rows, size = rows + table.num_rows, size + table.nbytes
            if held is not None and self.room.takes(size - taken):
                held.append((numbers, table))
                taken = size
            elif held is not None:
                self.room.left += taken
                held = None
            yield numbers, table
        self._held, self._read = held, (rows, size)

    def lineage(self, bits: Bits | None) -> Iterator[tuple[Numbers, pa.Table]] | None:
        return self.file.lineage(bits)


def changed(file: RowsOfFile, before: Bits | None, after: Bits | None) -> Iterator[Candidates]:
    """The candidates of a file that both sides have, by its live rows before and after (None: all)."""
    lived, lives = _mask(before, file.rows), _mask(after, file.rows)
    for is_added, wanted in ((False, lived & ~lives), (True, lives & ~lived)):
        if wanted.any():
            yield Candidates(file, is_added, np.packbits(wanted, bitorder="little"))


def _mask(bits: Bits | None, rows: int) -> npt.NDArray[np.bool_]:
    return np.ones(rows, bool) if bits is None else live_mask(bits, rows)
