"""One job run that we hold, from its claim to its end: what a thread of the dispatcher does.

claimed    RUNNING in an earlier epoch: new attempts at what has not ended, the old ones fenced off
planned    a session for each partition, in groups
g0         waits for admission, is launched, ends: two sessions succeeded, one is to be tried again
g0         again after some seconds, under a new attempt
ended      SUCCEEDED, or FAILED where a session has

told to stop     launches nothing more, lets running groups end, gives the lease back
lease lost       terminates what it launched: another dispatcher goes on
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from deltacompact.base.errors import DeltaCompactError, StoreError
from deltacompact.base.wording import counted, one_line
from sessions.base.ids import session_id
from sessions.base.logs import about
from sessions.base.model import Estimate, JobRunState, Session, SessionPlan, SessionState
from sessions.dispatch.admission import Admission, Demand
from sessions.dispatch.attempts import Attempts
from sessions.dispatch.simple_plan import Planner
from sessions.documents.instruction import Instruction, of_values
from sessions.launchers.launcher import GroupSpec, GroupState, Launcher
from sessions.records.leases import HeldJobRun, LeaseLostError
from sessions.records.state_store import StateStore

T = TypeVar("T")

_LOG = logging.getLogger("sessions")
_LOOK_EVERY_S = 0.1
_WRITERS = 8
_STORE_TRIES = 5
_ERROR_CHARACTERS_MAX = 500
_KILLED = "its process ended before it did"


@dataclass(frozen=True, slots=True)
class Retries:
    """A session that fails `failures_max` times has failed; before another try passes twice the time of the last."""

    failures_max: int = 3
    first_after_s: float = 1.0
    after_max_s: float = 60.0

    def after_s(self, failures: int) -> float:
        return random.uniform(0.5, 1.0) * min(self.after_max_s, self.first_after_s * 2.0 ** max(0, failures - 1))


@dataclass(slots=True)
class Stopping:
    """How a dispatcher ends: `gently` launches nothing more, `now` terminates what runs."""

    gently: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class _Group:
    """One group of sessions: waiting, then running under `launched`, until no session of it is unended.

    `used` are the attempts that were launched: none is launched twice.
    """

    name: str
    sessions: dict[str, Session]
    launched: str | None = None
    launches: int = 0
    used: set[str] = field(default_factory=set)
    demand: Demand | None = None
    not_before_s: float = 0.0

    def update(self, sessions: Iterable[Session]) -> None:
        self.sessions.update({session.id: session for session in sessions})

    @property
    def unended(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.state.ended]


class JobRunWork:
    """Does the work of one held job run. `run` reads like the design."""

    def __init__(
        self,
        held: HeldJobRun,
        plan: Planner,
        launcher: Launcher,
        admission: Admission,
        stopping: Stopping,
        retries: Retries,
    ) -> None:
        self._held = held
        self._state: StateStore = held.state
        self._plan = plan
        self._launcher = launcher
        self._admission = admission
        self._stopping = stopping
        self._retries = retries
        self._groups: list[_Group] = []

    def run(self) -> None:
        """Bring the job run to its end, or give it back."""
        with about(job_run=self._held.run.id, epoch=self._held.epoch):
            try:
                self._work()
            except LeaseLostError as lost:
                _LOG.warning("%s", lost)
            except Exception as error:
                _LOG.error("job run %s: %s", self._held.run.id, one_line(error), exc_info=True)
            finally:
                self._let_go()

    def _work(self) -> None:
        try:
            instruction = of_values(self._held.run.document)
            if self._held.run.state is JobRunState.ACCEPTED:
                self._asking(lambda: self._planned(instruction))
        except (StoreError, LeaseLostError):
            raise
        except Exception as error:  # nothing that another dispatcher would do better
            _LOG.warning("job run %s cannot be planned", self._held.run.id, exc_info=True)
            self._end(one_line(error))
            return
        attempts = Attempts(self._held, instruction)
        self._groups = self._taken(attempts)
        while any(group.unended for group in self._groups):
            if self._stopping.gently.is_set() and (self._stopping.now.is_set() or not self._running()):
                return
            if self._held.lost:
                raise LeaseLostError(f"job run {self._held.run.id}: the lease of epoch {self._held.epoch} is lost")
            for group in self._groups:
                if group.launched is not None:
                    self._follow(group, attempts)
                elif group.unended and not self._stopping.gently.is_set():
                    self._start(group, attempts)
            time.sleep(_LOOK_EVERY_S)
        self._end(self._failure())

    # Plan

    def _planned(self, instruction: Instruction) -> None:
        """Record the sessions, then that the job run is running. What an earlier epoch recorded stays as it is."""
        run = self._held.run
        plans = [replace(plan, group=f"{plan.group}.{self._held.epoch}") for plan in self._plan(instruction)]
        groups: dict[str, list[str]] = {}
        for plan in plans:
            groups.setdefault(plan.group, []).append(session_id(plan.partition))
        with ThreadPoolExecutor(_WRITERS) as threads:
            list(threads.map(self._recorded, plans))
        for group, names in groups.items():
            self._state.put_group(run.id, group, names)
        expected = _longest(plan.expected for plan in plans)
        self._held.change(
            state=JobRunState.RUNNING,
            started_s=time.time(),
            expected_first=expected,
            expected=expected,
            session_ids=tuple(name for names in groups.values() for name in names),
        )

    def _recorded(self, plan: SessionPlan) -> None:
        name, run_id = session_id(plan.partition), self._held.run.id
        session = Session(name, run_id, plan.partition, plan=plan, expected_first=plan.expected, expected=plan.expected)
        if not self._state.add_session(session):
            # An earlier epoch recorded it and died before the job run was running: nothing was launched.
            stored = self._state.session(run_id, name)
            if self._state.change_session(stored, replace(session, epoch=stored.value.epoch)) is None:
                raise StoreError(f"session {name} was changed meanwhile")

    # Groups

    def _taken(self, attempts: Attempts) -> list[_Group]:
        """The sessions as they are recorded, in groups. What an earlier epoch has launched can publish no more."""
        groups: dict[str, _Group] = {}
        sessions = self._state.some_sessions(self._held.run.id, self._held.run.session_ids)
        launched = [session for session in sessions if session.attempt is not None and not session.state.ended]
        taken = {session.id: session for session in [*sessions, *self._each(launched, self._next(attempts))]}
        for session in taken.values():
            assert session.plan is not None
            groups.setdefault(session.plan.group, _Group(session.plan.group, {})).sessions[session.id] = session
        return list(groups.values())

    def _start(self, group: _Group, attempts: Attempts) -> None:
        """Launch a group if it may start now."""
        if time.monotonic() < group.not_before_s:
            return
        if group.demand is None:
            plans = tuple(session.plan for session in group.unended if session.plan is not None)
            group.demand = Demand(self._held.run.id, group.name, self._held.run.accepted_s, plans)
        if not self._admission.enter(group.demand):
            return
        unnamed = [each for each in group.unended if each.attempt is None or each.attempt in group.used]
        group.update(self._each(unnamed, self._next(attempts)))
        if not group.unended:  # all of them had been published
            self._left(group)
            return
        group.launches += 1
        group.used |= {session.attempt for session in group.unended if session.attempt}
        spec = self._spec(group)
        self._asking(lambda: self._launcher.launch(spec))
        group.launched = spec.id
        _LOG.info("%s launched: %s", spec.id, counted(len(group.unended), "session"))

    def _follow(self, group: _Group, attempts: Attempts) -> None:
        """Once a group has ended: what became of its sessions, and when they are tried again."""
        assert group.launched is not None
        status = self._launcher.status(group.launched)
        if status.state is GroupState.RUNNING:
            return
        _LOG.info("%s ended with status %s %s", group.launched, status.exit_status, status.text)
        names = [session.id for session in group.unended]
        group.update(self._asking(lambda: self._state.some_sessions(self._held.run.id, names)))
        self._left(group)
        failed = [session for session in group.unended if session.state is SessionState.RUNNING or session.error]
        group.update(self._each(failed or group.unended, lambda session: self._failed(attempts, session)))
        failures = max((session.failures for session in group.unended), default=0)
        group.not_before_s = time.monotonic() + self._retries.after_s(failures)

    def _failed(self, attempts: Attempts, session: Session) -> Session:
        """A try that did not end its session: another one follows, unless there were enough."""
        why = session.error or _KILLED
        if session.failures + 1 >= self._retries.failures_max:
            said = f"failed {counted(session.failures + 1, 'time')}: {why}"
            return self._asking(lambda: attempts.give_up(session.id, said))
        _LOG.warning("session %s is tried again: %s", session.id, why)
        return self._asking(lambda: attempts.next(session.id, failures=1))

    def _next(self, attempts: Attempts) -> Callable[[Session], Session]:
        return lambda session: self._asking(lambda: attempts.next(session.id))

    @staticmethod
    def _each(sessions: list[Session], change: Callable[[Session], Session]) -> list[Session]:
        with ThreadPoolExecutor(_WRITERS) as threads:
            return list(threads.map(change, sessions))

    def _left(self, group: _Group) -> None:
        if group.demand is not None:
            self._admission.leave(group.demand)
        group.demand, group.launched = None, None

    def _running(self) -> bool:
        return any(group.launched for group in self._groups)

    def _spec(self, group: _Group) -> GroupSpec:
        plans = [session.plan for session in group.unended if session.plan is not None]
        first = plans[0]
        run_id, epoch = self._held.run.id, self._held.epoch
        return GroupSpec(
            id=f"{run_id}.{epoch}.{group.name}.{group.launches}",
            state_uri=self._state.uri,
            job_run_id=run_id,
            group=group.name,
            epoch=epoch,
            executor=first.executor,
            node_type=first.node_type,
            workers_initial=max(plan.workers_initial for plan in plans),
            workers_max=max(plan.workers_max for plan in plans),
            peak_bytes=max(plan.peak_bytes for plan in plans),
        )

    # End

    def _failure(self) -> str | None:
        """Why the job run has failed; None where every session has succeeded or had nothing to do."""
        sessions = [session for group in self._groups for session in group.sessions.values()]
        failed = [session for session in sessions if session.state is SessionState.FAILED]
        if not failed:
            return None
        said = f"{len(failed)} of {counted(len(sessions), 'session')} failed; {failed[0].id}: {failed[0].error}"
        return said[:_ERROR_CHARACTERS_MAX]

    def _end(self, error: str | None) -> None:
        state = JobRunState.FAILED if error else JobRunState.SUCCEEDED
        self._asking(lambda: self._held.end(state, finished_s=time.time(), error=error))
        _LOG.info("job run %s %s%s", self._held.run.id, state, f": {error}" if error else "")

    def _let_go(self) -> None:
        """Nothing of ours runs when this returns, and others may claim the job run."""
        for group in self._groups:
            if group.launched is not None:
                self._launcher.terminate(group.launched)
            self._left(group)
        if not self._held.lost:
            try:
                self._held.release()
            except (LeaseLostError, DeltaCompactError) as error:
                _LOG.warning("job run %s was not given back: %s", self._held.run.id, one_line(error))

    def _asking(self, ask: Callable[[], T]) -> T:
        """Ask a store that may not answer at once."""
        for attempt in Retrying(
            stop=stop_after_attempt(_STORE_TRIES),
            wait=wait_random_exponential(multiplier=0.2, max=10),
            retry=retry_if_exception_type(StoreError),
            reraise=True,
        ):
            with attempt:
                return ask()
        raise AssertionError("unreachable")


def _longest(estimates: Iterable[Estimate]) -> Estimate | None:
    return max(estimates, key=lambda estimate: estimate.seconds, default=None)
