"""A plan of a compaction session: the files in fold order, the rounds, and the sizes that follow. Pure values.

    base        version 3-a1: files 14, 15 (8 live rows), index of 4 buckets
    deltas      80 upsert: file 0 · 90 delete: files 0, 1
    sources     ordinal 0 = 14, 1 = 15 | 2 = (80, 0), 3 = (90, 0), 4 = (90, 1)         fold order
    rounds      ordinals 2‥4, 4‥5

planner.py makes the plan. A plan divides each round into tasks without reading anything; needs.py says what memory and
space they take. outputs.py plans what happens to the files after the last round, when the live rows are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.data_file import Clustered, DataFile
from deltacompact.base.model import INT64_MAX, OperationType
from deltacompact.base.numbers import ChainFileNumber, DeltaFileNumber, Ordinal
from deltacompact.base.settings import Options
from deltacompact.base.table_keys import TableKeys
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import FileOrdinals, IndexManifest
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.value_ranges import ValueRanges, stored_ranges
from deltacompact.planning.overlapping import LayoutBound, columns_of
from deltacompact.planning.sizing import file_sizes, layout_sizes, task_counts
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular import coarse_times, schemas
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class Capacity:
    """The machine or cluster. It decides how the work is divided, never the result.

    nodes             the slots of each node
    tasks_per_slot    so many tasks may share a slot, because most of them wait for a store behind a network
    is_near           the store is not behind a network
    """

    slots: int
    memory_per_task_bytes: int
    object_store_bytes: int
    nodes: tuple[int, ...] = ()
    tasks_per_slot: int = 1
    is_near: bool = False

    @property
    def node_slots(self) -> tuple[int, ...]:
        return self.nodes or (self.slots,)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a session. Its ordinal is its index in fold order, base files first."""

    ordinal: Ordinal
    file: DataFile
    operation: OperationType
    position: int
    in_base: bool


@dataclass(frozen=True, slots=True)
class Round:
    """Folds the ordinals [first, stop) together. `position` and `file_number` are the high watermark afterwards."""

    number: int
    first: Ordinal
    stop: Ordinal
    position: int
    file_number: DeltaFileNumber


