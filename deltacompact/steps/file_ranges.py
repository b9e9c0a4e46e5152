"""Task: the least and the greatest value of some columns in delta files, from their footers, or else from their rows.

delta 80    Parquet    day 1 to 3 in group 0, 2 to 9 in group 1      1 to 9, without reading a row
delta 81    CSV        reads the column day                          4 to 5
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import ContentType, Partition
from deltacompact.layout.value_ranges import ValueRanges, in_type, joined, ranges_of
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas
from deltacompact.tabular.chunk_statistics import type_of_bounds
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups


def file_ranges(
    store: ObjectStore, delta_files: Sequence[DataFile], columns: pa.Schema, partition: Partition, reading: ReadLimits
) -> list[ValueRanges]:
    """The ranges of each file. They may include dead rows."""
    return [
        _of_footer(store, file, columns) or _of_rows(store, file, columns, partition, reading) for file in delta_files
    ]


def _of_footer(store: ObjectStore, file: DataFile, columns: pa.Schema) -> ValueRanges | None:
    """The ranges by the footer; None: it lacks the range of a column."""
    if file.content_type is not ContentType.PARQUET or set(columns.names) - set(file.schema.names):
        return None
    each = [ranges_of_group(group, file.schema, columns) for group in keyed_groups(store, file, columns.names)]
    return joined(each) if each and all(len(ranges) == len(columns) for ranges in each) else None


def ranges_of_group(group: KeyedGroup, stored: pa.Schema, columns: pa.Schema) -> ValueRanges:
    """The ranges of a row group by its footer, in the types of these columns."""
    found = {}
    for name, sides in group.ranges.items():
        with contextlib.suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
            was, now = type_of_bounds(stored.field(name).type), columns.field(name).type
            low, high = (in_type(side, was, now) for side in sides)
            if low is not None and high is not None:
                found[name] = low, high
    return found


def _of_rows(
    store: ObjectStore, file: DataFile, columns: pa.Schema, partition: Partition, reading: ReadLimits
) -> ValueRanges:
    slices = files.read(store, file, columns.names, limits=reading) if file.rows else iter(())
    tables = (schemas.align(rows, columns, partition, file.path) for _, rows in slices)
    return joined(ranges_of(rows, columns.names) for rows in tables)
