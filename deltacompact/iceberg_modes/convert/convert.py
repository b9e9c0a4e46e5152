"""The mode `convert`: rows that equality deletes delete become deleted by position. No data file is rewritten.

plan          which equality deletes, which data files           pure
delete keys   equality deletes -> digests by hash bucket         one task for some delete files
dead rows     data files -> live bitmaps                         one task for some data files; only key columns are read
marks         newly dead rows -> position deletes or vectors     one task for some data files
commit        one `overwrite` snapshot for some data files       data files that others touched are asked again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltacompact.base.modes import CONVERT
from deltacompact.base.wording import counted
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg.deletes.matching import Deletes
from deltacompact.iceberg.key_index.indexes import KeyIndexes, is_enabled
from deltacompact.iceberg.marks.finding import Asked, Finder
from deltacompact.iceberg.marks.marking import Mark, Marker, ToMark
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.content_files import Entry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.parquet_files import by_field_id
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.convert.options import ConvertOptions
from deltacompact.iceberg_modes.convert.plan import AskedGroup, ConvertPlan, plan_conversion
from deltacompact.iceberg_modes.convert.plan_document import equality_paths, plan_document, plan_from_json
from deltacompact.iceberg_modes.convert.proposals import Converted, ConvertOutcome, ProposeConversion
from deltacompact.iceberg_modes.journal.journal import WrittenGroup, name_of_files
from deltacompact.iceberg_modes.journal.left_behind import Left
from deltacompact.iceberg_modes.journal.recorded_marks import record_of
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.result import ModeResult


@dataclass(slots=True)
class ConvertResult(ModeResult):
    """What a conversion did.

    equality_deletes_removed    equality-delete files that are gone
    equality_deletes_left       those that stay: they may apply to data files that came meanwhile, or that were given up
    data_files_asked            data files whose keys were looked up, and their rows
    rows_marked                 rows that are newly deleted by position
    delete_files_written        position-delete files, or deletion vectors
    delete_files_superseded     deletes by position whose rows are in a new deletion vector
    """

    equality_deletes_removed: int = 0
    equality_deletes_left: int = 0
    data_files_asked: int = 0
    rows_asked: int = 0
    rows_marked: int = 0
    delete_files_written: int = 0
    delete_files_superseded: int = 0

    def count(self, done: Committed[ConvertOutcome]) -> None:
        """Add what a commit brought."""
        self.equality_deletes_left = done.outcome.left
        if done.snapshot is None:
            return
        self.snapshots.append(done.snapshot.snapshot_id)
        self.equality_deletes_removed += done.outcome.removed
        self.rows_marked += sum(mark.new_rows for mark in done.outcome.marks)
        self.delete_files_written += len(done.outcome.marks)
        self.delete_files_superseded += done.outcome.superseded


class Convert(Mode[ConvertOptions, ConvertPlan, "Converting", ConvertResult]):
    """One call of convert."""

    __slots__ = ()

    name = CONVERT

    def _planned(self, state: TableState, left: Left) -> ConvertPlan:
        if self.options.where is None:
            return plan_conversion(state, self.options)
        return plan_conversion(state, self.options, wanted=self.table.may_match(self.options.where))

    def _approved(self, document: str | bytes, state: TableState, left: Left, done: frozenset[str]) -> ConvertPlan:
        converted = (equality_paths(dead.plan.body) for dead in left.dead if dead.plan.mode == CONVERT)
        return plan_from_json(document, state, frozenset[str]().union(*converted))

    def _again(self, state: TableState, work: Converting) -> ConvertPlan:
        touched = frozenset(one.entry.file.path for one in work.touched)
        return plan_conversion(state, work.plan.options, work.deletes, touched)

    def _result(self, plan: ConvertPlan) -> ConvertResult:
        return ConvertResult(self.table.metadata.table_id, self.branch)

    def _work(
        self,
        table: IcebergTable,
        state: TableState,
        plan: ConvertPlan,
        former: Converting | None,
        result: ConvertResult,
    ) -> Converting:
        executor = executor_for(self.settings, plan.rows, plan.bytes)
        result.executor = executor.name
        if former is None:
            return Converting(self, table, state.data, plan, executor, result, plan.delete_paths)
        return Converting(self, table, state.data, plan, executor, result, former.deletes, former.settled)


@dataclass(slots=True)
class Converting:
    """The work of a plan.

    data        all data files of the branch
    deletes     the equality deletes of the first plan of the call
    settled     data files whose dead rows are deleted by position now
    touched     data files that others touched
    """

    call: Convert
    table: IcebergTable
    data: tuple[Entry, ...]
    plan: ConvertPlan
    executor: Executor
    result: ConvertResult
    deletes: frozenset[str]
    settled: tuple[Asked, ...] = ()
    touched: list[Asked] = field(default_factory=list)
    mode = CONVERT

    @property
    def document(self) -> Mapping[str, Any]:
        return plan_document(self.plan)

    @property
    def commits(self) -> Sequence[Sequence[AskedGroup]]:
        return [(group,) for group in self.plan.groups]

    @property
    def failed_commits_max(self) -> int:
        return self.plan.options.max_failed_commits if self.plan.options.partial_progress else 0

    def written(
        self, groups: Sequence[AskedGroup], session: str, folder: str
    ) -> Iterator[Sequence[tuple[AskedGroup, list[Mark]]]]:
        settings, metadata = self.call.settings, self.table.metadata
        tasks = Tasks(self.call.table.store, self.executor)
        indexes = None
        if is_enabled(self.plan.options.key_index, metadata.properties):
            block_entries, notes = self.call.sizes.block_entries, self.result.notes
            indexes = KeyIndexes.of(tasks, self.data, settings.limits, folder, notes, block_entries)
        finder = Finder(tasks, _of_keys(metadata, self.plan), settings.limits, self.call.sizes, folder, indexes)
        marker = Marker(tasks, metadata, settings, name_of_files(session))
        for group in groups:
            yield [(group, marker.marks(list(_dead(finder, group.asked))))]

    def record(self, written: tuple[AskedGroup, list[Mark]]) -> WrittenGroup:
        group, marks = written
        return record_of(group.number, marks)

    def propose(
        self, groups: Sequence[AskedGroup], written: Sequence[tuple[AskedGroup, list[Mark]]]
    ) -> ProposeConversion:
        asked = tuple(one for group in groups for one in group.asked)
        marks = tuple(mark for _, of_group in written for mark in of_group)
        return ProposeConversion(self.plan.delete_paths, Converted(asked, marks, self.settled))

    def count(self, done: Committed[ConvertOutcome], groups: Sequence[AskedGroup]) -> None:
        self.settled = done.outcome.settled
        self.touched += done.outcome.touched
        self.result.count(done)
        self.result.data_files_asked += sum(len(group.asked) for group in groups)
        self.result.rows_asked += sum(group.rows for group in groups)

    @property
    def given_up(self) -> list[str]:
        files = counted(len(self.touched), "data file")
        return [f"{files}: other commits deleted rows by position, again and again"]


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
