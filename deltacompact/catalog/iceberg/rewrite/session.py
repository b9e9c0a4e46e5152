"""A session: one plan is carried out, commit by commit, under a journal.

journal     the plan                                            before any work
delete keys equality deletes -> digests by hash bucket          one task for some delete files
dead rows   data files -> live bitmaps                          one task for some data files
materialize live rows -> outputs                                the engine's own step, one task for each output
journal     a group is written                                  as the last of its outputs ends
commit      one `replace` snapshot for some groups              its id is in the journal before
journal     cleared, with what could not be committed

A session that ends otherwise leaves its journal: the next run commits what was written. Only if the input is bad, or
rows are missing, nothing is worth being kept.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltacompact.base.errors import (
    ConflictError,
    CorruptionError,
    DeltaCompactError,
    InputError,
    Interrupted,
)
from deltacompact.base.events import EventSink, GroupsCommitted, GroupWritten, RewriteStarted
from deltacompact.base.model import Partition
from deltacompact.base.settings import Settings
from deltacompact.base.wording import counted, text_of
from deltacompact.catalog.iceberg.commit.committer import Committed, Committer
from deltacompact.catalog.iceberg.deletes.finding import Sizes
from deltacompact.catalog.iceberg.rewrite.journal import Journal, TakenOverError
from deltacompact.catalog.iceberg.rewrite.outputs import Job, Work, name_of_outputs
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, RewritePlan
from deltacompact.catalog.iceberg.rewrite.proposals import ProposeRewrite, RewriteOutcome, Rewritten
from deltacompact.catalog.iceberg.rewrite.result import RewriteResult
from deltacompact.catalog.iceberg.rewrite.signs_of_life import Signs, giving_signs
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.allocator import session_memory

EVERYWHERE = Partition()
"""The partition that events name."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How the work is run, who hears of it, and what happens before each commit."""

    settings: Settings
    sizes: Sizes
    emit: EventSink
    signs: Signs
    before_commit: Callable[[], None]


@dataclass(slots=True)
class Session:
    """A plan that is being carried out. `committed` are the outputs that the table has."""

    job: Job
    journal: Journal
    executor: Executor
    reader: StateReader
    terms: Terms
    committed: set[str] = field(default_factory=set)
    groups_written: int = 0
    groups_committed: int = 0
    is_left: bool = False

    @classmethod
    def begin(
        cls,
        store: ObjectStore,
        reader: StateReader,
        table: IcebergTable,
        state: TableState,
        plan: RewritePlan,
        terms: Terms,
    ) -> Session:
        """Record the plan."""
        executor = executor_for(terms.settings, plan.rows, plan.bytes)
        journal = Journal.begin(store, plan)
        return cls(Job(store, table, state, plan, journal.session), journal, executor, reader, terms)

    def carried_out(self, result: RewriteResult) -> list[tuple[FileGroup, str]]:
        """Write and commit all groups. Returns those that others touched, and what they did.

        Raises Interrupted after Ctrl-C, which says what was written.
        """
        plan = self.job.plan
        result.executor = self.executor.name
        self.terms.emit(RewriteStarted(plan.table_id, EVERYWHERE, len(plan.groups), plan.rows, plan.bytes))
        with giving_signs(self.journal.session, self.journal.sign, self.terms.signs) as stop_signs, session_memory():
            try:
                touched = self._commit_by_commit(result)
            except TakenOverError:
                raise
            except (InputError, CorruptionError):
                with contextlib.suppress(DeltaCompactError):  # the error that ended the work is the one to tell
                    self._clear(stop_signs)
                raise
            except BaseException as error:
                self._leave()
                if isinstance(error, KeyboardInterrupt) and not isinstance(error, Interrupted):
                    raise Interrupted(f"{plan.table_id}: {self._waiting}") from None
                raise
            if self.is_left:
                self._leave()
                result.notes.append(self._waiting)
                return touched
            try:
                self._clear(stop_signs)
            except TakenOverError as error:
                result.notes.append(text_of(error))
            except DeltaCompactError as error:  # the work itself is done
                result.notes.append(
                    f"session {self.journal.session} is to be cleared by the next run: {text_of(error)}"
                )
            return touched

    @property
    def _waiting(self) -> str:
        groups = counted(len(self.job.plan.groups), "group")
        waiting = self.groups_written - self.groups_committed
        return f"{waiting} of {groups} written and not committed; compact again: it commits them"

    def _commit_by_commit(self, result: RewriteResult) -> list[tuple[FileGroup, str]]:
        options = self.job.plan.options
        touched: list[tuple[FileGroup, str]] = []
        failed = 0
        for groups in _commits(self.job.plan):
            try:
                done = self._committed(groups)
            except TakenOverError:
                raise
            except ConflictError as error:  # other commits were faster in every attempt
                failed += 1
                if not options.partial_progress or failed > options.max_failed_commits:
                    raise
                self.is_left = True
                result.refused.append(f"{counted(len(groups), 'group')}: {text_of(error)}")
            else:
                result.count(done)
                touched += [(rewritten.group, problem.words) for rewritten, problem in done.outcome.refused]
        return touched

    def _committed(self, groups: Sequence[FileGroup]) -> Committed[RewriteOutcome]:
        """Write the outputs of some groups and commit them."""
        folder = f"{self.journal.folder}work-{groups[0].number}/"
        work = Work(self.job, self.executor, self.terms.settings, self.terms.sizes, folder)
        written: list[Rewritten] = []
        for rewritten in work.written(groups):
            self.journal.written(rewritten)
            written.append(rewritten)
            self.groups_written += 1
            self._tell_written(rewritten)
        self.terms.before_commit()
        numbers = [group.number for group in groups]
        committer = Committer(
            self.job.store,
            self.reader,
            self.job.plan.branch,
            self.journal.session,
            before_attempt=lambda snapshot_id: self.journal.before_attempt(snapshot_id, numbers),
        )
        done = committer.commit(self.job.table, ProposeRewrite(self.job.plan, written))
        self.committed |= {file.path for rewritten in done.outcome.groups for file in rewritten.outputs}
        self.groups_committed += len(groups)
        if done.snapshot is not None:
            self.terms.emit(
                GroupsCommitted(self.job.plan.table_id, EVERYWHERE, done.snapshot.snapshot_id, len(done.outcome.groups))
            )
        return done

    def _tell_written(self, rewritten: Rewritten) -> None:
        plan = self.job.plan
        self.terms.emit(
            GroupWritten(
                plan.table_id,
                EVERYWHERE,
                self.groups_written,
                len(plan.groups),
                rewritten.group.rows,
                rewritten.group.bytes,
            )
        )

    def _clear(self, stop_signs: Callable[[], None]) -> None:
        """Delete what was not committed, and the journal."""
        name, folder = name_of_outputs(self.journal.session), self.job.state.metadata.data_folder
        found = locations.listed(self.job.store, folder, name)
        for path in self.journal.finish([path for path in found if path not in self.committed]):
            locations.discard(self.job.store, path)
        stop_signs()
        self.journal.clear()

    def _leave(self) -> None:
        """Let the next run go on at once."""
        with contextlib.suppress(DeltaCompactError):
            self.journal.ended()


def _commits(plan: RewritePlan) -> list[tuple[FileGroup, ...]]:
    """The groups of each commit: all in one, or some in each with partial progress."""
    if not plan.options.partial_progress:
        return [plan.groups]
    share = math.ceil(len(plan.groups) / plan.options.max_commits)
    return [plan.groups[start : start + share] for start in range(0, len(plan.groups), share)]
