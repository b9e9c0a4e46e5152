"""The units in which a file that is not Parquet is decoded.

ORC            its stripes
Arrow          its record batches
CSV, JSON      the whole file
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.tabular import feather_files
from deltacompact.tabular.text_files import read_text

Slices = Iterator[tuple[int, pa.Table]]
"""Rows of one file, in row order: the number of the first row, and the rows."""


def units_of(source: pa.NativeFile, file: DataFile, columns: list[str], start: int, stop: int) -> Slices:
    """The stripes or batches that have rows in the half-open range; a text file has one unit."""
    match file.content_type:
        case ContentType.ORC:
            from deltacompact.tabular.orc_files import open_orc, stripe, stripe_rows

            orc = open_orc(source)
            read = columns or orc.schema.names[:1]  # a stripe without columns would have no rows
            for number, first in _overlapping(stripe_rows(orc), start, stop):
                yield first, stripe(orc, number, read).select(columns)
        case ContentType.FEATHER:
            batches = feather_files.batches_of(source, columns)
            for number, first in _overlapping(batches.rows, start, stop):
                yield first, batches.table(number).select(columns)
        case _:
            yield 0, read_text(source, file.path, file.content_type, file.schema, columns)


def _overlapping(rows: list[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The number and the first row of each unit that has rows in the half-open range."""
    first = 0
    for number, count in enumerate(rows):
        if first + count > start and first < stop:
            yield number, first
        first += count
