"""Compares the rows of data files in tasks, and finds the rows that are dead now and the files that keep them dead.

inputs      a, b, c with their deletes
find        rows that are dead already                     the same tasks as for a rewrite
scatter     live rows -> entries, by hash bucket           key, sort and operation columns are read, nothing else
fold        entries of a bucket -> dead rows               one task for each bucket
gather      dead rows -> live bitmaps                      one task for each group of files

With a key index, new files are entered into the index instead of scattered. A fold then reads its bucket from the
index: all new rows, and those old rows that may have the key of a new row.

Tasks hand each other files in a folder below the table, so no process ever holds all keys. The driver only counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.data_file import DataFile, DeletionVector
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import OperationType
from deltacompact.base.numbers import Ordinal
from deltacompact.base.table_keys import TableKeys
from deltacompact.executors.executor import Executor
from deltacompact.iceberg.deletes.dead_rows import ScannedFile
from deltacompact.iceberg.key_index.document import FileIdentity, IndexUnusableError, KeyIndex
from deltacompact.iceberg.key_index.entering import NumberedRun
from deltacompact.iceberg.key_index.indexes import KeyIndexes
from deltacompact.iceberg.key_index.order import Order
from deltacompact.iceberg.marks.finding import Finder, Sizes
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, has_lineage
from deltacompact.iceberg_modes.upsert.folding import FoldedBucket, FoldTask, GatherTask, fold_bucket, gather
from deltacompact.iceberg_modes.upsert.indexing import IndexedRows, entered_rows, index_terms
from deltacompact.iceberg_modes.upsert.plan import UpsertPlan, UpsertReason, UpsertTask
from deltacompact.iceberg_modes.upsert.scattering import (
    KEY_SPACE,
    KeySpaceSlice,
    Scattered,
    ScatterTask,
    scatter,
)
from deltacompact.index.keys import Encoding, resolve_encoding
from deltacompact.index.sort_widths import measured_file
from deltacompact.planning.sizing import index_sizes, task_counts
from deltacompact.steps.hash_bucket import SourceSlice, slices
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import column_types

GATHERED_ROW_BYTES = 9
"""A gathering task holds one byte for each row, and eight for each dead row of one bucket."""


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """What became of an input's rows that were alive before.

    live          rows that live on
    superseded    rows that are dead now, because their key has a newer row
    deletes       rows that delete their key: dead, too
    guards        whether a row of this file keeps other rows dead
    masks_path    where the file's live bitmap is. None: no row died
    """

    ordinal: Ordinal
    live: int
    superseded: int
    deletes: int
    guards: bool
    masks_path: str | None

    @property
    def dead(self) -> int:
        return self.superseded + self.deletes


class KeyComparison:
    """The tasks of one plan. They hand each other files in `folder`."""

    def __init__(
        self,
        store: ObjectStore,
        metadata: TableMetadata,
        plan: UpsertPlan,
        executor: Executor,
        limits: Limits,
        sizes: Sizes,
        folder: str,
        indexes: KeyIndexes | None = None,
    ) -> None:
        self._metadata = metadata
        self._plan = plan
        self._executor = executor
        self._tasks = Tasks(store, executor)
        self._limits = limits
        self._folder = folder
        self._indexes = indexes
        self._finder = Finder(self._tasks, metadata, limits, sizes, folder, indexes)

    def compared(self) -> list[ComparedFile]:
        """What became of each input, in the order of the plan.

        Raises InputError or SchemaError naming a file that cannot be compared, and CorruptionError if the counts do not
        add up.
        """
        found = None
        if self._indexes is not None:
            found = self._indexes.using(index_terms(self._metadata, self._plan.columns), self._compared)
        return self._compared(None) if found is None else found

    def _compared(self, index: KeyIndex | None) -> list[ComparedFile]:
        known = frozenset(index.data if index else ())
        closed = {task.entry.file.path for task in self._plan.inputs if FileIdentity.of(task.entry) in known}
        asked = self._plan.inputs
        dead = self._finder.find(asked, frozenset(closed))
        files = [_without_dead(file, dead.masks_of[file.ordinal]) for file in dead.files]
        live_rows = sum(file.live_rows for file in dead.files)
        first_rows = np.cumsum([0, *(file.rows for file in files)], dtype=np.int64)
        entries: Scattered | IndexedRows
        if index is None:
            order, entries, buckets = self._scattered_entries(files, live_rows)
        else:
            order, entries, buckets = self._indexed_entries(index, files, first_rows)
        groups = self._groups(first_rows)
        tasks = [
            FoldTask(bucket, entries, order, first_rows, groups, f"{self._folder}dead-{bucket}.arrow")
            for bucket in range(buckets)
        ]
        folded = self._tasks.run(fold_bucket, tasks)
        result = self._summed(folded)
        if index is not None:
            result = self._with_unread(result, [file.live_rows for file in dead.files])
        if sum(file.live + file.dead for file in result) != live_rows:
            lost = f"{self._plan.table_id}: {live_rows} rows were compared, not all of them came out"
            raise CorruptionError(lost) if index is None else IndexUnusableError(lost)
        return self._gathered(result, groups, first_rows, tasks)

    # Key index

    def _indexed_entries(
        self, index: KeyIndex, files: Sequence[DataFile], first_rows: npt.NDArray[np.int64]
    ) -> tuple[Order, IndexedRows, int]:
        """(order, entries, bucket count) of the inputs' live rows, from the index."""
        assert self._indexes is not None
        inputs, known = self._plan.inputs, frozenset(index.data)
        indexed = [FileIdentity.of(task.entry) for task in inputs]
        new = [
            replace(file, deletions=None)
            for identity, file in zip(indexed, files, strict=True)
            if identity not in known
        ]  # dead rows are entered, too, so they are measured
        entering = entered_rows(self._metadata, self._plan.columns, self._measured(new), index)
        sources = [self._finder.file(task) for task in inputs]
        full = self._indexes.covering(index, entering, list(zip(indexed, sources, strict=True)), self._finder.columns)
        ordinals = {identity: ordinal for ordinal, identity in enumerate(indexed)}
        masks: dict[str, list[int]] = defaultdict(list)
        for ordinal, file in enumerate(files):
            if file.deletions is not None and file.deletions.masks_path is not None:
                masks[file.deletions.masks_path].append(ordinal)
        number_of = {key_space: number for number, key_space in enumerate(self._plan.key_spaces)}
        order = entering.order
        buckets = self._indexes.buckets(sum(run.rows for run in full.runs), order)
        entries = IndexedRows(
            tuple(NumberedRun.of(run, ordinals) for run in full.runs),
            order,
            buckets,
            np.array([task.entry.sequence for task in inputs], np.int64),
            np.array([number_of[task.key_space] for task in inputs], np.int64),
            np.array([_is_settled(task) for task in inputs], bool),
            first_rows,
            tuple((path, tuple(of_path)) for path, of_path in masks.items()),
        )
        return order, entries, buckets

    def _with_unread(self, files: Sequence[ComparedFile], live_rows: Sequence[int]) -> list[ComparedFile]:
        """The files. Rows that no fold read count as live: rows of settled inputs whose key no new row has."""
        return [
            replace(file, live=max(file.live, rows - file.dead)) if _is_settled(task) else file
            for task, file, rows in zip(self._plan.inputs, files, live_rows, strict=True)
        ]

    # Order

    def _measured(self, files: Sequence[DataFile]) -> list[DataFile]:
        """The files, each with the length of the longest value of each string sort column: sort keys get that width."""
        by_name = {column.name: column.type for column in self._metadata.schema}
        if not any(
            column_types.has_lengths(column_types.plain_type(by_name[key.name])) for key in self._plan.columns.sort
        ):
            return list(files)
        keys = TableKeys((), self._plan.columns.sort)
        share = max(1, math.ceil(len(files) / (self._tasks.slots * 2)))
        pieces = [files[start : start + share] for start in range(0, len(files), share)]
        return [
            file for done in self._tasks.run_each(measured_files, [(piece, keys) for piece in pieces]) for file in done
        ]

    def _order(self, files: Sequence[DataFile]) -> Order:
        columns = self._plan.columns
        keys = TableKeys(columns.key, columns.sort)
        encoding = resolve_encoding(keys, (), [(OperationType.UPSERT, file) for file in files])
        if len(self._plan.key_spaces) > 1:
            encoding = replace(encoding, key_columns=(KEY_SPACE, *encoding.key_columns))
        has_sequence = bool(columns.sort) or has_lineage(self._metadata)
        return Order(encoding, has_sequence)

    # Tasks

    def _scattered_entries(self, files: Sequence[DataFile], live_rows: int) -> tuple[Order, Scattered, int]:
        """(order, entries, bucket count) of the inputs' live rows, read from the data files."""
        order = self._order(self._measured([file for file in files if file.live_rows]))
        memory = self._executor.capacity.memory_per_task_bytes
        buckets = max(
            index_sizes.hash_bucket_count(live_rows, order.entry_bytes, memory, self._limits),
            index_sizes.compared_buckets(live_rows, order.entry_bytes, memory),
        )
        return order, self._scattered(files, order, buckets, live_rows), buckets

    def _scattered(self, files: Sequence[DataFile], order: Order, buckets: int, rows: int) -> Scattered:
        """Runs the scatter tasks. Their files follow each other in the order of the rows."""
        capacity = self._executor.capacity
        rows_max = task_counts.task_rows(
            rows,
            capacity.slots,
            len(capacity.node_slots),
            buckets,
            order.entry_bytes,
            capacity.memory_per_task_bytes,
            self._limits,
        )
        sources = [
            SourceSlice(file, Ordinal(ordinal), OperationType.UPSERT, (0, file.rows))
            for ordinal, file in enumerate(files)
            if file.live_rows
        ]
        number_of = {key_space: number for number, key_space in enumerate(self._plan.key_spaces)}
        inputs = self._plan.inputs
        columns = self._columns(order.encoding)
        tasks = [
            ScatterTask(
                tuple(
                    KeySpaceSlice(
                        piece,
                        inputs[piece.ordinal].entry.sequence,
                        number_of[inputs[piece.ordinal].key_space],
                    )
                    for piece in pieces
                ),
                order,
                columns,
                self._plan.columns.operation,
                self._plan.columns.deletes,
                buckets,
                f"{self._folder}entries-{number}.arrow",
                self._limits.reading,
            )
            for number, pieces in enumerate(slices(sources, rows_max))
        ]
        self._tasks.run(scatter, tasks)
        return Scattered(tuple(task.path for task in tasks), order.entry_bytes)

    def _columns(self, encoding: Encoding) -> pa.Schema:
        """The columns to read, in the order of the table's schema."""
        names = {*encoding.columns, self._plan.columns.operation}
        columns = [column for column in self._metadata.schema if column.name in names]
        return pa.schema([*columns, LAST_UPDATED] if has_lineage(self._metadata) else columns)

    def _groups(self, first_rows: npt.NDArray[np.int64]) -> tuple[range, ...]:
        """Ranges of ordinals. A gathering task can hold the rows of one range."""
        memory = self._executor.capacity.memory_per_task_bytes * task_counts.POINTERS_SHARE_OF_MEMORY
        rows_max = max(self._limits.task_rows_min, int(memory / GATHERED_ROW_BYTES))
        rows = np.diff(first_rows).tolist()
        batches = batched(range(len(rows)), rows.__getitem__, rows_max)
        return tuple(range(batch[0], batch[-1] + 1) for batch in batches)

    def _summed(self, folded: Sequence[FoldedBucket]) -> list[ComparedFile]:
        live = np.sum([bucket.live for bucket in folded], axis=0)
        superseded = np.sum([bucket.superseded for bucket in folded], axis=0)
        deletes = np.sum([bucket.deletes for bucket in folded], axis=0)
        guards = np.logical_or.reduce([bucket.guards for bucket in folded])
        return [
            ComparedFile(Ordinal(ordinal), int(lives), int(lost), int(deleting), bool(keeps), None)
            for ordinal, (lives, lost, deleting, keeps) in enumerate(
                zip(live, superseded, deletes, guards, strict=True)
            )
        ]

    def _gathered(
        self,
        files: Sequence[ComparedFile],
        groups: Sequence[range],
        first_rows: npt.NDArray[np.int64],
        folds: Sequence[FoldTask],
    ) -> list[ComparedFile]:
        """The files, with the paths of their live bitmaps."""
        tasks = []
        for number, group in enumerate(groups):
            with_dead = tuple(ordinal for ordinal in group if files[ordinal].dead)
            if with_dead:
                bounds = first_rows[group.start : group.stop + 1]
                dead = tuple(task.path for task in folds)
                tasks.append(
                    GatherTask(number, group, with_dead, bounds, dead, f"{self._folder}dead-of-{number}.arrow")
                )
        self._tasks.run(gather, tasks)
        masks = {ordinal: task.masks_path for task in tasks for ordinal in task.with_dead}
        return [replace(file, masks_path=masks.get(file.ordinal)) for file in files]


def measured_files(store: ObjectStore, files: Sequence[DataFile], keys: TableKeys) -> list[DataFile]:
    """Task: the files, each with the length of the longest value of each string sort column."""
    return [measured_file(store, file, keys) for file in files]


def _is_settled(task: UpsertTask) -> bool:
    return task.reason is UpsertReason.MAY_SHARE_KEYS


def _without_dead(found: ScannedFile, masks_path: str) -> DataFile:
    """The file with its dead rows as a deletion vector, so that the engine's readers skip them."""
    dead = found.file.rows - found.live_rows
    if not dead:
        return found.file
    return replace(found.file, deletions=DeletionVector(dead, masks_path, found.ordinal))