@dataclass(frozen=True)  # without slots, so that it remembers what is asked often
class CompactionPlan:
    """The decisions that a session makes before it begins."""

    input: PartitionSnapshot
    keys: TableKeys
    options: Options
    encoding: Encoding
    schema: pa.Schema
    sources: tuple[SourceFile, ...]
    rounds: tuple[Round, ...]
    hash_bucket_count: int
    changes_only: bool
    base_manifest: IndexManifest | None
    tombstone_retention: int | None
    capacity: Capacity
    micros: bool = False

    @property
    def rehash(self) -> bool:
        return self.base_manifest is not None and self.base_manifest.hash_bucket_count != self.hash_bucket_count

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The columns of compacted files: the keys, and columns whose type a file with rows has shown.

        Another type may still change, and other engines would not read files with the former one.
        """
        keys = {*self.keys.primary, *(key.name for key in self.keys.sort)}
        return pa.schema([field for field in self.schema if field.name in keys or not schemas.is_promised(field)])

    @property
    def new_columns(self) -> tuple[str, ...]:
        """The columns that the compacted rows have, and the base lacks. Empty in a first compaction."""
        known = self.input.base.schema.names if self.input.base else self.schema.names
        return tuple(sorted(set(self.schema.names).difference(known)))

    @property
    def cluster_by(self) -> str:
        """The columns by which the rows are laid out, "day*3,customer"; "": they keep their order."""
        return self.options.cluster_by or ""

    @cached_property
    def cluster_columns(self) -> tuple[ClusterColumn, ...]:
        """Those of `cluster_by` that the rows have."""
        return columns_of(self.cluster_by, self.stored_schema)

    @property
    def clusters(self) -> bool:
        """Whether rows are laid out: the rows have some column to cluster by."""
        return bool(self.cluster_columns)

    def stored_fields(self, columns: Iterable[ClusterColumn]) -> pa.Schema:
        """These columns as compacted files have them."""
        return pa.schema([self.stored_schema.field(column.name) for column in columns])

    @property
    def layout_bound(self) -> LayoutBound:
        """How many rows of overlapping files the session may rewrite. If the base is another table's, all rows are
        new."""
        base = self.input.base if self.input.owned else None
        times, since = self.options.write_amplification_max, self.input.next_file_number
        return LayoutBound(times, base.account if base else None, since)

    def is_outdated(self, source: SourceFile) -> bool:
        """Whether other engines misread the file beside new ones: a column had no value and so no type, and has one
        now; or its times have a coarser unit than `micros` has given them.
        """
        return id(source.file.schema) in self._outdated

    @cached_property
    def _outdated(self) -> frozenset[int]:
        different = {id(source.file.schema): source.file.schema for source in self.sources if source.in_base}
        return frozenset(key for key, schema in different.items() if self._is_outdated(schema))

    def _is_outdated(self, schema: pa.Schema) -> bool:
        coarser = self.micros and coarse_times.are_coarser(schema, self.schema)
        return coarser or schemas.lacks_types(schema, self.schema)

    def as_compacted(self, source: SourceFile, ranges: ValueRanges) -> DataFile:
        """A file that stays, as a compacted file. A delta file gets a number; if rows are laid out, also a run and its
        `ranges`."""
        if source.in_base:
            return source.file
        file = replace(source.file, number=self.number_of(source))
        if not self.clusters:
            return file
        return replace(file, clustered=Clustered("", self.input.next_file_number, stored_ranges(ranges)))

    @property
    def base_rows(self) -> int:
        return self.base_manifest.entries if self.base_manifest else 0

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The stream positions by ordinal. A delete leaves its position in a tombstone."""
        return np.array([source.position for source in self.sources], np.int64)

    @property
    def base_ordinals(self) -> FileOrdinals:
        known = {ChainFileNumber(source.file.number): source.ordinal for source in self.sources if source.in_base}
        return FileOrdinals.of(known, self.input.index.path if self.input.index else "")

    def number_of(self, source: SourceFile) -> ChainFileNumber:
        """The file number of a source: base files keep theirs, delta files get the next numbers in fold order."""
        if source.in_base:
            return ChainFileNumber(source.file.number)
        return ChainFileNumber(self.input.next_file_number + source.ordinal - self._first_delta)

    @property
    def next_file_number(self) -> ChainFileNumber:
        """The first number above all those in the destination's chain, including this session's delta files."""
        return ChainFileNumber(self.input.next_file_number + len(self.sources) - self._first_delta)

    @property
    def _first_delta(self) -> Ordinal:
        return self.rounds[0].first

    @property
    def expired_position(self) -> int | None:
        """Tombstones at or below this position are dropped. None: no tombstone is so old."""
        if self.tombstone_retention is None:
            return None
        expired = self.input.watermark - self.tombstone_retention
        return expired if expired >= -INT64_MAX - 1 else None

    @cached_property
    def round_rows(self) -> int:
        """Rows of the largest round."""
        return max(map(self.rows_of, self.rounds))

    def rows_of(self, round_: Round) -> int:
        """Delta rows of one round."""
        return sum(source.file.rows for source in self.sources[round_.first : round_.stop])

    @cached_property
    def task_rows(self) -> int:
        """Most rows of a hash bucket task."""
        capacity, entry_bytes = self.capacity, self.encoding.entry_bytes
        nodes, memory = len(capacity.node_slots), capacity.memory_per_task_bytes
        buckets, limits = self.hash_bucket_count, self.options.limits
        return task_counts.task_rows(self.round_rows, capacity.slots, nodes, buckets, entry_bytes, memory, limits)

    def bucket_groups(self, round_: Round) -> int:
        """The number of bucket groups in one round. Each group is a task."""
        capacity, rows = self.capacity, self.rows_of(round_)
        tasks = math.ceil(rows / self.task_rows)
        nodes, limits, is_last = len(capacity.node_slots), self.options.limits, round_.number == len(self.rounds)
        returns = nodes if is_last and not self.exchanges_in_files else 1
        groups = task_counts.bucket_groups(self.hash_bucket_count, rows, capacity.slots, nodes, tasks, limits, returns)
        return max(groups, self.pointer_groups) if is_last else groups

    def source_groups(self, rows: int) -> int:
        """The number of groups of source files with so many rows. Each group is a task."""
        capacity, bucket_groups = self.capacity, self.bucket_groups(self.rounds[-1])
        nodes, limits = len(capacity.node_slots), self.options.limits
        memory, in_files = capacity.memory_per_task_bytes, self.exchanges_in_files
        groups = task_counts.source_groups(rows, capacity.slots, nodes, bucket_groups, memory, limits, in_files)
        return (
            max(groups, layout_sizes.moving_groups(rows, memory)) if self.clusters and limits.groups is None else groups
        )

    @property
    def exchanges_in_files(self) -> bool:
        """Whether the pointers and ranks of the last round go through files."""
        capacity, limits = self.capacity, self.options.limits
        nodes = len(capacity.node_slots)
        return task_counts.exchanges_in_files(self.pointed_rows, nodes, capacity.object_store_bytes, limits)

    @property
    def data_bytes(self) -> int:
        """The bytes of all files, without deletes."""
        return sum(source.file.bytes for source in self.sources if source.operation is OperationType.UPSERT)

    @property
    def target_file_bytes(self) -> int:
        """The largest size of a compacted file, roughly. It depends only on the data, so all attempts use the same."""
        return self.options.target_file_bytes or file_sizes.target_file_bytes(self.data_bytes)

    @property
    def write_options(self) -> WriteOptions:
        """How compacted files are written."""
        return WriteOptions(self.options.content_type, self.options.compression, self.options.row_group_rows)

    def laid_out_files(self, rows: int, data_bytes: int) -> int:
        """The number of files into which rows are laid out: none is full, so that leaves of uneven size fit."""
        rows_max, limits = max(1, int(self.options.rows_per_compacted_file * file_sizes.FULL)), self.options.limits
        return file_sizes.output_files(rows, data_bytes, rows_max, self.target_file_bytes, limits)

    def is_small(self, rows: int, data_bytes: float) -> bool:
        """Whether to merge a compacted file with others: it has less than half of the target, in rows and in bytes.

        If the target grows with the table, the smallest target counts: otherwise a growing table would be rewritten
        again and again.
        """
        target = self.options.target_file_bytes or file_sizes.TARGET_FILE_BYTES_MIN
        return 2 * rows < self.options.rows_per_compacted_file and 2 * data_bytes < target

    @cached_property
    def pointed_rows(self) -> int:
        """Most entries that get new pointers after the last round."""
        delta_rows = sum(source.file.rows for source in self.sources if not source.in_base)
        return delta_rows + (0 if self.changes_only else self.base_rows)

    @property
    def pointer_groups(self) -> int:
        """The least number of bucket groups in the last round."""
        memory = self.capacity.memory_per_task_bytes
        return task_counts.pointer_groups(self.pointed_rows, self.hash_bucket_count, memory)


def sources_of(snapshot: PartitionSnapshot) -> tuple[SourceFile, ...]:
    """The files of a snapshot in fold order."""
    sources: list[SourceFile] = []
    for file in snapshot.base.files if snapshot.base else ():
        sources.append(SourceFile(Ordinal(len(sources)), file, OperationType.UPSERT, -INT64_MAX - 1, True))
    for delta in snapshot.deltas:
        for file in delta.files:
            sources.append(SourceFile(Ordinal(len(sources)), file, delta.operation, delta.position, False))
    return tuple(sources)
