"""Finds the dead rows of data files: equality deletes become digests, then each file is asked for its keys.

asked         a.parquet: e1, e2, p1       b.parquet: e2
delete keys   e1, e2 -> digests by hash bucket          one task for some delete files
dead rows     a, b -> live bitmaps                      one task for some data files
found         a: 3 rows live, 1 dead by key             its bitmap lies in live-0.arrow
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import Fill
from deltacompact.base.numbers import Ordinal
from deltacompact.catalog.iceberg.deletes.dead_rows import (
    ROWS_AT_ONCE,
    DeadRowsTask,
    Found,
    KeySet,
    Source,
    Vector,
    find_dead_rows,
    in_pieces,
)
from deltacompact.catalog.iceberg.deletes.delete_keys import DeleteKeysTask, write_delete_keys
from deltacompact.catalog.iceberg.deletes.matching import Deletes
from deltacompact.catalog.iceberg.running import Tasks
from deltacompact.catalog.iceberg.table.content_files import ContentFile, Entry
from deltacompact.catalog.iceberg.table.metadata import TableMetadata
from deltacompact.catalog.iceberg.table.name_mapping import Names, name_mapping
from deltacompact.catalog.iceberg.table.parquet_files import StoredFile, by_field_id
from deltacompact.catalog.iceberg.table.partition_values import constant_of
from deltacompact.catalog.iceberg.table.row_lineage import has_lineage, lineage_of, with_lineage
from deltacompact.catalog.iceberg.table.table_state import Scope, scope_of

KEYS_PER_BUCKET = 2_000_000
"""Deleted keys of a hash bucket: a task that asks holds one bucket at a time, some 100 bytes a key."""
DELETE_FILES_PER_TASK = 200
DELETE_ROWS_PER_TASK = 5_000_000
RUN_BYTES = 128 << 20
"""Decoded bytes of rows that are sorted by partition at a time: a task holds them twice."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the work is divided. Tests make it small, so that ten rows take the path of ten million."""

    keys_per_bucket: int = KEYS_PER_BUCKET
    delete_files_per_task: int = DELETE_FILES_PER_TASK
    delete_rows_per_task: int = DELETE_ROWS_PER_TASK
    rows_at_once: int = ROWS_AT_ONCE
    run_bytes: int = RUN_BYTES


@dataclass(frozen=True, slots=True)
class Asked:
    """A data file, and the deletes that may apply to it."""

    entry: Entry
    deletes: Deletes


