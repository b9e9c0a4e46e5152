"""The units in which a file that is not Parquet is decoded.

ORC            its stripes
Arrow          its record batches
CSV, JSON      the whole file
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltacompact.base.model import ContentType, DataFile
from deltacompact.tabular import feather_files
from deltacompact.tabular.text_files import read_text

Slices = Iterator[tuple[int, pa.Table]]
"""Rows of one file, in row order: the number of the first row, and the rows."""


def units_of(source: pa.NativeFile, file: DataFile, columns: list[str], start: int, stop: int) -> Slices:
    """The stripes or batches of a file that is not Parquet; a text file has one unit."""
    match file.content_type:
        case ContentType.ORC:
            from deltacompact.tabular.orc_files import open_orc, stripe

            orc, first = open_orc(source), 0
            read = columns or orc.schema.names[:1]  # a stripe without columns would have no rows
            for number in range(orc.nstripes):
                table = stripe(orc, number, read).select(columns)
                yield first, table
                first += table.num_rows
        case ContentType.FEATHER:
            batches, first = feather_files.batches_of(source, columns), 0
            for number, rows in enumerate(batches.rows):
                if first + rows > start and first < stop:
                    yield first, batches.table(number).select(columns)
                first += rows
        case _:
            yield 0, read_text(source, file.path, file.content_type, file.schema, columns)
