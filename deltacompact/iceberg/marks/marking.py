"""Marks dead rows of data files: turns them into delete files, group by group.

    to mark     a: rows 0, 5 dead; position deletes p      b: row 3 dead
    version 2   p1.parquet names rows of a                 p2.parquet names rows of b
    version 3   d.puffin: the vector of a, with the rows of p, so p is superseded; the vector of b

Every delete file has exactly the spec and the partition of its data files (rule 21). In version 2 it names one data
file, or several of one partition if the table's `write.delete.granularity` is "partition".
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from deltacompact.base.batching import batched
from deltacompact.base.numbers import Ordinal
from deltacompact.base.settings import Settings
from deltacompact.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN, Deletes, FileScanTask
from deltacompact.iceberg.marks.finding import scan_of
from deltacompact.iceberg.marks.reserved import Paths, new_path
from deltacompact.iceberg.marks.tasks import (
    DeadRowsIn,
    DeleteFile,
    MarkTask,
    ScanToMark,
    WrittenDeletes,
    WrittenRows,
    write_positions,
    write_vectors,
)
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.codec import delete_codec_of
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry, Status
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import Scope, scope_of
from deltacompact.storage.objects import ObjectStore

VECTORS_SINCE = 3
"""From this format version on, deleted rows are named by deletion vectors."""
DATA_FILES_PER_DELETE_FILE = 100
"""The most data files that share a delete file with granularity "partition": readers of one read all their deletes."""
ROWS_PER_TASK = 4 << 20
"""The most rows of data files in one task, which goes through their bitmaps and positions."""


@dataclass(frozen=True, slots=True)
class FileToMark:
    """A data file with its deletes at the time when its dead rows were found, and the dead rows.

    The dead rows may include rows that its deletes by position name already. Its equality deletes do not matter.
    """

    task: FileScanTask
    dead: DeadRowsIn


Group = tuple[FileToMark, ...]
"""Data files whose dead rows go to one delete file."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A delete file, and the data files whose rows it names, with the deletes by position that they had before.

    `new_rows`: how many of its rows no delete by position named before.
    """

    file: ContentFile
    of: tuple[FileScanTask, ...]
    new_rows: int


def with_marks(marks: Iterable[Mark], sequence_number: int | None = None) -> dict[str, FileScanTask]:
    """The marked data files, by path, with the deletes by position that they have once the marks are committed.

    `sequence_number` is that of the marks' snapshot. To read the files, it must be known.
    """
    found = {}
    for mark in marks:
        entry = ManifestEntry(Status.ADDED, None, sequence_number, sequence_number, mark.file)
        for task in mark.of:
            if mark.file.is_deletion_vector:
                deletes = Deletes(task.deletes.equality, vector=entry)
            else:
                deletes = replace(task.deletes, own=(*task.deletes.own, entry))
            found[task.entry.file.path] = FileScanTask(task.entry, deletes)
    return found


@dataclass(frozen=True, slots=True)
class Marker:
    """Writes delete files by tasks. Their names begin with `name`, so that a later session finds them all."""

    tasks: Tasks
    metadata: TableMetadata
    settings: Settings
    name: str
    paths: Paths = new_path

    def marks(self, dead: Sequence[FileToMark]) -> list[Mark]:
        """The delete files for these dead rows. A data file without newly dead rows is in none of them."""
        if self.metadata.format_version >= VECTORS_SINCE:
            return self._vectors(dead)
        return self._position_deletes(dead)

    def _position_deletes(self, dead: Sequence[FileToMark]) -> list[Mark]:
        if self.metadata.properties.get("write.delete.granularity", "file").lower() == "partition":
            groups = _by_partition(dead)
        else:
            groups = [(dead_file,) for dead_file in dead]
        marks: list[Mark] = []
        for group, path, written in self._written(write_positions, list(self._shares(groups)), "-deletes.parquet"):
            named = [
                (dead_file, rows) for dead_file, rows in zip(group, written.rows_of_each, strict=True) if rows.rows
            ]
            if named:
                data = [(dead_file.task.entry.file, rows) for dead_file, rows in named]
                file = position_file(path, written.file_bytes, data)
                marks.append(Mark(file, tuple(dead_file.task for dead_file, _ in named), file.rows))
        return marks

    def _vectors(self, dead: Sequence[FileToMark]) -> list[Mark]:
        groups = [
            (tuple(dead_file for (dead_file,) in share),)
            for share in self._shares([(dead_file,) for dead_file in dead])
        ]
        return [
            Mark(_vector_file(path, written, dead_file, rows), (dead_file.task,), rows.new_rows)
            for group, path, written in self._written(write_vectors, groups, "-deletes.puffin")
            for dead_file, rows in zip(group, written.rows_of_each, strict=True)
            if rows.rows
        ]

    def _shares(self, groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
        """The groups of each task."""
        limits = self.settings.limits
        rows = sum(map(_rows_of, groups))
        share = min(max(limits.task_rows_min, math.ceil(rows / max(1, self.tasks.slots * 2))), ROWS_PER_TASK)
        return map(tuple, batched(groups, _rows_of, share))

    def _written(
        self,
        step: Callable[[ObjectStore, MarkTask], list[WrittenDeletes]],
        shares: Sequence[tuple[Group, ...]],
        suffix: str,
    ) -> Iterator[tuple[Group, str, WrittenDeletes]]:
        """(group, path of its delete file, what was written there) for each group."""
        codec = codec_of_marks(self.metadata, self.settings)
        tasks = [
            MarkTask(
                tuple(
                    DeleteFile(
                        tuple(_on_worker(dead_file) for dead_file in group),
                        self.paths(f"{self.metadata.data_folder}/{self.name}", suffix),
                    )
                    for group in share
                ),
                codec,
                self.settings.limits.reading,
            )
            for share in shares
        ]
        for share, task, of_task in zip(shares, tasks, self.tasks.run(step, tasks), strict=True):
            for group, file, written in zip(share, task.files, of_task, strict=True):
                yield group, file.path, written


def codec_of_marks(metadata: TableMetadata, settings: Settings) -> str:
    """The codec of position deletes. Raises InputError if the table asks for one that we cannot write; vectors need
    none."""
    if metadata.format_version >= VECTORS_SINCE:
        return "none"
    return delete_codec_of(metadata.properties, settings.compression)


def _on_worker(dead_file: FileToMark) -> ScanToMark:
    return ScanToMark(scan_of(Ordinal(0), dead_file.task), dead_file.dead)


def _rows_of(group: Group) -> int:
    return sum(dead_file.task.entry.file.rows for dead_file in group)


def _by_partition(dead: Sequence[FileToMark]) -> list[Group]:
    """Data files that share a delete file, each group in the order of paths."""
    scopes: dict[Scope, list[FileToMark]] = defaultdict(list)
    for dead_file in sorted(dead, key=lambda dead_file: dead_file.task.entry.file.path.encode()):
        scopes[scope_of(dead_file.task.entry)].append(dead_file)
    return [
        tuple(members[start : start + DATA_FILES_PER_DELETE_FILE])
        for members in scopes.values()
        for start in range(0, len(members), DATA_FILES_PER_DELETE_FILE)
    ]


def position_file(path: str, file_bytes: int, named: Sequence[tuple[ContentFile, WrittenRows]]) -> ContentFile:
    """A position-delete file as a manifest lists it. Its bounds of paths are exact, so that readers skip it (rule 21).

    `named`: the data files whose rows it names, in the order of their paths.
    """
    data = [file for file, _ in named]
    rows = sum(of_file.rows for _, of_file in named)
    bounds = [(of_file.first_row, of_file.last_row) for _, of_file in named]
    return ContentFile(
        Content.POSITION_DELETES,
        path,
        "PARQUET",
        data[0].spec_id,
        data[0].partition,
        rows,
        file_bytes,
        value_counts={PATH_COLUMN: rows, POSITION_COLUMN: rows},
        null_value_counts={PATH_COLUMN: 0, POSITION_COLUMN: 0},
        lower_bounds={PATH_COLUMN: data[0].path.encode(), POSITION_COLUMN: _long(min(low for low, _ in bounds))},
        upper_bounds={PATH_COLUMN: data[-1].path.encode(), POSITION_COLUMN: _long(max(high for _, high in bounds))},
        referenced_data_file=data[0].path if len(data) == 1 else None,
    )


def _vector_file(path: str, written: WrittenDeletes, dead_file: FileToMark, rows: WrittenRows) -> ContentFile:
    data = dead_file.task.entry.file
    return ContentFile(
        Content.POSITION_DELETES,
        path,
        "PUFFIN",
        data.spec_id,
        data.partition,
        rows.rows,
        written.file_bytes,
        referenced_data_file=data.path,
        content_offset=rows.offset,
        content_size=rows.size,
    )


def _long(value: int) -> bytes:
    return struct.pack("<q", value)
