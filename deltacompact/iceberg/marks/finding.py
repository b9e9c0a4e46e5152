"""Finds the dead rows of data files: equality deletes become digests, which are searched for each file's keys.

asked         a.parquet: e1, e2, p1       b.parquet: e2
delete keys   e1, e2 -> digests by hash bucket          one task for some delete files
dead rows     a, b -> live bitmaps                      one task for some data files
found         a: 3 rows live, 1 dead by key             its bitmap lies in live-0.arrow

With a key index, digests are looked up there, and `a` and `b` stay closed if nobody needs more of them.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.data_file import Fill
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.numbers import Ordinal
from deltacompact.base.settings import Settings
from deltacompact.iceberg.deletes.dead_rows import (
    ROWS_AT_ONCE,
    DeadRowsTask,
    FileScan,
    KeySet,
    PuffinVector,
    ScannedFile,
    find_dead_rows,
    in_pieces,
)
from deltacompact.iceberg.deletes.delete_keys import DeleteKeysTask, write_delete_keys
from deltacompact.iceberg.deletes.matching import FileScanTask, OncePerTuple, distinct
from deltacompact.iceberg.key_index.document import FileIdentity, KeyIndex
from deltacompact.iceberg.key_index.entering import NumberedRun
from deltacompact.iceberg.key_index.indexes import BLOCK_ENTRIES, KeyIndexes
from deltacompact.iceberg.key_index.lookup import AskedFiles, DeletedBy, LookupTask, look_up
from deltacompact.iceberg.key_index.terms import terms_of
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.name_mapping import Names, name_mapping
from deltacompact.iceberg.table.parquet_files import StoredFile, by_field_id
from deltacompact.iceberg.table.partition_values import constant_of
from deltacompact.iceberg.table.row_lineage import has_lineage, lineage_of, with_lineage
from deltacompact.iceberg.table.table_state import Scope, scope_of
from deltacompact.planning.sizing.task_memory import TASK_BASE_BYTES

KEYS_PER_BUCKET, KEY_BYTES = 2_000_000, 100
"""Deleted keys of a hash bucket, and bytes of each in memory. A searching task holds one bucket at a time."""
DELETE_FILES_PER_TASK = 200
DELETE_ROWS_PER_TASK = 5_000_000
RUN_BYTES = 128 << 20
"""Decoded bytes of rows that are sorted by partition at a time: a task holds them twice."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the work is divided. Tests make it small, so that ten rows take the path of ten million.

    `held_bytes`: the most that tasks hand each other in memory (None: a share of the executor's object store).
    """

    keys_per_bucket: int = KEYS_PER_BUCKET
    delete_files_per_task: int = DELETE_FILES_PER_TASK
    delete_rows_per_task: int = DELETE_ROWS_PER_TASK
    rows_at_once: int = ROWS_AT_ONCE
    block_entries: int = BLOCK_ENTRIES
    run_bytes: int = RUN_BYTES
    held_bytes: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Sizes:
        """The usual sizes, or smaller ones if the process's memory is bounded."""
        if settings.memory_bytes is None:
            return cls()
        free = (settings.memory_per_task_bytes or settings.memory_bytes) - TASK_BASE_BYTES
        return cls(
            keys_per_bucket=min(KEYS_PER_BUCKET, free // 2 // KEY_BYTES),
            delete_rows_per_task=min(DELETE_ROWS_PER_TASK, free // 2 // KEY_BYTES),
            rows_at_once=min(ROWS_AT_ONCE, free // 2 // KEY_BYTES),
            run_bytes=min(RUN_BYTES, free // 4),
        )


@dataclass(frozen=True, slots=True)
class DeadRows:
    """The scanned files, in the order in which they were asked for, and the path of the live bitmap by ordinal."""

    files: tuple[ScannedFile, ...]
    masks_of: dict[int, str]


@dataclass(frozen=True, slots=True)
class _KeySets:
    """The key sets by number; the number of the key set of each equality-delete file, by path; and the numbers of key
    sets by the field ids that they delete by."""

    by_number: dict[int, KeySet]
    of_path: dict[str, int]
    by_ids: dict[tuple[int, ...], list[int]]


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds dead rows by tasks, which hand each other files in `folder`."""

    tasks: Tasks
    metadata: TableMetadata
    limits: Limits
    sizes: Sizes
    folder: str
    indexes: KeyIndexes | None = None

    def find(self, asked: Sequence[FileScanTask], closed: frozenset[str] = frozenset()) -> DeadRows:
        """The dead rows of each file, from every delete that may apply to it.

        `closed`: paths of files whose columns nobody needs. With a key index, they are not opened.
        """
        key_sets = self._key_sets(asked)
        sets_of = OncePerTuple(lambda deletes: tuple(sorted({key_sets.of_path[entry.file.path] for entry in deletes})))
        stored_of = OncePerTuple(lambda deletes: tuple(map(stored_file, deletes)))
        scans = [
            replace(
                self.file(FileScanTask(task.entry, replace(task.deletes, own=(), shared=()))),
                ordinal=Ordinal(number),
                key_sets=sets_of(task.deletes.equality),
                shared=stored_of(task.deletes.shared),
                own=tuple(map(stored_file, task.deletes.own)),
            )
            for number, task in enumerate(asked)
        ]
        starts = np.cumsum([0, *(scan.stored.rows for scan in scans)], dtype=np.int64)
        scans = [replace(scan, first_row=int(start)) for scan, start in zip(scans, starts[:-1], strict=True)]
        pieces = self._pieces(scans)
        looked_up: list[str] = []
        for ids, numbers in key_sets.by_ids.items():
            found = self._looked_up(ids, numbers, asked, scans, key_sets, pieces)
            if found is not None:
                paths, ordinals = found
                looked_up += paths
                others = set(key_sets.by_number) - set(numbers)
                scans = [
                    replace(scan, key_sets=tuple(number for number in scan.key_sets if number in others))
                    if scan.ordinal in ordinals
                    else scan
                    for scan in scans
                ]
        scans = [replace(scan, is_opened=bool(scan.key_sets) or scan.stored.path not in closed) for scan in scans]
        return self._dead_rows(scans, key_sets.by_number, pieces, tuple(looked_up))

    # Delete keys

    def _key_sets(self, asked: Sequence[FileScanTask]) -> _KeySets:
        """The key sets that the files need."""
        shared = distinct(task.deletes.equality for task in asked)
        applying = {entry.file.path: entry for entries in shared for entry in entries}
        members: dict[tuple[Scope | None, tuple[int, ...]], dict[str, ManifestEntry]] = defaultdict(dict)
        for path, entry in applying.items():
            everywhere = self.metadata.specs[entry.file.spec_id].is_unpartitioned
            scope = None if everywhere else scope_of(entry)
            members[scope, tuple(sorted(entry.file.equality_ids))][path] = entry
        found = _KeySets({}, {}, defaultdict(list))
        rows_by: Counter[tuple[int, ...]] = Counter()
        for (_, ids), entries in members.items():
            rows_by[ids] += sum(entry.file.rows for entry in entries.values())
        tasks: list[DeleteKeysTask] = []
        for number, ((_, ids), entries) in enumerate(members.items()):
            found.of_path.update(dict.fromkeys(entries, number))
            found.by_ids[ids].append(number)
            rows = sum(entry.file.rows for entry in entries.values())
            if self.indexes is not None:  # all key sets by the same columns are looked up together
                rows = rows_by[ids]
            bucket_count = max(1, math.ceil(rows / self.sizes.keys_per_bucket))
            for piece in self._delete_pieces([stored_file(entry) for entry in entries.values()]):
                path = f"{self.folder}keys-{len(tasks)}"
                reading, columns = self.limits.reading, self._key_columns(ids)
                tasks.append(DeleteKeysTask(number, columns, piece, bucket_count, path, reading, self._names))
        counts = self.tasks.run(write_delete_keys, tasks)
        for task, of_task in zip(tasks, counts, strict=True):
            before = found.by_number.get(task.key_set, KeySet(task.columns, ((),) * task.bucket_count))
            grown = tuple(
                (*paths, task.bucket_path(bucket)) if of_task[bucket] else paths
                for bucket, paths in enumerate(before.buckets)
            )
            found.by_number[task.key_set] = KeySet(task.columns, grown)
        return found

    def _key_columns(self, ids: Sequence[int]) -> pa.Schema:
        return by_field_id(self.metadata.columns[field_id].field for field_id in ids)

    # Key index

    def _looked_up(
        self,
        ids: tuple[int, ...],
        numbers: Sequence[int],
        asked: Sequence[FileScanTask],
        scans: Sequence[FileScan],
        key_sets: _KeySets,
        pieces: Sequence[tuple[FileScan, ...]],
    ) -> tuple[list[str], frozenset[int]] | None:
        """Look these key sets up in the key index: paths with the numbers of dead rows, and the ordinals of the data
        files that the index covers.

        None: the index cannot be used.
        """
        if self.indexes is None:
            return None
        indexes, wanted = self.indexes, frozenset(numbers)
        members = [
            (FileIdentity.of(task.entry), scan)
            for task, scan in zip(asked, scans, strict=True)
            if wanted & set(scan.key_sets)
        ]
        files = dict(members)
        pairs = [number * len(scans) + s.ordinal for s in files.values() for number in wanted & set(s.key_sets)]
        of_all = AskedFiles(
            np.array([scan.stored.sequence_number for scan in scans], np.int64),
            np.array([*(scan.first_row for scan in scans), sum(s.stored.rows for s in scans)], np.int64),
            np.array(sorted(pairs), np.int64),
            tuple(range(piece[0].ordinal, piece[-1].ordinal + 1) for piece in pieces),
        )
        buckets = len(key_sets.by_number[numbers[0]].buckets)

        def use(index: KeyIndex) -> tuple[list[str], frozenset[int]] | None:
            full = indexes.covering(index, DeletedBy(self._key_columns(ids)), members, self.columns)
            known = frozenset(full.data)
            ordinals = {file: int(scan.ordinal) for file, scan in files.items() if file in known}
            if not ordinals:
                return None
            runs = tuple(NumberedRun.of(run, ordinals) for run in full.runs)
            name = uuid.uuid4().hex
            tasks = [
                LookupTask(
                    tuple((number, key_sets.by_number[number].buckets[bucket]) for number in numbers),
                    runs,
                    of_all,
                    f"{self.folder}looked-up-{name}-{bucket}.arrow",
                )
                for bucket in range(buckets)
            ]
            self.tasks.run(look_up, tasks)
            return [task.path for task in tasks], frozenset(ordinals.values())

        return indexes.using(terms_of(self.metadata, "equality deletes", ids), use)

    # Delete files

    def _delete_pieces(self, stored: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
        sizes = self.sizes
        return map(tuple, batched(stored, _rows_of, sizes.delete_rows_per_task, sizes.delete_files_per_task))

    # Dead rows

    def file(self, asked: FileScanTask) -> FileScan:
        """The file as tasks read it, whatever equality deletes apply to it."""
        scan = scan_of(Ordinal(0), asked)
        return replace(
            scan,
            unfillable=self._unfillable(asked.entry.file),
            fills=self._fills(asked.entry),
            names=self._names,
            constants=tuple(fill for _, fill in self._constants(asked.entry.file) if fill is not None),
        )

    @property
    def _names(self) -> Names | None:
        return name_mapping(self.metadata.properties, self.metadata.table_id)

    def _fills(self, entry: ManifestEntry) -> tuple[Fill, ...]:
        """Row lineage and default values, also of dropped columns: deletes may still use these (rule 14)."""
        columns = [column for column in self.metadata.columns.values() if column.is_top_level]
        defaults = [Fill(column.field, column.default) for column in columns if column.default is not None]
        return (*lineage_of(entry), *defaults)

    def _unfillable(self, file: ContentFile) -> tuple[tuple[int, str], ...]:
        """Columns that the file must have: without them, their values are not null, and we cannot fill them in."""
        today = {int(column.metadata[b"PARQUET:field_id"]) for column in self.metadata.schema}
        columns = [(number, self.metadata.columns[number]) for number in sorted(today)]
        defaults = [number for number, column in columns if column.has_default and column.default is None]
        constant = [number for number, fill in self._constants(file) if fill is None and number in today]
        return (
            *((number, "whose default value is of a kind that cannot be filled in") for number in defaults),
            *((number, "whose value only its partition has, in another type") for number in sorted(constant)),
        )

    def _constants(self, file: ContentFile) -> Iterator[tuple[int, Fill | None]]:
        """Columns by which the file is partitioned with transform identity, and their value in all rows (spec, "Column
        Projection"). None: the value has no form in the column's present type."""
        for part, value in zip(self.metadata.specs[file.spec_id].fields, file.partition, strict=True):
            column = self.metadata.columns.get(part.source_id)
            if part.transform == "identity" and column is not None and column.is_top_level:
                constant = constant_of(value, column.field.type)
                yield part.source_id, None if constant is None else Fill(column.field, constant)

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        columns = self.metadata.schema
        return with_lineage(columns) if has_lineage(self.metadata) else columns

    def _pieces(self, scans: Sequence[FileScan]) -> list[tuple[FileScan, ...]]:
        """The files of each task that finds dead rows."""
        rows = sum(scan.stored.rows for scan in scans)
        share = max(self.limits.task_rows_min, math.ceil(rows / max(1, self.tasks.slots * 2)))
        return in_pieces(scans, min(share, 2 * self.sizes.rows_at_once))

    def _dead_rows(
        self,
        scans: Sequence[FileScan],
        key_sets: dict[int, KeySet],
        pieces: Sequence[tuple[FileScan, ...]],
        looked_up: tuple[str, ...],
    ) -> DeadRows:
        tasks: list[DeadRowsTask] = []
        for number, members in enumerate(pieces):
            piece = tuple(scans[scan.ordinal] for scan in members)
            needed = sorted({key_set for scan in piece for key_set in scan.key_sets})
            tasks.append(
                DeadRowsTask(
                    piece,
                    tuple((key_set, key_sets[key_set]) for key_set in needed),
                    self.columns,
                    f"{self.folder}live-{number}.arrow",
                    self.sizes.rows_at_once,
                    self.limits.reading,
                    looked_up,
                    number,
                )
            )
        found: dict[int, ScannedFile] = {}
        masks_of: dict[int, str] = {}
        for task, of_task in zip(tasks, self.tasks.run(find_dead_rows, tasks), strict=True):
            for file in of_task:
                found[file.ordinal] = file
                masks_of[file.ordinal] = task.masks_path
        return DeadRows(tuple(found[scan.ordinal] for scan in scans), masks_of)


def scan_of(ordinal: Ordinal, asked: FileScanTask) -> FileScan:
    """The file as tasks know it, with its position deletes and its vector, without keys."""
    vector = None
    if asked.deletes.vector is not None:
        file = asked.deletes.vector.file
        if file.content_offset is None or file.content_size is None:
            raise CorruptionError(f"{file.path}: its manifest does not say where the deletion vector lies")
        vector = PuffinVector(file.path, file.content_offset, file.content_size)
    shared, own = (tuple(map(stored_file, deletes)) for deletes in (asked.deletes.shared, asked.deletes.own))
    return FileScan(ordinal, stored_file(asked.entry), shared=shared, own=own, vector=vector)


def stored_file(entry: ManifestEntry) -> StoredFile:
    """A content file as tasks read it."""
    return StoredFile(entry.file.path, entry.file.rows, entry.file.file_bytes, entry.sequence)


def _rows_of(file: StoredFile) -> int:
    return file.rows
