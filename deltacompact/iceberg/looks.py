"""Looks into some data files: the bounds of their row groups, and rows of one of these.

    240 files      32 of them are opened, evenly spread
    each           its footer: 4 row groups, with bounds          one row group: 640 rows, evenly spread

Only the wanted columns are read. Deletes are not applied: where rows lie does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.iceberg.boxes import may_hold_values, ordered_column
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.table.column_metrics import MeasuredColumn, metrics_of
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.parquet_files import OpenFile, opened_each
from deltacompact.layout.row_look import RowLook
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.field_ids import stored_names

LOOKS = 32
SAMPLE_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Look:
    """A data file, its row groups as if each were a file, and some of its rows."""

    entry: ManifestEntry
    groups: tuple[ManifestEntry, ...]
    rows: pa.Table


def looks_into(
    store: ObjectStore, metadata: TableMetadata, data: Sequence[ManifestEntry], columns: Sequence[str]
) -> Iterator[Look]:
    """A look into each file. Raises InputError or NotFoundError naming one that cannot be read."""
    reader = LiveReader(store, metadata)
    schema = pa.schema([metadata.schema.field(name) for name in columns])
    scans = [reader.scan(FileScanTask(entry, Deletes()), schema).wanted(schema) for entry in data]
    step = max(1, sum(entry.file.rows for entry in data) // SAMPLE_ROWS)
    for number, (entry, opened) in enumerate(zip(data, opened_each(store, scans), strict=True)):
        footer = opened.footer
        measured = _measured(metadata, opened, columns)
        groups = tuple(_group(entry, footer, measured, group) for group in range(footer.num_row_groups))
        yield Look(entry, groups, _rows(opened, schema, number, step))


def _measured(metadata: TableMetadata, opened: OpenFile, columns: Sequence[str]) -> dict[str, MeasuredColumn]:
    """The columns that the file has, under its own names. Their bounds are not cut."""
    found = {}
    for name in columns:
        number, column = ordered_column(metadata, name)
        if own := stored_names(opened.file, [name]):
            found[own[0]] = MeasuredColumn(number, column.type)
    return found


def _group(
    entry: ManifestEntry, footer: pq.FileMetaData, measured: dict[str, MeasuredColumn], group: int
) -> ManifestEntry:
    """A row group as if it were a file. Footers do not count NaN, so we say 0: only bounds of values matter here.

    If the file has no values at all, readers do not open it for its groups.
    """
    numbers = [column.field_id for column in measured.values()]
    found = metrics_of(footer, measured, dict.fromkeys(numbers, 0), [group])
    rows = footer.row_group(group).num_rows
    file = replace(
        entry.file,
        rows=rows,
        value_counts=found.value_counts,
        null_value_counts=found.null_value_counts,
        nan_value_counts={number: rows for number in numbers if not may_hold_values(entry.file, number)},
        lower_bounds=found.lower_bounds,
        upper_bounds=found.upper_bounds,
    )
    return replace(entry, file=file)


def _rows(opened: OpenFile, schema: pa.Schema, number: int, step: int) -> pa.Table:
    footer = opened.footer
    if not footer.num_rows:
        return schema.empty_table()
    look = RowLook.at([footer.row_group(group).num_rows for group in range(footer.num_row_groups)], number, step)
    rows = (look.of(first, table) for first, table in opened.tables(schema, look.rows))
    return pa.concat_tables([schema.empty_table(), *rows])
