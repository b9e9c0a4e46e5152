"""A session: the work of one plan is carried out, commit by commit, under a journal.

journal     the plan                                            before any work
work        the mode writes files, group by group
journal     a group is written                                  as the last of its files ends
commit      one snapshot for some groups                        its id is in the journal before
journal     cleared, with what could not be committed

A session that ends early leaves its journal, and the next run commits what was written. Only if the input is bad, or
rows are missing, all that it wrote is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from deltacompact.base.errors import (
    ConflictError,
    CorruptionError,
    DeltaCompactError,
    InputError,
    Interrupted,
)
from deltacompact.base.events import GroupsCommitted, GroupWritten, ModeStarted
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted, text_of
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.metadata import Snapshot
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.iceberg_modes.journal.journal import (
    Journal,
    TakenOverError,
    files_of,
    other_than,
)
from deltacompact.iceberg_modes.journal.signs_of_life import at_work, giving_signs
from deltacompact.iceberg_modes.journal.tries import Tries
from deltacompact.iceberg_modes.mode import Plan, Result
from deltacompact.iceberg_modes.steps import Group, GroupOutput, Outcome, Work
from deltacompact.tabular.allocator import session_memory

EVERYWHERE = Partition()
"""The partition that events name."""


@dataclass(slots=True)
class Session(Generic[Plan, Group, GroupOutput, Outcome, Result]):
    """Carries out the work of one plan. `committed`: files that the table has now; `refused` and `notes` go into the
    result. `bad`: the first input that could not be read."""

    work: Work[Plan, Group, GroupOutput, Outcome, Result]
    groups: tuple[Group, ...]
    journal: Journal
    reader: StateReader
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    committed: set[str] = field(default_factory=set)
    groups_written: int = 0
    groups_committed: int = 0
    is_left: bool = False
    bad: InputError | None = None

    def carry_out(self, document: Mapping[str, Any]) -> None:
        """Record the plan, its document, and write and commit all groups.

        Raises Interrupted after Ctrl-C, which says what was written.
        """
        with at_work(self.journal.session):
            self.journal.begin(document)
            self._carry_out()

    def _carry_out(self) -> None:
        rows, size = sum(group.rows for group in self.groups), sum(group.bytes for group in self.groups)
        call, plan = self.work.call, self.work.plan
        call.emit(ModeStarted(plan.table_id, EVERYWHERE, plan.mode, len(self.groups), rows, size, plan.snapshot_id))
        signs = giving_signs(self.journal.session, self.journal.sign, call.signs)
        with signs as stop_signs, session_memory(call.settings.memory_bytes):
            try:
                self._commit_by_commit()
            except TakenOverError:
                raise
            except (InputError, CorruptionError) as error:
                self._tell_replaced(error)
                with contextlib.suppress(DeltaCompactError):  # the error that ended the work is the one to tell
                    self._clear(stop_signs)
                raise
            except BaseException as error:
                self._leave()
                if isinstance(error, KeyboardInterrupt) and not isinstance(error, Interrupted):
                    raise Interrupted(f"{self.work.plan.table_id}: {self._waiting}") from None
                raise
            if self.is_left:
                self._leave()
                self.notes.append(self._waiting)
                return
            try:
                self._clear(stop_signs)
            except TakenOverError as error:
                self.notes.append(text_of(error))
            except DeltaCompactError as error:  # the work itself is done
                self.notes.append(f"session {self.journal.session} is to be cleared by the next run: {text_of(error)}")

    def _tell_replaced(self, error: DeltaCompactError) -> None:
        """Raise TakenOverError instead, if files are missing because another process took over and deleted them."""
        try:
            self.journal.refuse_replaced()
        except TakenOverError as replaced:
            raise TakenOverError(f"{text_of(replaced)} ({text_of(error)})") from error
        except DeltaCompactError:
            return

    @property
    def _waiting(self) -> str:
        groups = counted(len(self.groups), "group")
        waiting = self.groups_written - self.groups_committed
        if self.groups_committed and not waiting:
            return f"{self.groups_committed} of {groups} committed; compact again: it clears what is left"
        return f"{waiting} of {groups} written and not committed; compact again: it commits them"

    def _commit_by_commit(self) -> None:
        failed = 0
        for groups in self.work.commits:
            try:
                written = self._written_or_bad(groups)
                if written is None:
                    continue
                done = self._committed(groups, written)
            except TakenOverError:
                raise
            except ConflictError as error:  # other commits were faster in every attempt
                failed += 1
                if failed > self.work.failed_commits_max:
                    raise
                self.is_left = True
                self.refused.append(f"{counted(len(groups), 'group')}: {text_of(error)}")
            else:
                self.work.count(done, groups)
        if self.bad is not None:
            raise self.bad

    def _written_or_bad(self, groups: Sequence[Group]) -> list[GroupOutput] | None:
        """Write the groups of one commit. None: one of them cannot be read, so the other commits go on without them."""
        try:
            return self._written(groups)
        except InputError as error:
            self._tell_replaced(error)
            self.bad = self.bad or error
            return None

    def _written(self, groups: Sequence[Group]) -> list[GroupOutput]:
        written: list[GroupOutput] = []
        for complete in self.work.written(groups, self.journal.session, self._folder(groups)):
            records = [self.work.record(group) for group in complete]
            self.journal.written(records)
            written += complete
            for record in records:
                self._tell_written(record.number)
        return written

    def _folder(self, groups: Sequence[Group]) -> str:
        """Where tasks put what they hand to each other for one commit."""
        return f"{self.journal.folder}work-{groups[0].number}/"

    def _committed(self, groups: Sequence[Group], written: Sequence[GroupOutput]) -> Committed[Outcome]:
        store = self.journal.store
        self.work.call.before_commit()
        tries = Tries(self.journal, [group.number for group in groups], reserve=self.work.reserved.reserve)
        committer = Committer(
            store,
            self.reader,
            self.work.plan.branch,
            self.journal.session,
            on_head=tries.on_head,
            before_attempt=tries.before_attempt,
            after_refusal=tries.after_refusal,
        )
        done = committer.commit(self.work.table, tries.proposing(self.work.propose(groups, written)))
        self.committed |= done.outcome.paths | tries.files
        self.groups_committed += len(groups)
        if done.snapshot is not None:
            self._tell_committed(done.snapshot, done.outcome.group_count, done.attempts)
        with contextlib.suppress(DeltaCompactError):  # what stays goes with the journal
            store.delete([stat.path for stat in store.list(self._folder(groups))])
        return done

    def _tell_committed(self, snapshot: Snapshot, groups: int, attempts: int) -> None:
        committed = GroupsCommitted(
            self.work.plan.table_id,
            EVERYWHERE,
            snapshot.snapshot_id,
            groups,
            snapshot.sequence_number,
            snapshot.summary,
            attempts,
        )
        self.work.call.emit(committed)

    def _tell_written(self, number: int) -> None:
        self.groups_written += 1
        groups, table_id = self.groups, self.work.plan.table_id
        group = groups[number]
        self.work.call.emit(
            GroupWritten(table_id, EVERYWHERE, self.groups_written, len(groups), group.rows, group.bytes)
        )

    def _clear(self, stop_signs: Callable[[], None]) -> None:
        """Delete what was not committed, and the journal."""
        store = self.journal.store
        found = files_of(store, self.journal.session, [self.work.table.metadata.data_folder])
        unwanted = self.journal.finish(other_than(found, self.committed))
        locations.discard_all(store, unwanted)
        stop_signs()
        self.journal.clear()

    def _leave(self) -> None:
        """Let the next run go on at once."""
        with contextlib.suppress(DeltaCompactError):
            self.journal.ended()
