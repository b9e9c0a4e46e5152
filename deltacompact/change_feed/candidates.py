"""Rows of one file that may have come, or gone: the file, and a bit for each row.

before    a.parquet: 0 1 2 live      b.parquet: all     c.parquet: all
after     a.parquet: 0   2 live                         c.parquet: all     d.parquet: all

removed   a: row 1                   b: all rows        c is as it was: nobody opens it
added                                                                      d: all rows

They are candidates, because a copy on write removes a file and adds most of its rows again.
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
        """About the memory that one of them takes."""

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

    def held(self, selected: Selected) -> Candidates:
        """The same, read once and held in memory, with the columns that the selection reads."""
        parts = list(self.file.tables(selected.needed, self.bits, Skipping.of(selected)))
        numbers = np.concatenate([np.empty(0, np.int64), *(part for part, _ in parts)])
        rows = pa.concat_tables([selected.needed.empty_table(), *(table for _, table in parts)])
        return replace(self, file=_RowsInMemory(self.file, numbers, rows))

    def only(self, numbers: Numbers) -> Candidates:
        """Those of the rows that have these numbers."""
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


@dataclass(frozen=True, slots=True)
class _RowsInMemory:
    """Rows of a file in memory, and their numbers there."""

    file: RowsOfFile
    numbers: Numbers
    table: pa.Table

    @property
    def rows(self) -> int:
        return self.file.rows

    @property
    def row_bytes(self) -> int:
        return self.file.row_bytes

    @property
    def path(self) -> str:
        return self.file.path

    def known(self, columns: pa.Schema) -> KnownColumns:
        return self.file.known(columns)

    def tables(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        numbers, table = self.numbers, self.table.select(columns.names)
        if bits is not None:
            wanted = live_mask(bits, self.rows)[numbers]
            numbers, table = numbers[wanted], table.filter(pa.array(wanted))
        if len(numbers):
            yield numbers, table

    def lineage(self, bits: Bits | None) -> Iterator[tuple[Numbers, pa.Table]] | None:
        return self.file.lineage(bits)


def changed(file: RowsOfFile, before: Bits | None, after: Bits | None) -> Iterator[Candidates]:
    """Those of a file that both sides have. None: all its rows live."""
    lived, lives = _mask(before, file.rows), _mask(after, file.rows)
    for is_added, wanted in ((False, lived & ~lives), (True, lives & ~lived)):
        if wanted.any():
            yield Candidates(file, is_added, np.packbits(wanted, bitorder="little"))


def _mask(bits: Bits | None, rows: int) -> npt.NDArray[np.bool_]:
    return np.ones(rows, bool) if bits is None else live_mask(bits, rows)