@dataclass(frozen=True, slots=True)
class DeadRows:
    """What was found of each file, in the order in which they were asked, and where the bitmap of each ordinal lies."""

    files: tuple[Found, ...]
    masks_of: dict[int, str]


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds dead rows by tasks, which hand each other files in `folder`."""

    tasks: Tasks
    metadata: TableMetadata
    limits: Limits
    sizes: Sizes
    folder: str

    def find(self, asked: Sequence[Asked]) -> DeadRows:
        """The dead rows of each file, from every delete that may apply to it."""
        key_sets, set_of = self._key_sets(asked)
        sources = [self._source(Ordinal(number), one, set_of) for number, one in enumerate(asked)]
        return self._dead_rows(sources, key_sets)

    # Delete keys

    def _key_sets(self, asked: Sequence[Asked]) -> tuple[dict[int, KeySet], dict[str, int]]:
        """The key sets that the files need by number, and the key set of each equality-delete file by path."""
        applying = {entry.file.path: entry for one in asked for entry in one.deletes.equality}
        members: dict[tuple[Scope | None, tuple[int, ...]], dict[str, Entry]] = defaultdict(dict)
        for path, entry in applying.items():
            everywhere = self.metadata.specs[entry.file.spec_id].is_unpartitioned
            scope = None if everywhere else scope_of(entry)
            members[scope, tuple(sorted(entry.file.equality_ids))][path] = entry
        set_of: dict[str, int] = {}
        tasks: list[DeleteKeysTask] = []
        for number, ((_, ids), entries) in enumerate(members.items()):
            set_of |= dict.fromkeys(entries, number)
            columns = by_field_id(self.metadata.columns[field_id].field for field_id in ids)
            rows = sum(entry.file.rows for entry in entries.values())
            bucket_count = max(1, math.ceil(rows / self.sizes.keys_per_bucket))
            for piece in self._delete_pieces([stored(entry) for entry in entries.values()]):
                path = f"{self.folder}keys-{len(tasks)}"
                reading = self.limits.reading
                tasks.append(DeleteKeysTask(number, columns, piece, bucket_count, path, reading, self._names))
        counts = self.tasks.run(write_delete_keys, tasks)
        key_sets: dict[int, KeySet] = {}
        for task, of_task in zip(tasks, counts, strict=True):
            before = key_sets.get(task.key_set, KeySet(task.columns, ((),) * task.bucket_count))
            grown = tuple(
                (*paths, task.bucket_path(bucket)) if of_task[bucket] else paths
                for bucket, paths in enumerate(before.buckets)
            )
            key_sets[task.key_set] = KeySet(task.columns, grown)
        return key_sets, set_of

    def _delete_pieces(self, stored: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
        piece: list[StoredFile] = []
        rows = 0
        for file in stored:
            is_full = len(piece) >= self.sizes.delete_files_per_task
            if piece and (is_full or rows + file.rows > self.sizes.delete_rows_per_task):
                yield tuple(piece)
                piece, rows = [], 0
            piece.append(file)
            rows += file.rows
        if piece:
            yield tuple(piece)

    # Dead rows

    def _source(self, ordinal: Ordinal, asked: Asked, set_of: dict[str, int]) -> Source:
        file = asked.entry.file
        key_sets = tuple(sorted({set_of[entry.file.path] for entry in asked.deletes.equality}))
        return replace(
            source_of(ordinal, asked),
            key_sets=key_sets,
            unfillable=self._unfillable(file),
            fills=self._fills(asked.entry),
            constants=tuple(fill for _, fill in self._constants(file) if fill is not None),
        )

    @property
    def _names(self) -> Names | None:
        return name_mapping(self.metadata.properties, self.metadata.table_id)

    def _fills(self, entry: Entry) -> tuple[Fill, ...]:
        """Lineage, and default values: those of dropped columns too, by which rows may have been deleted (rule 14)."""
        columns = [column for column in self.metadata.columns.values() if column.is_top_level]
        defaults = [Fill(column.field, column.default) for column in columns if column.default is not None]
        return (*lineage_of(entry), *defaults)

    def _unfillable(self, file: ContentFile) -> tuple[tuple[int, str], ...]:
        """Columns that are not null where the file lacks them, so that we cannot fill them in."""
        today = {int(column.metadata[b"PARQUET:field_id"]) for column in self.metadata.schema}
        columns = [(number, self.metadata.columns[number]) for number in sorted(today)]
        defaults = [number for number, column in columns if column.has_default and column.default is None]
        constant = [number for number, fill in self._constants(file) if fill is None and number in today]
        return (
            *((number, "whose default value is of a kind that cannot be filled in") for number in defaults),
            *((number, "whose value only its partition has, in another type") for number in sorted(constant)),
        )

    def _constants(self, file: ContentFile) -> Iterator[tuple[int, Fill | None]]:
        """Columns by which the file is partitioned as they are, with their value (spec, "Column Projection": only the
        transform identity says what rows have). None: it cannot be had in the column's type of today."""
        for part, value in zip(self.metadata.specs[file.spec_id].fields, file.partition, strict=True):
            column = self.metadata.columns.get(part.source_id)
            if part.transform == "identity" and column is not None and column.is_top_level:
                constant = constant_of(value, column.field.type)
                yield part.source_id, None if constant is None else Fill(column.field, constant)

    def _dead_rows(self, sources: Sequence[Source], key_sets: dict[int, KeySet]) -> DeadRows:
        rows = sum(source.stored.rows for source in sources)
        columns = self.metadata.schema
        if has_lineage(self.metadata):
            columns = with_lineage(columns)
        share = max(self.limits.task_rows_min, math.ceil(rows / max(1, self.tasks.slots * 2)))
        tasks: list[DeadRowsTask] = []
        for number, piece in enumerate(in_pieces(sources, min(share, 2 * self.sizes.rows_at_once))):
            needed = sorted({key_set for source in piece for key_set in source.key_sets})
            tasks.append(
                DeadRowsTask(
                    piece,
                    tuple((key_set, key_sets[key_set]) for key_set in needed),
                    columns,
                    f"{self.folder}live-{number}.arrow",
                    self.sizes.rows_at_once,
                    self.limits.reading,
                    self._names,
                )
            )
        found: dict[int, Found] = {}
        masks_of: dict[int, str] = {}
        for task, of_task in zip(tasks, self.tasks.run(find_dead_rows, tasks), strict=True):
            for file in of_task:
                found[file.ordinal] = file
                masks_of[file.ordinal] = task.masks_path
        return DeadRows(tuple(found[source.ordinal] for source in sources), masks_of)


def source_of(ordinal: Ordinal, asked: Asked) -> Source:
    """The file as tasks know it, with its position deletes and its vector, without keys."""
    vector = None
    if asked.deletes.vector is not None:
        file = asked.deletes.vector.file
        if file.content_offset is None or file.content_size is None:
            raise CorruptionError(f"{file.path}: its manifest does not say where the deletion vector lies")
        vector = Vector(file.path, file.content_offset, file.content_size)
    positions = tuple(stored(entry) for entry in asked.deletes.positions)
    return Source(ordinal, stored(asked.entry), positions=positions, vector=vector)


def stored(entry: Entry) -> StoredFile:
    """A content file as tasks read it."""
    return StoredFile(entry.file.path, entry.file.rows, entry.file.file_bytes, entry.sequence)
