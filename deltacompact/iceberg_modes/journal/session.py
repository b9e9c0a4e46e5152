"""A session: the work of one plan is carried out, commit by commit, under a journal.

journal     the plan                                            before any work
work        the mode writes files, group by group
journal     a group is written                                  as the last of its files ends
commit      one snapshot for some groups                        its id is in the journal before
journal     cleared, with what could not be committed

A session that ends otherwise leaves its journal: the next run commits what was written. Only if the input is bad, or
rows are missing, nothing is worth being kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from deltacompact.base.errors import (
    ConflictError,
    CorruptionError,
    DeltaCompactError,
    InputError,
    Interrupted,
)
from deltacompact.base.events import EventSink, GroupsCommitted, GroupWritten, ModeStarted
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted, text_of
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.commit.proposal import Propose
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.iceberg_modes.journal.journal import (
    Journal,
    TakenOverError,
    WrittenGroup,
    files_of,
    other_than,
)
from deltacompact.iceberg_modes.journal.signs_of_life import Signs, giving_signs
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.allocator import session_memory

EVERYWHERE = Partition()
"""The partition that events name."""


class PlannedGroup(Protocol):
    """What is written together, and committed or given up together. Rows and bytes are those of its data files."""

    @property
    def number(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


Group = TypeVar("Group", bound=PlannedGroup)
PlanGroup = TypeVar("PlanGroup", bound=PlannedGroup, covariant=True)


class Plan(Protocol[PlanGroup]):
    """What a session must know of a mode's plan."""

    @property
    def table_id(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def groups(self) -> tuple[PlanGroup, ...]: ...


class OutcomeOfGroups(Protocol):
    """What a session must know of what is in a snapshot: the files that it added, and of how many groups they are."""

    @property
    def paths(self) -> frozenset[str]: ...
    @property
    def group_count(self) -> int: ...


Written = TypeVar("Written")
Outcome = TypeVar("Outcome", bound=OutcomeOfGroups)


class Work(Protocol[Group, Written, Outcome]):
    """What a mode does for a plan."""

    @property
    def mode(self) -> str: ...
    @property
    def plan(self) -> Plan[Group]: ...
    @property
    def document(self) -> Mapping[str, Any]:
        """The plan, for the journal."""
        ...

    @property
    def commits(self) -> Sequence[Sequence[Group]]:
        """The groups of each commit."""
        ...

    @property
    def failed_commits_max(self) -> int:
        """So many commits may fail, because others come first in every attempt."""
        ...

    def written(self, groups: Sequence[Group], session: str, folder: str) -> Iterator[Sequence[Written]]:
        """Write some groups; those that are complete at the same time come together. Files of the table begin with the
        session's name; what tasks hand to each other goes to `folder`."""
        ...

    def record(self, written: Written) -> WrittenGroup: ...

    def propose(self, groups: Sequence[Group], written: Sequence[Written]) -> Propose[Outcome]: ...

    def count(self, done: Committed[Outcome], groups: Sequence[Group]) -> None:
        """Take down what one commit did."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """Where the work is committed, who hears of it, and what happens before each commit."""

    store: ObjectStore
    reader: StateReader
    emit: EventSink
    signs: Signs
    before_commit: Callable[[], None]


@dataclass(slots=True)
class Session(Generic[Group, Written, Outcome]):
    """Work that is being done. `committed` are files that the table has; `refused` and `notes` are for the result."""

    table: IcebergTable
    work: Work[Group, Written, Outcome]
    groups: tuple[Group, ...]
    journal: Journal
    terms: Terms
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    committed: set[str] = field(default_factory=set)
    groups_written: int = 0
    groups_committed: int = 0
    is_left: bool = False

    @classmethod
    def begin(
        cls, table: IcebergTable, work: Work[Group, Written, Outcome], terms: Terms
    ) -> Session[Group, Written, Outcome]:
        """Record the plan."""
        return cls(table, work, work.plan.groups, Journal.begin(terms.store, work.document), terms)

    def carry_out(self) -> None:
        """Write and commit all groups. Raises Interrupted after Ctrl-C, which says what was written."""
        rows, size = sum(group.rows for group in self.groups), sum(group.bytes for group in self.groups)
        mode = self.work.mode
        self.terms.emit(ModeStarted(self.work.plan.table_id, EVERYWHERE, mode, len(self.groups), rows, size))
        with giving_signs(self.journal.session, self.journal.sign, self.terms.signs) as stop_signs, session_memory():
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
        """If another process took over while we stood still, it has deleted what we miss: that is the error to tell."""
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
        return f"{waiting} of {groups} written and not committed; compact again: it commits them"

    def _commit_by_commit(self) -> None:
        failed = 0
        for groups in self.work.commits:
            try:
                done = self._committed(groups)
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

    def _committed(self, groups: Sequence[Group]) -> Committed[Outcome]:
        """Write some groups and commit them."""
        folder = f"{self.journal.folder}work-{groups[0].number}/"
        written: list[Written] = []
        for complete in self.work.written(groups, self.journal.session, folder):
            records = [self.work.record(one) for one in complete]
            self.journal.written(records)
            written += complete
            for record in records:
                self._tell_written(record.number)
        self.terms.store.delete([stat.path for stat in self.terms.store.list(folder)])
        self.terms.before_commit()
        numbers = [group.number for group in groups]
        committer = Committer(
            self.terms.store,
            self.terms.reader,
            self.work.plan.branch,
            self.journal.session,
            before_attempt=lambda snapshot_id: self.journal.before_attempt(snapshot_id, numbers),
        )
        done = committer.commit(self.table, self.work.propose(groups, written))
        self.committed |= done.outcome.paths
        self.groups_committed += len(groups)
        if done.snapshot is not None:
            count = done.outcome.group_count
            self.terms.emit(GroupsCommitted(self.work.plan.table_id, EVERYWHERE, done.snapshot.snapshot_id, count))
        return done

    def _tell_written(self, number: int) -> None:
        self.groups_written += 1
        groups, table_id = self.groups, self.work.plan.table_id
        group = groups[number]
        self.terms.emit(GroupWritten(table_id, EVERYWHERE, self.groups_written, len(groups), group.rows, group.bytes))

    def _clear(self, stop_signs: Callable[[], None]) -> None:
        """Delete what was not committed, and the journal."""
        found = files_of(self.terms.store, self.journal.session, [self.table.metadata.data_folder])
        unwanted = self.journal.finish(other_than(found, self.committed))
        locations.discard_all(self.terms.store, unwanted, lambda count: None)
        stop_signs()
        self.journal.clear()

    def _leave(self) -> None:
        """Let the next run go on at once."""
        with contextlib.suppress(DeltaCompactError):
            self.journal.ended()
