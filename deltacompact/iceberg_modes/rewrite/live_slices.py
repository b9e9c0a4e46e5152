"""The live rows of parts of some files, as a task reads them.

a.parquet    rows 0 to 2, live 1 0 1      c.parquet    rows 1 to 2, live 1 1
tables       a 0, a 2                     c 1, c 2
loads        a 0, a 2, c 1                c 2                   as many rows at a time as fit the memory
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltacompact.base.batching import divided
from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import ReadLimits
from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.table.parquet_files import tables_each
from deltacompact.index.live_bitmaps import Masks, live_mask, read_each_masks
from deltacompact.index.number_blocks import NumbersSink, numbers_sink
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.loads import loads_of

NUMBERS = "deltacompact.row-number"
"""The column that carries the numbers of rows to an output."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A half-open range of the rows of a file. Its live bitmap has the key `ordinal`.

    `first`: the number of the file's first live row, if its rows get numbers (iceberg/row_map.py). It may be below 0,
    if rows before the range belong to another share.
    """

    file: DataFile
    ordinal: Ordinal
    rows: tuple[int, int]
    first: int | None = None


@dataclass(frozen=True, slots=True)
class LiveSlices:
    """Slices, the paths of their live bitmaps, and the wanted columns."""

    slices: tuple[Slice, ...]
    masks_paths: tuple[str, ...]
    columns: pa.Schema
    reading: ReadLimits

    @property
    def rows(self) -> int:
        """All rows of the slices, dead ones included."""
        return sum(stop - start for start, stop in (slice_.rows for slice_ in self.slices))


def in_slices(whole: Sequence[Slice], rows_max: int) -> Iterator[tuple[Slice, ...]]:
    """Slices, in order, in tasks of at most `rows_max` rows. A larger slice is divided."""
    for share in divided((stop - start for start, stop in (slice_.rows for slice_ in whole)), rows_max):
        yield tuple(_part(whole[place], start, stop) for place, start, stop in share)


def _part(whole: Slice, start: int, stop: int) -> Slice:
    return Slice(whole.file, whole.ordinal, (whole.rows[0] + start, whole.rows[0] + stop), whole.first)


def masks_of(store: ObjectStore, live: LiveSlices) -> Masks:
    """The live bitmaps of the slices' files."""
    masks: Masks = {}
    for of_path in read_each_masks(store, live.masks_paths, live.reading):
        masks |= of_path
    return masks


def live_tables(store: ObjectStore, live: LiveSlices) -> Iterator[pa.Table]:
    """The live rows in their order, a few at a time, with a column `NUMBERS` if they are to have one."""
    masks = masks_of(store, live)
    asked = [(slice_.file, live.columns, slice_.rows) for slice_ in live.slices]
    for slice_, slices in zip(live.slices, tables_each(store, asked, live.reading), strict=True):
        lives = live_mask(masks[slice_.ordinal], slice_.file.rows)
        number = None if slice_.first is None else slice_.first + int(lives[: slice_.rows[0]].sum())
        for first, table in slices:
            wanted = lives[first : first + table.num_rows]
            if wanted.any():
                rows = table if wanted.all() else table.filter(pa.array(wanted))
                yield rows if number is None else _numbered(rows, number)
                number = None if number is None else number + rows.num_rows


def _numbered(rows: pa.Table, first: int) -> pa.Table:
    return rows.append_column(NUMBERS, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))


@dataclass(frozen=True, slots=True)
class WithoutNumbers:
    """Removes the column `NUMBERS` from tables, and writes it to `sink`, if there is one."""

    sink: NumbersSink | None

    def __call__(self, rows: pa.Table) -> pa.Table:
        if self.sink is not None:
            self.sink(rows[NUMBERS].to_numpy())
        return rows.drop_columns([NUMBERS]) if NUMBERS in rows.column_names else rows

    @property
    def crc32(self) -> int | None:
        """The checksum of the numbers, once they are all written; None: they were not."""
        return None if self.sink is None else self.sink.crc32


@contextlib.contextmanager
def numbers_writer(store: ObjectStore, path: str | None) -> Iterator[WithoutNumbers]:
    """Removes the column `NUMBERS` from tables, and writes it to `path`, if there is one."""
    with contextlib.nullcontext() if path is None else numbers_sink(store, path) as sink:
        yield WithoutNumbers(sink)


def loads(store: ObjectStore, live: LiveSlices, load_bytes: int) -> Iterator[pa.Table]:
    """As `live_tables`, in tables of one chunk and about `load_bytes` decoded bytes."""
    return loads_of(live_tables(store, live), load_bytes)
