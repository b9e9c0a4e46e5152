"""Writes the outputs of file groups: dead rows are found, the live ones materialized, each output described.

group     a.parquet: rows 0, 2 live      c.parquet: rows 1, 3 live
output    y.parquet: a 0, a 2, c 1, c 3                 the order of the group's files

In version 3, y stores the row ids that these rows have by their places in a and c, and when they were last updated.
"""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg.commit.committer import Committer
from deltacompact.catalog.iceberg.deletes.dead_rows import Found
from deltacompact.catalog.iceberg.deletes.finding import Asked, Finder, Sizes
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, RewritePlan, expected_output_files
from deltacompact.catalog.iceberg.rewrite.proposals import Rewritten
from deltacompact.catalog.iceberg.rewrite.sampling import SampleTask, written_share
from deltacompact.catalog.iceberg.running import Tasks
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.content_files import Content, ContentFile
from deltacompact.catalog.iceberg.table.locations import readable
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.row_lineage import with_lineage
from deltacompact.catalog.iceberg.table.table_state import TableState
from deltacompact.executors.executor import Executor
from deltacompact.steps.materialize import LiveRange, Materialized, MaterializeTask, materialize
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, files, parquet_read
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, and the table and the branch as they were planned."""

    store: ObjectStore
    committer: Committer
    table: IcebergTable
    state: TableState
    plan: RewritePlan


class Work:
    """The tasks of some groups, and the files that they leave behind."""

    def __init__(self, job: Job, executor: Executor, settings: Settings, sizes: Sizes) -> None:
        self._store = job.store
        self._table = job.table
        self._metadata = job.state.metadata
        self._plan = job.plan
        self._tasks = Tasks(job.store, executor)
        self._settings = settings
        self._folder = f"deltacompact-{job.committer.session}-{uuid.uuid4().hex[:8]}/"
        self._finder = Finder(self._tasks, self._metadata, self._limits, sizes, self._folder)
        self.outputs: list[str] = []
        self.found: dict[int, list[Found]] = {}

    @property
    def _limits(self) -> Limits:
        return self._settings.limits

    def written(self, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """The outputs of each group."""
        dead = self._finder.find([Asked(source.entry, source.deletes) for group in groups for source in group.inputs])
        files = iter(dead.files)
        by_group = [[_with(next(files), self._columns(group)) for _ in group.inputs] for group in groups]
        tasks: list[tuple[MaterializeTask, str]] = []
        numbers: list[range] = []
        sizes = self._written_bytes(groups, by_group)
        for group, members, size in zip(groups, by_group, sizes, strict=True):
            self.found[group.number] = members
            made = self._outputs(members, self._columns(group), dead.masks_of, size)
            numbers.append(range(len(tasks), len(tasks) + len(made)))
            tasks += made
        done = self._materialized(tasks)
        return [
            Rewritten(group, tuple(self._described(group, *done[number]) for number in of_group))
            for group, of_group in zip(groups, numbers, strict=True)
        ]

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            locations.discard(self._store, path)

    def clear(self) -> None:
        """Delete what tasks handed to each other."""
        self._store.delete([stat.path for stat in self._store.list(self._folder)])

    # Outputs

    def _columns(self, group: FileGroup) -> pa.Schema:
        columns = self._metadata.schema
        return with_lineage(columns) if group.has_lineage else columns

    def _written_bytes(self, groups: Sequence[FileGroup], by_group: Sequence[Sequence[Found]]) -> list[int]:
        """About the bytes that the live rows of each group will have. Groups that may need two files are sampled."""
        sizes = [sum(_live_bytes(member) for member in members) for members in by_group]
        large = [number for number, size in enumerate(sizes) if size > self._plan.options.target_file_bytes // 2]
        options, reading = self._write_options(), self._limits.reading
        tasks = [
            SampleTask(max(by_group[number], key=_live_bytes).file, self._columns(groups[number]), options, reading)
            for number in large
        ]
        for number, share in zip(large, self._tasks.run(written_share, tasks), strict=True):
            sizes[number] = int(sizes[number] * share)
        return sizes

    def _outputs(
        self, members: Sequence[Found], columns: pa.Schema, masks_of: dict[int, str], size: int
    ) -> list[tuple[MaterializeTask, str]]:
        """The outputs of a group: its live rows in the order of its files, divided evenly."""
        rows = sum(member.live_rows for member in members)
        if not rows:
            return []
        per_output = math.ceil(rows / expected_output_files(size, self._plan.options))
        tasks: list[tuple[MaterializeTask, str]] = []
        for first in range(0, rows, per_output):
            stop = min(rows, first + per_output)
            ranges = tuple(_ranges(members, first, stop))
            path = f"{self._metadata.data_folder}/{uuid.uuid4().hex}-deltacompact.parquet"
            task = MaterializeTask(
                ChainFileNumber(len(tasks)),
                stop - first,
                ranges,
                tuple(dict.fromkeys(masks_of[one.ordinal] for one in ranges)),
                columns,
                Partition(),
                self._write_options(),
                self._limits,
            )
            tasks.append((task, path))
        return tasks

    def _write_options(self) -> WriteOptions:
        codec = self._metadata.properties.get("write.parquet.compression-codec", "zstd").lower()
        codec = self._settings.compression or ("none" if codec == "uncompressed" else codec)
        return WriteOptions(ContentType.PARQUET, codec, self._settings.row_group_rows)

    def _materialized(self, tasks: Sequence[tuple[MaterializeTask, str]]) -> list[tuple[str, Materialized]]:
        self.outputs += [path for _, path in tasks]
        done = self._tasks.run_each(
            materialize, [(task, functools.partial(str, readable(path))) for task, path in tasks]
        )
        return [(path, output) for (_, path), output in zip(tasks, done, strict=True)]

    def _described(self, group: FileGroup, path: str, output: Materialized) -> ContentFile:
        """The output as a manifest lists it, with the counts and bounds that its footer gives."""
        file = output.file
        with files.opened(self._store, file) as source:
            footer = parquet_read.described(source).metadata
        plain = ContentFile(Content.DATA, path, "PARQUET", group.spec_id, group.partition, file.rows, file.bytes)
        return self._table.with_metrics(plain, footer)


def _with(member: Found, columns: pa.Schema) -> Found:
    """The same file with other columns."""
    return replace(member, file=field_ids.matched(member.file, columns))


def _live_bytes(member: Found) -> int:
    """The stored bytes of the live rows, if all rows are alike."""
    return member.file.bytes * member.live_rows // max(1, member.file.rows)


def _ranges(members: Sequence[Found], first: int, stop: int) -> Iterator[LiveRange]:
    """The live rows with these ranks, by file."""
    rank = 0
    for member in members:
        low, high = max(first, rank), min(stop, rank + member.live_rows)
        if low < high:
            yield LiveRange(member.file, member.ordinal, low - rank, high - rank)
        rank += member.live_rows
