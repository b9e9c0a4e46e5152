"""The driver of `convert`: rows that equality deletes delete become deleted by position. No data file is rewritten.

read          the branch of now                                  data files, delete files, sequence numbers
plan          which equality deletes, which data files           pure
delete keys   equality deletes -> digests by hash bucket         one task for some delete files
dead rows     data files -> live bitmaps                         one task for some data files; only key columns are read
marks         newly dead rows -> position deletes or vectors     one task for some data files
commit        one `overwrite` snapshot for some data files       data files that others touched are asked again
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from deltacompact.base.errors import ConflictError
from deltacompact.base.settings import Settings
from deltacompact.base.wording import counted
from deltacompact.catalog.iceberg.commit.committer import Committed, Committer
from deltacompact.catalog.iceberg.convert.options import ConvertOptions
from deltacompact.catalog.iceberg.convert.plan import ConvertPlan, plan_conversion
from deltacompact.catalog.iceberg.convert.proposals import Converted, ConvertOutcome, ProposeConversion
from deltacompact.catalog.iceberg.deletes.finding import Asked, Finder, Sizes
from deltacompact.catalog.iceberg.deletes.matching import Deletes
from deltacompact.catalog.iceberg.key_index.indexes import KeyIndexes, is_enabled
from deltacompact.catalog.iceberg.marks.marking import Marker, ToMark
from deltacompact.catalog.iceberg.marks.tasks import LiveBitmap
from deltacompact.catalog.iceberg.running import Tasks
from deltacompact.catalog.iceberg.table.content_files import Entry
from deltacompact.catalog.iceberg.table.metadata import TableMetadata
from deltacompact.catalog.iceberg.table.parquet_files import by_field_id
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.allocator import session_memory

REDONE_MAX = 3
"""How often data files that others touched are asked again."""


@dataclass(slots=True)
class ConvertResult:
    """What a conversion did.

    equality_deletes_removed    equality-delete files that are gone
    equality_deletes_left       those that stay: they may apply to data files that came meanwhile, or that were given up
    data_files_asked            data files whose keys were asked for, and their rows
    rows_marked                 rows that are newly deleted by position
    delete_files_written        position-delete files, or deletion vectors
    delete_files_superseded     deletes by position whose rows are in a new deletion vector
    redone                      data files that were asked again
    refused                     why some data files were given up
    notes                       what is worth knowing about the key index
    nothing_to_do               why there was nothing to convert
    """

    table_id: str
    branch: str
    snapshots: list[int] = field(default_factory=list)
    equality_deletes_removed: int = 0
    equality_deletes_left: int = 0
    data_files_asked: int = 0
    rows_asked: int = 0
    rows_marked: int = 0
    delete_files_written: int = 0
    delete_files_superseded: int = 0
    redone: int = 0
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nothing_to_do: str | None = None
    executor: str = ""


@dataclass(frozen=True, slots=True)
class Convert:
    """One call of convert: a branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: ConvertOptions
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self.table.store).read(self.table.metadata, self.branch)

    def plan(self) -> ConvertPlan:
        """The plan for the branch. Writes nothing."""
        return plan_conversion(self.state(), self.options)

    def run(self, plan: ConvertPlan | None = None) -> ConvertResult:
        """Convert and commit what the plan says; without one, plan first.

        Data files that others touched are asked again. Raises ConflictError if others touched them again and again, so
        that nothing could be committed.
        """
        store = self.table.store
        committer = Committer(store, StateReader(store), self.branch, uuid.uuid4().hex)
        result = ConvertResult(self.table.metadata.table_id, self.branch)
        table = self.table
        state = committer.reader.read(table.metadata, self.branch)
        plan = plan or plan_conversion(state, self.options)
        result.nothing_to_do = plan.nothing_to_do
        planned = frozenset(one.entry.file.path for one in plan.conversions)
        settled: tuple[Asked, ...] = ()
        redone = 0
        while plan.conversions:
            settled, touched = self._carried_out(_Job(store, committer, table, plan, state.data), settled, result)
            if not touched:
                break
            if redone == REDONE_MAX:
                files = counted(len(touched), "data file")
                result.refused.append(f"{files}: other commits deleted rows by position, again and again")
                break
            redone += 1
            result.redone += len(touched)
            table = table.reloaded()
            state = committer.reader.read(table.metadata, self.branch)
            committer.reader.forget(state.manifests)
            plan = plan_conversion(state, plan.options, planned, frozenset(one.entry.file.path for one in touched))
        if result.refused and not result.snapshots:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

    def _carried_out(
        self, job: _Job, settled: tuple[Asked, ...], result: ConvertResult
    ) -> tuple[tuple[Asked, ...], list[Asked]]:
        """Carry out a plan, commit by commit. Returns the settled data files, and those that others touched."""
        touched: list[Asked] = []
        rows = sum(one.entry.file.rows for one in job.plan.asked)
        executor = executor_for(self.settings, rows, _key_bytes(job.plan))
        result.executor = executor.name
        for asked in _commits(job.plan):
            with session_memory():
                done = self._convert(job, asked, settled, executor, result.notes)
            settled = done.outcome.settled
            touched += done.outcome.touched
            _count(result, done, asked)
        return settled, touched

    def _convert(
        self, job: _Job, asked: Sequence[Asked], settled: tuple[Asked, ...], executor: Executor, notes: list[str]
    ) -> Committed[ConvertOutcome]:
        """Mark the dead rows of some data files. What is not committed is deleted, unless it may have been."""
        tasks = Tasks(job.store, executor)
        folder = f"deltacompact-{job.committer.session}-{uuid.uuid4().hex[:8]}/"
        marker = Marker(tasks, job.table.metadata, self.settings, [])
        with marker.committing(folder):
            limits, metadata = self.settings.limits, job.table.metadata
            indexes = None
            if is_enabled(job.plan.options.key_index, metadata.properties):
                indexes = KeyIndexes.of(tasks, job.data, limits, folder, notes, self.sizes.block_entries)
            finder = Finder(tasks, _of_keys(metadata, job.plan), limits, self.sizes, folder, indexes)
            marks = marker.marks(list(_dead(finder, asked)))
            self.before_commit()
            converted = Converted(tuple(asked), tuple(marks), settled)
            done = job.committer.commit(job.table, ProposeConversion(job.plan, converted))
        marker.discard(done.outcome.marks)
        return done


