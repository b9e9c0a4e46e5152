"""One call of a mode, from its plan to its last commit. The driver.

left        read the branch's journals         sessions that died, and live ones
plan        or take the plan of a document     bad input is refused before anything is committed
resume      the work of dead sessions          commit what they had written, or delete it if it cannot be committed
plan        the branch as it is then
session     write and commit                   what other writers touched meanwhile is planned again
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltacompact.base.errors import ConflictError
from deltacompact.base.events import ModeFinished, WaitingForSession
from deltacompact.base.wording import counted, one_line
from deltacompact.executors.choose import executor_for
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.deletes.readable import check_defaults
from deltacompact.iceberg.marks.marking import codec_of_marks
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.pyiceberg_door.transforms import check_orders
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import Journal, UntrustedError
from deltacompact.iceberg_modes.journal.left_behind import LeftSession, SessionsLeft, left_behind, not_resumed
from deltacompact.iceberg_modes.journal.resume import Resumption, landed_inputs, resume
from deltacompact.iceberg_modes.mode import Mode, Plan, Result
from deltacompact.iceberg_modes.modes import known_mode
from deltacompact.iceberg_modes.readers import refuse_unreadable
from deltacompact.iceberg_modes.session import EVERYWHERE, Session
from deltacompact.iceberg_modes.steps import Call, Resuming
from deltacompact.iceberg_modes.totals import BranchTotals, totals_of

REDONE_MAX = 3
"""How often files are planned again that other writers touched."""


@dataclass(frozen=True, slots=True)
class ModeRun(Call[Plan, Result]):
    """Carries out a call of a mode. Raises InputError for a table that we cannot commit to."""

    mode: Mode[Plan, Result] = field(kw_only=True)

    def __post_init__(self) -> None:
        check_orders(self.table.metadata)
        refuse_unreadable(self.mode, self.options, self.table.metadata)
        if self.settings.certify:
            check_defaults(self.table.metadata, self.table.metadata.schema)  # a fingerprint counts all columns
        if self.mode.marks:
            codec_of_marks(self.table.metadata, self.settings)  # a bad one is refused before any work

    def plan(self, state: TableState | None = None) -> Plan:
        """The plan for the branch. Writes nothing. `state`: the branch, where it was read a moment ago."""
        return self.mode.steps().plan(self, state or self.state(), SessionsLeft())

    def plan_with_totals(self) -> tuple[Plan, BranchTotals, BranchTotals]:
        """The plan, and the totals of the branch: before it is carried out, and about afterwards."""
        state, steps = self.state(), self.mode.steps()
        plan = steps.plan(self, state, SessionsLeft())
        return plan, totals_of(state), steps.totals_after(plan, state)

    def run(self, document: str | bytes | None = None) -> Result:
        """Carry out the plan of a document, or plan first, and commit. Sends the events of begin and end.

        First it commits what dead sessions of the branch had written. Files that other writers touch meanwhile are
        planned again. Raises ConflictError if they touched everything, again and again.
        """
        table_id = self.table.metadata.table_id
        try:
            result = self._run(document)
        except BaseException as error:
            self.emit(ModeFinished(table_id, EVERYWHERE, self.mode.name, one_line(error)))
            raise
        self.emit(ModeFinished(table_id, EVERYWHERE, self.mode.name, None))
        return result

    def _run(self, document: str | bytes | None) -> Result:
        store, steps = self.table.store, self.mode.steps()
        reader = StateReader(store)
        table, state = self.table, reader.read(self.table.metadata, self.branch)
        left = left_behind(store, state, self.signs, self._tell_waiting)
        plan = self._planned(document, state, left, landed_inputs(state, reader, left, self.mode.name))
        result = steps.result(self, plan)
        result.notes += [*map(_at_work, left.live), *left.notes]
        if left.dead:
            done = self._resumed(left, table, reader, plan, result)
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            plan = self._planned(document, state, left, done)
        nothing_to_do = plan.nothing_to_do or steps.nothing_found
        former = None
        redone = 0
        while plan.groups:
            executor = executor_for(self.settings, plan.rows, plan.bytes)
            result.executor = executor.name
            former = work = steps.work(self, table, state, plan, executor, result, former)
            session = Session(work, plan.groups, Journal.new(store), reader)
            session.carry_out(steps.document(plan))
            result.refused += session.refused
            result.notes += session.notes
            if not work.touched:
                break
            if redone == REDONE_MAX:
                result.refused += [f"{name} (done again {REDONE_MAX} times, and no more)" for name in work.given_up]
                break
            redone += 1
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            reader.forget(state.manifests)
            plan = work.again(state)
            result.redone += len(plan.groups)
        has_committed = bool(result.snapshots)
        steps.afterwards(self, table, reader, plan, result)
        if not result.snapshots:
            result.nothing_to_do = nothing_to_do
        if result.refused and not has_committed:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

    def _tell_waiting(self, session: str, wait_s: float, ahead_s: float) -> None:
        self.emit(WaitingForSession(self.table.metadata.table_id, EVERYWHERE, session, wait_s, ahead_s))

    def _planned(
        self, document: str | bytes | None, state: TableState, left: SessionsLeft, done: frozenset[str]
    ) -> Plan:
        """The plan of the document, or one for the branch as it is."""
        steps = self.mode.steps()
        return steps.plan(self, state, left) if document is None else steps.approved(document, state, left, done)

    def _resumed(
        self, left: SessionsLeft, table: IcebergTable, reader: StateReader, plan: Plan, result: Result
    ) -> frozenset[str]:
        """Commit what dead sessions left. Returns the data files that dead sessions of this mode have dealt with."""
        done: frozenset[str] = frozenset()
        for dead in left.dead:
            committer = Committer(table.store, reader, self.branch, dead.session)
            resumption = self._resumption(Resuming(self, reader, dead, result.notes, self.mode.compares), plan)
            try:
                resumed = resume(dead.session, table, committer, self.signs, resumption)
            except UntrustedError as error:
                result.notes.append(not_resumed(dead.session, error))
                continue
            result.notes += resumed.notes
            is_ours = dead.plan.mode == self.mode.name
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

    def _resumption(self, resuming: Resuming, plan: Plan) -> Resumption | None:
        """How to commit what a dead session had written. None: it must not be committed."""
        name = resuming.dead.plan.mode
        if name == self.mode.name:
            return self.mode.steps().resume(resuming, plan)
        other = known_mode(name)
        return other.steps().resume(resuming, None) if other else None


def _at_work(live: LeftSession) -> str:
    mode = known_mode(live.plan.mode)
    doing = mode.doing if mode else "working on"
    return f"session {live.session} is {doing} {counted(len(live.files), 'file')} of this branch"
