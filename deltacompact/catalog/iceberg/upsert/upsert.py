"""The mode `upsert`: of the rows of one key only the newest lives. The driver.

plan        files to compare with each other, by key space      pure
compare     live rows -> which are superseded                   the engine's own digests, entries and fold
mark        superseded rows -> position deletes or vectors      `marks/`; no data file is written
commit      one row delta                                       key spaces that others touched are compared again

Marked rows are dead for every reader. The mode `rewrite` takes them out of the files.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltacompact.base.errors import ConflictError
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg.commit.committer import Committed, Committer
from deltacompact.catalog.iceberg.deletes.finding import Sizes
from deltacompact.catalog.iceberg.key_index.indexes import KeyIndexes, is_enabled
from deltacompact.catalog.iceberg.marks.marking import Mark, Marker, ToMark
from deltacompact.catalog.iceberg.marks.tasks import LiveBitmap
from deltacompact.catalog.iceberg.running import Tasks
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState
from deltacompact.catalog.iceberg.upsert.comparing import Comparison
from deltacompact.catalog.iceberg.upsert.options import UpsertOptions
from deltacompact.catalog.iceberg.upsert.plan import KeySpace, UpsertPlan, plan_upsert
from deltacompact.catalog.iceberg.upsert.proposals import MarkedSpace, ProposeUpsert, UpsertOutcome
from deltacompact.catalog.iceberg.upsert.validation import ComparedSpace, Problem, compared_spaces
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.allocator import session_memory

REDONE_MAX = 3
"""How often key spaces that others touched are compared again."""


@dataclass(slots=True)
class UpsertResult:
    """What an upsert did. Rows that were compared = keys that live + superseded rows + rows that deleted their key.

    `rows_superseded` includes rows of keys whose newest row is a delete. `refused` has a line for each key space that
    others touched and that is still as it was. `nothing_to_do` says why nothing was marked, `notes` what is
    worth knowing about the key index.
    """

    table_id: str
    branch: str
    compared_by: str
    snapshots: list[int] = field(default_factory=list)
    files: int = 0
    files_marked: int = 0
    rows_compared: int = 0
    keys: int = 0
    rows_superseded: int = 0
    rows_deleting: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0
    redone: int = 0
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nothing_to_do: str | None = None
    executor: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, the table and the branch as they were planned, and up to where everything is settled afterwards."""

    store: ObjectStore
    committer: Committer
    table: IcebergTable
    state: TableState
    plan: UpsertPlan
    through: int


@dataclass(frozen=True, slots=True)
class Upsert:
    """One call of upsert: a branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: UpsertOptions
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self.table.store).read(self.table.metadata, self.branch)

    def plan(self) -> UpsertPlan:
        """The plan for the branch. Writes nothing."""
        return plan_upsert(self.state(), self.options)

    def run(self, plan: UpsertPlan | None = None) -> UpsertResult:
        """Mark the superseded rows that the plan finds, and commit; without one, plan first.

        Key spaces that other writers touched are compared again. Raises ConflictError if they touched every one, again
        and again.
        """
        store = self.table.store
        committer = Committer(store, StateReader(store), self.branch, uuid.uuid4().hex)
        table = self.table
        state = committer.reader.read(table.metadata, self.branch)
        plan = plan or plan_upsert(state, self.options)
        through = plan.sequence_number
        result = UpsertResult(plan.table_id, self.branch, plan.words, nothing_to_do=plan.nothing_to_do)
        redone = 0
        while plan.inputs:
            touched = self._carried_out(Job(store, committer, table, state, plan, through), result)
            if not touched:
                break
            if redone == REDONE_MAX:
                result.refused += [f"{_name(one.space)}: {problem.words}" for one, problem in touched]
                break
            redone += 1
            result.redone += len(touched)
            table = table.reloaded()
            state = committer.reader.read(table.metadata, self.branch)
            committer.reader.forget(state.manifests)
            former, spaces = plan, frozenset(one.space.key_space for one, _ in touched)
            plan = plan_upsert(state, plan.options, only=spaces)
            if plan.reach is not former.reach:  # a new spec: rows of one key may now lie in several partitions
                plan = plan_upsert(state, plan.options)
        if result.refused and not result.snapshots:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        if not result.snapshots and result.nothing_to_do is None:
            result.nothing_to_do = "no two rows have the same key, and none deletes one"
        return result

    def _carried_out(self, job: Job, result: UpsertResult) -> Sequence[tuple[MarkedSpace, Problem]]:
        """Compare and commit. Returns the key spaces that others touched, and what they did."""
        executor = executor_for(self.settings, job.plan.rows, job.plan.bytes)
        result.executor = executor.name
        with session_memory():
            done = self._marked(job, executor, result.notes)
        _count(result, done)
        return done.outcome.refused

    def _marked(self, job: Job, executor: Executor, notes: list[str]) -> Committed[UpsertOutcome]:
        """Write the marks and commit them. What is not committed is deleted, unless it may be."""
        folder = f"deltacompact-{job.committer.session}-{uuid.uuid4().hex[:8]}/"
        metadata = job.state.metadata
        marker = Marker(Tasks(job.store, executor), metadata, self.settings, [])
        limits, indexes = self.settings.limits, None
        if is_enabled(job.plan.options.key_index, metadata.properties):
            tasks = Tasks(job.store, executor)
            indexes = KeyIndexes.of(tasks, job.state.data, limits, folder, notes, self.sizes.block_entries)
        comparison = Comparison(job.store, metadata, job.plan, executor, limits, self.sizes, folder, indexes)
        with marker.committing(folder):
            marked = _marked_spaces(compared_spaces(job.plan, comparison.compared()), marker)
            self.before_commit()
            done = job.committer.commit(job.table, ProposeUpsert(job.plan, marked, job.through))
        marker.discard([mark for one in done.outcome.spaces for mark in one.marks])
        return done


def _marked_spaces(spaces: Sequence[ComparedSpace], marker: Marker) -> list[MarkedSpace]:
    """Each key space with the marks of its dead rows."""
    dead = [
        ToMark(one.source.entry, one.source.deletes, LiveBitmap(one.file.masks_path, one.file.ordinal))
        for space in spaces
        for one in space.inputs
        if one.file.masks_path is not None
    ]
    marks_of: dict[KeySpace, list[Mark]] = defaultdict(list)
    space_of = {one.source.entry.file.path: space.key_space for space in spaces for one in space.inputs}
    for mark in marker.marks(dead):
        marks_of[space_of[mark.of[0].entry.file.path]].append(mark)
    return [MarkedSpace(space, tuple(marks_of[space.key_space])) for space in spaces]


def _count(result: UpsertResult, done: Committed[UpsertOutcome]) -> None:
    """Add what one commit did. A key space that is refused is counted when it is compared again."""
    if done.snapshot is not None:
        result.snapshots.append(done.snapshot.snapshot_id)
    result.delete_files_removed += done.outcome.removed_deletes
    for marked in done.outcome.spaces:
        result.delete_files_added += len(marked.marks)
        for one in marked.space.inputs:
            result.files += 1
            result.files_marked += one.file.dead > 0
            result.rows_compared += one.file.live + one.file.dead
            result.keys += one.file.live
            result.rows_superseded += one.file.superseded
            result.rows_deleting += one.file.deletes


def _name(space: ComparedSpace) -> str:
    return "the table" if space.key_space is None else f"partition {space.key_space[1]}"
