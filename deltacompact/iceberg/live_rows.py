"""The live rows of data files, read and not changed.

a.parquet: e1, p1     find     rows 0 and 2 live        read      its rows 0 and 2
b.parquet             -        all live                 read      all

The tasks of the modes find the dead rows, in this process. They hand each other files in a temporary folder, which is
deleted before the first row is read.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.deletes.dead_rows import FileScan
from deltacompact.iceberg.deletes.matching import FileScanTask, each_delete
from deltacompact.iceberg.deletes.readable import check_defaults, check_readable
from deltacompact.iceberg.key_index.indexes import KeyIndexes
from deltacompact.iceberg.marks.finding import Finder, Sizes
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.parquet_files import by_field_id, opened_each
from deltacompact.iceberg.table.row_lineage import with_lineage
from deltacompact.index.live_bitmaps import live_mask, read_masks
from deltacompact.reading.parts import TablePart
from deltacompact.reading.skipping import NOTHING_SKIPPED, Skipping
from deltacompact.storage.objects import ObjectStore

Bits = npt.NDArray[np.uint8]
"""One bit for each row of a file, the least significant first."""

_LINEAGE = with_lineage(pa.schema([]))


@functools.cache
def _idle() -> LocalExecutor:
    """An executor that nobody gives a task. To make one for each file took a tenth of a feed of many files."""
    return LocalExecutor(Settings(executor="local", local_threads=1))


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file with its deletes, and a bit for each row that lives. None: all rows live."""

    task: FileScanTask
    bits: Bits | None = None

    @property
    def rows(self) -> int:
        return self.task.entry.file.rows

    @property
    def is_whole(self) -> bool:
        """Whether all rows live."""
        return self.bits is None or int(np.bitwise_count(self.bits).sum()) == self.rows

    def lives(self) -> npt.NDArray[np.bool_]:
        """For each row, whether it lives."""
        return np.ones(self.rows, bool) if self.bits is None else live_mask(self.bits, self.rows)


@dataclass(frozen=True, slots=True)
class LiveReader:
    """Reads data files of a table. `sizes` divide the work; tests make them small.

    `uses_index`: look deleted keys up in the key index, if the table has one. Whoever verifies the table sets it False.
    """

    store: ObjectStore
    metadata: TableMetadata
    limits: Limits = LIMITS
    sizes: Sizes = field(default_factory=Sizes)
    uses_index: bool = False

    def files(self, tasks: Sequence[FileScanTask]) -> list[LiveFile]:
        """The files, each with its live rows. Raises InputError for a file that cannot be read."""
        deletes = each_delete(task.deletes for task in tasks)
        check_readable(self.metadata, (*(task.entry for task in tasks), *deletes))
        asked = [task for task in tasks if len(task.deletes)]
        bits = dict(zip((task.entry.file.path for task in asked), self._bits(asked), strict=True))
        return [LiveFile(task, bits.get(task.entry.file.path)) for task in tasks]

    def _bits(self, asked: Sequence[FileScanTask]) -> list[Bits]:
        if not asked:
            return []
        executor = LocalExecutor(Settings(executor="local"))
        try:
            with tempfile.TemporaryDirectory(prefix="deltacompact-") as folder:
                finder = self._finder(self._key_columns(asked), f"{Path(folder).as_uri()}/", executor)
                found = finder.find(asked, closed=frozenset(task.entry.file.path for task in asked))
                masks = {path: read_masks(self.store, path) for path in set(found.masks_of.values())}
                return [masks[found.masks_of[file.ordinal]][file.ordinal] for file in found.files]
        finally:
            executor.stop()

    def _key_columns(self, asked: Sequence[FileScanTask]) -> pa.Schema:
        """The columns of equality deletes. Other columns need not be readable to find dead rows."""
        ids = {number for entry in each_delete(task.deletes for task in asked) for number in entry.file.equality_ids}
        return by_field_id(self.metadata.columns[number].field for number in sorted(ids))

    def _finder(self, columns: pa.Schema, folder: str, executor: LocalExecutor | None = None) -> Finder:
        """Finds what these columns need. Raises InputError for one that would be read wrongly."""
        check_defaults(self.metadata, columns)
        tasks = Tasks(self.store, executor or _idle())
        of_table = pa.schema([column for column in columns if column.name not in _LINEAGE.names])
        metadata = replace(self.metadata, schema=of_table)
        indexes = KeyIndexes.read_only(tasks, self.limits, folder) if self.uses_index and folder else None
        return Finder(tasks, metadata, self.limits, self.sizes, folder, indexes)

    def parts(
        self, files: Sequence[LiveFile], columns: pa.Schema, skipping: Skipping = NOTHING_SKIPPED
    ) -> list[TablePart]:
        """The live rows of each file with these columns (which have field ids), not read yet.

        Raises InputError for a column with a default value inside of a struct.
        """
        finder = self._finder(columns, "")
        return [
            TablePart(
                file.task.entry.file.likely_decoded_bytes,
                partial(self._tables, finder.file(file.task), columns, file, skipping),
            )
            for file in files
        ]

    def _tables(self, scan: FileScan, columns: pa.Schema, file: LiveFile, skipping: Skipping) -> Iterator[pa.Table]:
        for _, table in self.numbered(scan, columns, file.bits, skipping):
            yield table

    def scan(self, task: FileScanTask, columns: pa.Schema) -> FileScan:
        """A data file as it is read with these columns."""
        return self._finder(columns, "").file(task)

    def numbered(
        self, scan: FileScan, columns: pa.Schema, bits: Bits | None, skipping: Skipping = NOTHING_SKIPPED
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The rows of a file whose bits are set (None: all), slice by slice, with their numbers in the file.

        Row groups without such a row, and those that are skipped, are not read.
        """
        lives = None if bits is None else live_mask(bits, scan.stored.rows)
        if not scan.stored.rows or (lives is not None and not lives.any()):
            return
        for opened in opened_each(self.store, [scan.wanted(columns)], self.limits.reading):
            wanted = skipping.rows(opened.file, opened.footer, lives)
            if wanted is None:
                for first, table in opened.tables(columns):
                    yield np.arange(first, first + table.num_rows), table
                continue
            yield from opened.wanted(columns, wanted)
