"""Checks that a branch of an Iceberg table can be read, and that its rows lie within the bounds of its manifests.

a.parquet    1,000 rows, day 3 to 9 in its manifest        1,000 rows, day 3 to 9        sound
b.parquet    day 3 to 9, customer "ada" to "zoë"           day 2 to 9                    one line
c.orc        day 3 to 9                                    -                             one line: we cannot read it

The check reads the columns with bounds, in all data files. Deleted rows are checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import counted, one_line
from deltacompact.iceberg.boxes import bounds_of, comparable_rows
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask
from deltacompact.iceberg.deletes.readable import check_readable
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.layout.value_ranges import Range, range_of
from deltacompact.maintenance.stored_ranges import beyond, together
from deltacompact.storage.objects import Fetches, ObjectStore

_READ_AT_ONCE = 8
"""Files of a remote store that are read at a time."""


@dataclass(frozen=True, slots=True, repr=False)
class BranchCheck:
    """The problems of a branch, and its numbers of data files and rows. A branch without problems is sound."""

    table_id: str
    branch: str
    files: int
    rows: int
    problems: tuple[str, ...]

    def __repr__(self) -> str:
        sound = f"sound; {counted(self.files, 'data file')}, {counted(self.rows, 'row')}"
        return f"branch {self.branch} of {self.table_id}: {self.problems[0] if self.problems else sound}"


def check_branch(store: ObjectStore, state: TableState) -> BranchCheck:
    """Compare all rows of a branch with the bounds of their files. One batch of a file is in memory at a time."""
    live = LiveReader(store, state.metadata)
    at_once = _READ_AT_ONCE if isinstance(store, Fetches) else 1
    problems = side_by_side(state.data, lambda entry: list(_problems(live, entry)), at_once)
    of_deletes = [_unreadable(live, entry) for entry in state.deletes]
    rows = sum(entry.file.rows for entry in state.data)
    found = tuple(chain(*problems, *of_deletes))
    return BranchCheck(state.metadata.table_id, state.branch, len(state.data), rows, found)


def _unreadable(live: LiveReader, entry: ManifestEntry) -> list[str]:
    """A line if its manifest says that we cannot read the file."""
    try:
        check_readable(live.metadata, [entry])
    except InputError as error:
        return [f"file: {one_line(error)}"]
    return []


def _problems(live: LiveReader, entry: ManifestEntry) -> Iterator[str]:
    if unreadable := _unreadable(live, entry):
        yield from unreadable
        return
    known = bounds_of(live.metadata, entry.file)
    if not known:
        return
    columns = pa.schema([field for field in live.metadata.schema if field.name in known])
    scan = live.scan(FileScanTask(entry, Deletes()), columns)

    def ranges(table: pa.Table) -> dict[str, Range]:
        return {name: range_of(comparable_rows(live.metadata, name, table[name])) for name in known}

    try:
        found = together(ranges(table) for _, table in live.numbered(scan, columns, None))
    except Exception as error:
        yield f"file: {one_line(error)}"
        return
    yield from beyond(entry.file.path, "its manifest", known, found)
