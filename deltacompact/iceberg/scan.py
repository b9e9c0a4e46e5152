"""Reading a branch: its live rows, or those of an older snapshot, under today's columns.

main, 2026-11-22 09:10     snapshot 8     a.parquet, b.parquet     a column renamed since is found by its field id
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.boxes import known_of_files
from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.live_rows import LiveFile, LiveReader
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.reading.parts import ReadParts, TablePart, read_in_order
from deltacompact.reading.recorded import ReadRecord
from deltacompact.reading.selection import Selected, named_columns
from deltacompact.reading.skipping import NOTHING_SKIPPED, Skipping
from deltacompact.storage.objects import Fetches
from deltacompact.tabular import schemas

_READS_AT_ONCE = 16
"""How many files of a remote store are read side by side."""


@dataclass(frozen=True, slots=True)
class BranchScan:
    """Which rows and columns to read: of a branch now, or as of a snapshot, a ref or a time.

    `filter` is an expression of pyarrow.compute, or a list of (column, operator, value).
    """

    branch: str = MAIN
    as_of: str | int | datetime | None = None
    columns: Sequence[str] | None = None
    filter: Any = None

    def state(self, table: IcebergTable) -> TableState:
        """The branch or snapshot to read. Raises NotFoundError for an unknown one."""
        metadata = table.metadata
        snapshot = (
            metadata.branch(self.branch) if self.as_of is None else snapshot_as_of(metadata, self.as_of, self.branch)
        )
        return StateReader(table.store).at(metadata, self.branch, snapshot)


def scanned(table: IcebergTable, scan: BranchScan) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema, and the live rows file by file.

    Raises NotFoundError for an unknown branch or snapshot, InputError for an unknown column, at once.
    """
    metadata = table.metadata
    whole = schemas.unmarked(metadata.schema)
    selected = Selected.of(metadata.table_id, whole, named_columns(scan.columns), scan.filter)
    state = scan.state(table)
    columns = pa.schema([column for column in metadata.schema if column.name in selected.needed.names])
    record, skipping = ReadRecord.begun(metadata.table_id, selected), Skipping.of(selected)

    def tables() -> Iterator[pa.Table]:
        live = LiveReader(table.store, table.metadata)
        files = live_files(live, state, skipping)
        parts = live.parts(files, columns, skipping)
        for rows in rows_of(live, record.parts(ReadParts(parts, skipped=len(state.data) - len(files)))):
            plain = pa.Table.from_arrays(rows.columns, schema=selected.needed)
            if (kept := selected.kept(plain)).num_rows:
                yield kept

    return selected.wanted, record.until_the_end(tables())


def live_files(live: LiveReader, state: TableState, skipping: Skipping = NOTHING_SKIPPED) -> list[LiveFile]:
    """The data files of a state that may have wanted rows, with their live rows."""
    index = DeleteIndex(state)
    may = skipping.may_match(known_of_files(live.metadata, state.data, skipping.asked.names))
    return live.files([index.task(entry) for entry, wanted in zip(state.data, may, strict=True) if wanted])


def rows_of(live: LiveReader, parts: Iterable[TablePart]) -> Iterator[pa.Table]:
    """The rows file by file."""
    yield from read_in_order(parts, _READS_AT_ONCE if isinstance(live.store, Fetches) else 1)