@dataclass(frozen=True, slots=True)
class _Job:
    """A plan, the table as it was planned, and all data files of the branch."""

    store: ObjectStore
    committer: Committer
    table: IcebergTable
    plan: ConvertPlan
    data: tuple[Entry, ...]


def _dead(finder: Finder, asked: Sequence[Asked]) -> Iterator[ToMark]:
    """The data files in which equality deletes hit rows."""
    by_key = [Asked(one.entry, Deletes(one.deletes.equality)) for one in asked]
    found = finder.find(by_key, closed=frozenset(one.entry.file.path for one in asked))
    for one, of_file in zip(asked, found.files, strict=True):
        if of_file.dead_by_key:
            bitmap = LiveBitmap(found.masks_of[of_file.ordinal], of_file.ordinal)
            yield ToMark(one.entry, one.deletes, bitmap)


def _of_keys(metadata: TableMetadata, plan: ConvertPlan) -> TableMetadata:
    """The table as if it had only the columns by which it deletes: no other column needs to be readable."""
    ids = sorted(plan.key_ids)
    return replace(metadata, schema=by_field_id(metadata.columns[number].field for number in ids))


def _key_bytes(plan: ConvertPlan) -> int:
    """About the stored bytes of the columns that are read."""
    ids = plan.key_ids
    sizes = [(one.entry.file.column_sizes, one.entry.file.file_bytes) for one in plan.asked]
    return sum(sum(of[number] for number in ids) if ids <= of.keys() else whole for of, whole in sizes)


def _commits(plan: ConvertPlan) -> Iterator[tuple[Asked, ...]]:
    """The data files of each commit: all in one, or some in each with partial progress.

    Data files of one partition are neighbours, so its equality deletes can be removed as soon as it is done.
    """
    count = plan.options.max_commits if plan.options.partial_progress else 1
    share = max(1, math.ceil(len(plan.asked) / count))
    for start in range(0, max(1, len(plan.asked)), share):
        yield plan.asked[start : start + share]


def _count(result: ConvertResult, done: Committed[ConvertOutcome], asked: Sequence[Asked]) -> None:
    result.data_files_asked += len(asked)
    result.rows_asked += sum(one.entry.file.rows for one in asked)
    result.equality_deletes_left = done.outcome.left
    if done.snapshot is None:
        return
    result.snapshots.append(done.snapshot.snapshot_id)
    result.equality_deletes_removed += done.outcome.removed
    result.rows_marked += sum(mark.new_rows for mark in done.outcome.marks)
    result.delete_files_written += len(done.outcome.marks)
    result.delete_files_superseded += done.outcome.superseded
