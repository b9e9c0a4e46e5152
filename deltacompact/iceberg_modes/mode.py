"""One call of a mode: what `rewrite`, `convert` and `upsert` have in common. The driver.

left        journals of the branch             sessions that died, and live ones
plan        or the plan of a document          bad input is refused before anything is committed
resume      what dead sessions had written     committed, or deleted where it cannot be
plan        the branch as it is now
session     written and committed              what others touched is planned again
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from deltacompact.base.errors import ConflictError
from deltacompact.base.events import Event, EventSink, ModeFinished, WaitingForSession
from deltacompact.base.modes import CONVERT, REWRITE
from deltacompact.base.settings import Settings
from deltacompact.base.wording import one_line
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.convert.resumption import resume_conversion
from deltacompact.iceberg_modes.journal.journal import Planned
from deltacompact.iceberg_modes.journal.left_behind import Left, left_behind
from deltacompact.iceberg_modes.journal.resume import Resumption, landed_inputs, resume
from deltacompact.iceberg_modes.journal.session import EVERYWHERE, Session, Terms, Work
from deltacompact.iceberg_modes.journal.signs_of_life import Signs
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.rewrite.resumption import resume_rewrite

REDONE_MAX = 3
"""How often what others touched is done again."""


def rows_stay(mode: str) -> Resumption | None:
    """How to commit what a mode had written after which a branch has the same rows: any call may do it."""
    resumptions: dict[str, Resumption] = {REWRITE: resume_rewrite, CONVERT: resume_conversion}
    return resumptions.get(mode)


def no_sink(event: Event) -> None:
    pass


class ModePlan(Protocol):
    """What the driver must know of a plan."""

    @property
    def groups(self) -> tuple[Any, ...]: ...
    @property
    def nothing_to_do(self) -> str | None: ...


class ModeWork(Work[Any, Any, Any], Protocol):
    """Work that remembers what others touched: groups or files, and a line for each that is given up."""

    @property
    def touched(self) -> Sized: ...
    @property
    def given_up(self) -> list[str]: ...


Options = TypeVar("Options")
Plan = TypeVar("Plan", bound=ModePlan)
Result = TypeVar("Result", bound=ModeResult)
Doing = TypeVar("Doing", bound=ModeWork)


@dataclass(frozen=True, slots=True)
class Mode(ABC, Generic[Options, Plan, Doing, Result]):
    """One call of a mode: a branch of a table, the options, and how the work is run."""

    name: ClassVar[str]

    table: IcebergTable
    branch: str
    options: Options
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""
    emit: EventSink = no_sink
    signs: Signs = field(default_factory=Signs)

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self.table.store).read(self.table.metadata, self.branch)

    def plan(self) -> Plan:
        """The plan for the branch. Writes nothing."""
        return self._planned(self.state(), Left())

    def run(self, document: str | bytes | None = None) -> Result:
        """Carry out and commit what a plan's document says; without one, plan first. Tells of the end, too.

        Before that, what earlier sessions of the branch had written and not committed is committed. What other writers
        touched is planned again. Raises ConflictError if they touched everything, again and again.
        """
        table_id = self.table.metadata.table_id
        try:
            result = self._run(document)
        except BaseException as error:
            self.emit(ModeFinished(table_id, EVERYWHERE, self.name, one_line(error)))
            raise
        self.emit(ModeFinished(table_id, EVERYWHERE, self.name, None))
        return result

    def _run(self, document: str | bytes | None) -> Result:
        store = self.table.store
        reader = StateReader(store)
        table, state = self.table, reader.read(self.table.metadata, self.branch)
        left = left_behind(store, state, self.signs, self._waiting)
        plan = self._plan_of(document, state, left, landed_inputs(store, state, reader, left, self.name))
        result = self._result(plan)
        result.notes += left.notes
        if left.dead:
            done = self._resumed(left, table, reader, plan, result)
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            plan = self._plan_of(document, state, left, done)
        nothing_to_do = self._nothing_to_do(plan)
        terms = Terms(store, reader, self.emit, self.signs, self.before_commit)
        former: Doing | None = None
        redone = 0
        while plan.groups:
            former = work = self._work(table, state, plan, former, result)
            session = Session.begin(table, work, terms)
            session.carry_out()
            result.refused += session.refused
            result.notes += session.notes
            if not work.touched:
                break
            if redone == REDONE_MAX:
                result.refused += work.given_up
                break
            redone += 1
            result.redone += len(work.touched)
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            reader.forget(state.manifests)
            plan = self._again(state, work)
        has_committed = bool(result.snapshots)
        self._afterwards(table, reader, plan, result)
        if not result.snapshots:
            result.nothing_to_do = nothing_to_do
        if result.refused and not has_committed:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

    def _waiting(self, session: str, wait_s: float, ahead_s: float) -> None:
        self.emit(WaitingForSession(self.table.metadata.table_id, EVERYWHERE, session, wait_s, ahead_s))

    def _plan_of(self, document: str | bytes | None, state: TableState, left: Left, done: frozenset[str]) -> Plan:
        return self._planned(state, left) if document is None else self._approved(document, state, left, done)

    def _resumed(
        self, left: Left, table: IcebergTable, reader: StateReader, plan: Plan, result: Result
    ) -> frozenset[str]:
        """Commit what dead sessions left. Returns the data files that those of this mode have dealt with."""
        done: frozenset[str] = frozenset()
        for dead in left.dead:
            committer = Committer(table.store, reader, self.branch, dead.session)
            resumed = resume(dead.session, table, committer, self.signs, self._resumption(dead.plan, plan))
            result.notes += resumed.notes
            is_ours = dead.plan.mode == self.name
            done |= resumed.done if is_ours else frozenset()
            committed = resumed.committed
            if committed is None or committed.snapshot is None:
                continue
            if is_ours:
                result.resumed += committed.outcome.group_count
                result.count(committed)
            else:
                mode, snapshot_id = dead.plan.mode, committed.snapshot.snapshot_id
                result.notes.append(f"session {dead.session} had written a {mode}: it is snapshot {snapshot_id} now")
        return done

    # What a mode says

    @abstractmethod
    def _planned(self, state: TableState, left: Left) -> Plan:
        """The plan for a branch on which these sessions are at work."""

    @abstractmethod
    def _approved(self, document: str | bytes, state: TableState, left: Left, done: frozenset[str]) -> Plan:
        """The plan of a document, without what dead sessions have dealt with."""

    @abstractmethod
    def _result(self, plan: Plan) -> Result:
        """A result that counts nothing yet."""

    @abstractmethod
    def _work(self, table: IcebergTable, state: TableState, plan: Plan, former: Doing | None, result: Result) -> Doing:
        """What is to be done for a plan. `former`: if it is a part of that which is done again."""

    @abstractmethod
    def _again(self, state: TableState, work: Doing) -> Plan:
        """The plan for what others touched."""

    def _resumption(self, dead: Planned, plan: Plan) -> Resumption | None:
        """How to commit what a dead session had written. None: it must not be."""
        return rows_stay(dead.mode)

    def _nothing_to_do(self, plan: Plan) -> str | None:
        """Why nothing was committed, if nothing was."""
        return plan.nothing_to_do

    def _afterwards(self, table: IcebergTable, reader: StateReader, plan: Plan, result: Result) -> None:
        """What is done after all groups."""
