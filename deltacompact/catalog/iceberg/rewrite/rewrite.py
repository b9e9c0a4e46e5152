"""The driver of `rewrite`: files of a branch are read with all their deletes, and written anew without them.

read        the branch of now                                   data files, delete files, sequence numbers
plan        groups of files, and why                            pure
delete keys equality deletes -> digests by hash bucket          one task for some delete files
dead rows   data files -> live bitmaps                          one task for some data files
materialize live rows -> outputs                                the engine's own step, one task for each output
commit      one `replace` snapshot for some groups              groups that others touched are planned again
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltacompact.base.errors import ConflictError, CorruptionError, Interrupted, OutcomeUnknownError
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg.commit.committer import Committed, Committer
from deltacompact.catalog.iceberg.deletes.finding import Sizes
from deltacompact.catalog.iceberg.rewrite.options import RewriteOptions
from deltacompact.catalog.iceberg.rewrite.outputs import Job, Work
from deltacompact.catalog.iceberg.rewrite.plan import (
    FileGroup,
    RewritePlan,
    plan_rewrite,
)
from deltacompact.catalog.iceberg.rewrite.proposals import ProposeRewrite, RewriteOutcome
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.allocator import session_memory

REDONE_MAX = 3
"""How often groups that others touched are planned and rewritten again."""


@dataclass(slots=True)
class RewriteResult:
    """What a rewrite did. Rows of the inputs = rows that live in the outputs + rows dead by position + by key.

    `refused` has a line for each group that others touched and that is still as it was. `nothing_to_do` says why there
    was nothing to rewrite.
    """

    table_id: str
    branch: str
    snapshots: list[int] = field(default_factory=list)
    groups: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_by_position: int = 0
    dead_by_key: int = 0
    delete_files_removed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    redone: int = 0
    refused: list[str] = field(default_factory=list)
    nothing_to_do: str | None = None
    executor: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One call of rewrite: a branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: RewriteOptions
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self._store()).read(self.table.metadata, self.branch)

    def plan(self) -> RewritePlan:
        """The plan for the branch. Writes nothing."""
        return plan_rewrite(self.state(), self.options)

    def run(self, plan: RewritePlan | None = None) -> RewriteResult:
        """Rewrite and commit what the plan says; without one, plan first.

        Groups that other writers touched are planned again. Raises ConflictError if they touched every group, again
        and again.
        """
        store = self._store()
        committer = Committer(store, StateReader(store), self.branch, uuid.uuid4().hex)
        result = RewriteResult(self.table.metadata.table_id, self.branch)
        table = self.table
        state = committer.reader.read(table.metadata, self.branch)
        plan = plan or plan_rewrite(state, self.options)
        result.nothing_to_do = plan.nothing_to_do
        redone = 0
        while plan.groups:
            touched = self._carried_out(Job(store, committer, table, state, plan), result)
            if not touched:
                break
            if redone == REDONE_MAX:
                result.refused += [f"{_name(group)}: {why}" for group, why in touched]
                break
            redone += 1
            result.redone += len(touched)
            table = table.reloaded()
            state = committer.reader.read(table.metadata, self.branch)
            committer.reader.forget(state.manifests)
            paths = frozenset(source.entry.file.path for group, _ in touched for source in group.inputs)
            plan = plan_rewrite(state, self.options, only=paths)
        if result.refused and not result.groups:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

    def _store(self) -> ObjectStore:
        return locations.store_of(self.table.metadata.location, self.table.io_properties)

    def _carried_out(self, job: Job, result: RewriteResult) -> list[tuple[FileGroup, str]]:
        """Rewrite the groups of a plan, commit by commit. Returns those that others touched, and what they did."""
        touched: list[tuple[FileGroup, str]] = []
        failed = 0
        executor = executor_for(self.settings, *_size(job.plan))
        result.executor = executor.name
        for groups in _commits(job.plan):
            try:
                with session_memory():
                    done = self._rewrite(job, groups, executor, result)
            except ConflictError as error:  # other commits were faster in every attempt
                failed += 1
                if not self.options.partial_progress or failed > self.options.max_failed_commits:
                    raise
                result.refused += [f"{_name(group)}: {text_of(error)}" for group in groups]
            else:
                touched += [(rewritten.group, problem.words) for rewritten, problem in done.outcome.refused]
        return touched

    def _rewrite(
        self, job: Job, groups: Sequence[FileGroup], executor: Executor, result: RewriteResult
    ) -> Committed[RewriteOutcome]:
        """Write the outputs of some groups and commit them. What is not committed is deleted, unless it may be."""
        work = Work(job, executor, self.settings, self.sizes)
        try:
            written = work.written(groups)
            self.before_commit()
            done = job.committer.commit(job.table, ProposeRewrite(job.plan, written))
        except (OutcomeUnknownError, Interrupted):
            raise
        except BaseException:
            work.discard(work.outputs)
            raise
        finally:
            work.clear()
        work.discard([file.path for rewritten, _ in done.outcome.refused for file in rewritten.outputs])
        _count(result, done, work)
        return done


def _commits(plan: RewritePlan) -> list[tuple[FileGroup, ...]]:
    """The groups of each commit: all in one, or some in each with partial progress."""
    if not plan.options.partial_progress:
        return [plan.groups]
    share = math.ceil(len(plan.groups) / plan.options.max_commits)
    return [plan.groups[start : start + share] for start in range(0, len(plan.groups), share)]


def _size(plan: RewritePlan) -> tuple[int, int]:
    return sum(group.rows for group in plan.groups), sum(group.bytes for group in plan.groups)


def _name(group: FileGroup) -> str:
    return f"{len(group.inputs)} files of partition {group.partition}" if group.partition else "a group of files"


def _count(result: RewriteResult, done: Committed[RewriteOutcome], work: Work) -> None:
    if done.snapshot is None:
        return
    result.snapshots.append(done.snapshot.snapshot_id)
    result.delete_files_removed += done.outcome.removed_deletes
    for rewritten in done.outcome.groups:
        found = work.found[rewritten.group.number]
        result.groups += 1
        result.files_in += len(rewritten.group.inputs)
        result.files_out += len(rewritten.outputs)
        result.bytes_in += rewritten.group.bytes
        result.bytes_out += sum(file.file_bytes for file in rewritten.outputs)
        rows_out = sum(file.rows for file in rewritten.outputs)
        result.rows_in += rewritten.group.rows
        result.rows_out += rows_out
        result.dead_by_position += sum(file.dead_by_position for file in found)
        result.dead_by_key += sum(file.dead_by_key for file in found)
        for source in rewritten.group.inputs:
            reason = source.reason.value
            result.reasons[reason] = result.reasons.get(reason, 0) + 1
    if result.rows_in != result.rows_out + result.dead_by_position + result.dead_by_key:
        raise CorruptionError(
            f"{result.table_id}: {result.rows_in} rows went in, {result.rows_out} came out, "
            f"{result.dead_by_position} were dead by position and {result.dead_by_key} by key"
        )
