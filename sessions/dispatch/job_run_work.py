"""One job run that we hold, from its claim to its end: what a thread of the dispatcher does.

claimed    RUNNING in an earlier epoch: new attempts at what has not ended, the old ones fenced off
planned    a session for each partition, in groups; expected to take 412 s, of 600 s that are desired
g1         waits for admission, is launched, ends: two sessions succeeded, one is to be tried again
g1         again after some seconds, under a new attempt
g1         records nothing for minutes: it hangs, is ended, and is tried again
g2         never fits the limits: its sessions fail, and say so
g2         its catalog does not answer: it waits, later each time, and for so long others have the place
ended      SUCCEEDED, or FAILED where a session has

told to stop     launches nothing more, lets running groups end, gives the lease back
cancelled        the same, but ends running groups; what they had published stays
lease lost       terminates what it launched: another dispatcher goes on
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deltacompact.base.errors import DeltaCompactError, InputError, StoreError
from deltacompact.base.wording import counted, one_line
from sessions.base.clock import StoreClock
from sessions.base.ids import session_id
from sessions.base.logs import about
from sessions.base.model import Delay, Estimate, JobRunState, Session, SessionPlan, SessionState, Trouble
from sessions.base.patience import patiently
from sessions.base.settings import DispatcherSettings
from sessions.base.troubles import Cause, RetryPolicy, cause_of, given_up, told
from sessions.dispatch.admission import Admission
from sessions.dispatch.attempts import Attempts
from sessions.dispatch.log_keeper import LogKeeper
from sessions.documents.instruction import Instruction, of_values
from sessions.events.due import is_news
from sessions.launchers.chosen import Launchers
from sessions.launchers.launcher import GroupSpec, GroupState
from sessions.planning.admission import Postponed, Waiting
from sessions.planning.learning import RateStore
from sessions.planning.plan import nearest_sla_s
from sessions.planning.prices import LOCAL
from sessions.planning.reasons import Wait
from sessions.planning.refine import expect_job_run, group_estimate, later
from sessions.planning.starts import StartStore
from sessions.records.leases import HeldJobRun, LeaseLostError
from sessions.records.state_store import StateStore

T = TypeVar("T")
Plan = Callable[[Instruction], tuple[SessionPlan, ...]]
"""What the sessions of a document are to run on. Raises NotFoundError, InputError where that cannot be served."""

_LOG = logging.getLogger("sessions")
_LOOK_EVERY_S = 0.1
_WRITERS = 8
_STORE_TRIES = 5
_ERROR_CHARACTERS_MAX = 500
_KILLED = "its process ended before it did"
_CANCELLED = "it was cancelled"
_WORTH_GIVING_BACK_S = 5.0
_STALL_FACTOR = 10
_PROCESS_ENDS_WITHIN_S = 10.0
"""Once its last session has ended: Ray on this machine shuts down. What a cluster says of itself is known later."""
_LOOK_AT_SESSIONS_EVERY_S = 2.0
_LOOK_COUNTS_MAX_S = 10.0
"""Of the time between two looks: a dispatcher that was suspended itself has seen nobody be silent."""
_DELAY_TOLD_AFTER_S = 1.0
_DELAYS_TOLD_AT_ONCE = 32
"""Sessions that are told why they wait, each time that all groups were looked at: it must not hold up the others."""


@dataclass(slots=True)
class Stopping:
    """How a dispatcher ends: `gently` launches nothing more, `now` terminates what runs."""

    gently: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Means:
    """What a dispatcher works with, on every job run."""

    plan: Plan
    launcher: Launchers
    admission: Admission
    rates: RateStore
    starts: StartStore
    settings: DispatcherSettings
    stopping: Stopping = field(default_factory=Stopping)
    clock: StoreClock = field(default_factory=StoreClock)


@dataclass(slots=True)
class _Group:
    """One group of sessions: waiting since `waits_since_s`, then running under `launched`, until all have ended.

    `used` are the attempts that were launched: none is launched twice. `launched_sessions` are those of the launch,
    `learnable` those that ended in a process of ours, for the rates. `silent_s` is for how long its records have not
    changed, by looks that succeeded: a store that does not answer makes nobody silent. `done_s` is since when its
    records say that all has ended while its process or cluster has not.
    """

    name: str
    sessions: dict[str, Session]
    launched: str | None = None
    log: LogKeeper | None = None
    done_s: float | None = None
    launches: int = 0
    launched_sessions: tuple[str, ...] = ()
    looked_s: float = 0.0
    silent_s: float = 0.0
    used: set[str] = field(default_factory=set)
    waiting: Waiting | None = None
    waits_since_s: float = 0.0
    launched_s: float = 0.0
    not_before_s: float = 0.0
    learnable: list[Session] = field(default_factory=list)

    def update(self, sessions: Iterable[Session]) -> None:
        self.sessions.update({session.id: session for session in sessions})
        if not self.unended and self.done_s is None:
            self.done_s = time.monotonic()

    @property
    def unended(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.state.ended]

    @property
    def trouble(self) -> Trouble | None:
        """What keeps it from being launched: of those of its sessions, that which lasts longest."""
        troubles = [session.trouble for session in self.unended if session.trouble is not None]
        return max(troubles, key=lambda trouble: trouble.again_s, default=None)

    @property
    def plans_left(self) -> list[SessionPlan]:
        return [session.plan for session in self.unended if session.plan is not None]

    def left(self, now_s: float) -> Estimate:
        """Seconds from now until a launched group ends."""
        seconds, low_s, high_s = 0.0, 0.0, 0.0
        for session in self.unended:
            expected, over_s = session.plan.expected if session.plan else Estimate(0.0, 0.0, 0.0), 0.0
            if session.state is SessionState.RUNNING and session.started_s is not None:
                expected, over_s = session.expected or expected, now_s - session.started_s
            seconds += max(0.0, expected.seconds - over_s)
            low_s += max(0.0, expected.low_s - over_s)
            high_s += max(0.0, expected.high_s - over_s)
        running = any(session.state is SessionState.RUNNING for session in self.unended)
        start_s = 0.0 if running else max((plan.start_s for plan in self.plans_left), default=0.0)
        start_s = max(0.0, start_s - (time.monotonic() - self.launched_s))
        return later(Estimate(seconds, low_s, high_s), start_s, now_s)

    def to_come(self, now_s: float) -> Estimate:
        """The same for a group that is not launched. It may have to wait before it is tried again."""
        return later(group_estimate(self.plans_left), max(0.0, self.not_before_s - time.monotonic()), now_s)

    def lingers(self) -> bool:
        """Whether nothing is left to do for a process that had its time to end since, or for a cluster."""
        if self.unended or self.done_s is None:
            return False
        is_process = all(session.plan is None or session.plan.launcher == LOCAL for session in self.sessions.values())
        return not is_process or time.monotonic() - self.done_s > _PROCESS_ENDS_WITHIN_S

    def patience_s(self, stall_s: float) -> float:
        """How long its sessions may record nothing. Each try gets twice as long, because the plan may be wrong."""
        longest_s = max((plan.start_s + plan.expected.seconds for plan in self.plans_left), default=0.0)
        failures = max((session.failures for session in self.unended), default=0)
        return float(max(stall_s, _STALL_FACTOR * longest_s) * 2**failures)


class JobRunWork:
    """Does the work of one held job run. `run` reads like the design."""

    def __init__(self, held: HeldJobRun, means: Means) -> None:
        self._held = held
        self._state: StateStore = held.state
        self._plan = means.plan
        self._launcher = means.launcher
        self._admission = means.admission
        self._rates = means.rates
        self._starts = means.starts
        self._settings = means.settings
        self._stopping = means.stopping
        self._clock = means.clock
        self._policy = RetryPolicy(means.settings.give_up_after_s, means.settings.tries)
        self._groups: list[_Group] = []
        self._planned_sessions: list[Session] = []
        self._look_again_s = time.monotonic() + _LOOK_AT_SESSIONS_EVERY_S
        self._delays_left = 0

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
        except InputError as error:  # accepted by another version
            self._end(one_line(error))
            return
        if self._held.run.state is JobRunState.ACCEPTED:
            if self._held.run.cancelling:
                self._end(None)
                return
            plans = self._plans(instruction)
            if plans is None:
                return
            self._asking(lambda: self._planned(plans))
        attempts = Attempts(self._held, instruction, policy=self._policy, clock=self._clock)
        self._groups = self._taken(attempts)
        while any(group.unended or group.launched for group in self._groups):
            if self._stopping.gently.is_set() and (self._stopping.now.is_set() or not self._running()):
                return
            if self._held.lost:
                raise LeaseLostError(f"job run {self._held.run.id}: the lease of epoch {self._held.epoch} is lost")
            if self._held.run.cancelling:
                self._cancel(attempts)
                break
            if (trouble := self._all_wait_for()) is not None:
                self._asking(lambda trouble=trouble: self._held.change(trouble=trouble))  # type: ignore[misc]
                _LOG.info("job run %s is given back: %s", self._held.run.id, told(trouble))
                return
            self._delays_left = _DELAYS_TOLD_AT_ONCE
            for group in self._groups:
                if group.launched is not None:
                    self._follow(group, attempts)
                elif group.unended and not self._stopping.gently.is_set():
                    self._start(group, attempts)
            self._look()
            time.sleep(_LOOK_EVERY_S)
        self._end(self._failure())

    # Plan

    def _plans(self, instruction: Instruction) -> tuple[SessionPlan, ...] | None:
        """The plans of the sessions; None where the job run has failed, or waits for what passes."""
        try:
            return self._plan(instruction)
        except Exception as error:
            text, cause = one_line(error), cause_of(error)
            if cause is None:  # nothing that another dispatcher, or another try, would do better
                if not isinstance(error, DeltaCompactError):
                    _LOG.warning("job run %s cannot be planned", self._held.run.id, exc_info=True)
                self._end(text)
                return None
            self._put_off(cause, text)
            return None

    def _put_off(self, cause: Cause, text: str) -> None:
        """Give the job run back until it is time for another try; where there were enough, it has failed."""
        before, now_s = self._held.run.trouble, self._clock()
        trouble = self._policy.next(before, cause, text, now_s)
        if trouble is None:
            self._end(given_up(before, text, now_s))
            return
        self._asking(lambda: self._held.change(trouble=trouble))
        _LOG.warning("job run %s cannot be planned now: %s", self._held.run.id, told(trouble))

    def _all_wait_for(self) -> Trouble | None:
        """The trouble that ends first, where no group runs and each one waits for a while: others have the place."""
        soon_s = self._clock() + _WORTH_GIVING_BACK_S
        waiting = [group for group in self._groups if group.unended]
        troubles = [trouble for group in waiting if (trouble := group.trouble) is not None and trouble.again_s > soon_s]
        if len(troubles) < len(waiting) or any(group.launched for group in waiting):
            return None
        return min(troubles, key=lambda trouble: trouble.again_s, default=None)

    def _planned(self, plans: tuple[SessionPlan, ...]) -> None:
        """Record the sessions, then that the job run is running. What an earlier epoch recorded stays as it is."""
        run = self._held.run
        plans = tuple(replace(plan, group=f"{plan.group}.{self._held.epoch}") for plan in plans)
        self._launcher.ready()
        groups: dict[str, list[SessionPlan]] = {}
        for plan in plans:
            groups.setdefault(plan.group, []).append(plan)
        with ThreadPoolExecutor(_WRITERS) as threads:
            self._planned_sessions = list(threads.map(self._recorded, plans))
        names = {group: [session_id(plan.partition) for plan in members] for group, members in groups.items()}
        for group, of_group in names.items():
            self._state.put_group(run.id, group, of_group)
        now_s = self._clock()
        waiting = [group_estimate(members, now_s) for members in groups.values()]
        first = self._wants(*next(iter(groups.items()))) if groups else None
        others = self._admission.before(first, ())
        expected = expect_job_run([], waiting, self._at_once(plans), 0.0, now_s, others) if plans else None
        nearest_s = nearest_sla_s(plans)
        if nearest_s is not None:
            _LOG.warning("desired SLA %s s cannot be met, the nearest that can is %s s", run.desired_sla_s, nearest_s)
        self._held.change(
            state=JobRunState.RUNNING,
            started_s=now_s,
            nearest_sla_s=nearest_s,
            expected_first=expected,
            expected=expected,
            session_ids=tuple(name for of_group in names.values() for name in of_group),
            launchers=tuple(sorted({plan.launcher for plan in plans})),
            trouble=None,
        )

    def _recorded(self, plan: SessionPlan) -> Session:
        name, run = session_id(plan.partition), self._held.run
        session = Session(name, run.id, plan.partition, plan=plan, life=run.life)
        session = replace(session, expected_first=plan.expected, expected=plan.expected)
        if not self._state.add_session(session):
            # An earlier epoch recorded it and died before the job run was running, or it is of an earlier life.
            stored = self._state.session(run.id, name)
            again = _again(stored.value, session, was_ours=name in run.session_ids)
            if again != stored.value and self._state.change_session(stored, again) is None:
                raise StoreError(f"session {name} was changed meanwhile")
            return again
        return session

    # Groups

    def _taken(self, attempts: Attempts) -> list[_Group]:
        """The sessions as they are recorded, in groups. What an earlier epoch has launched can publish no more."""
        groups: dict[str, _Group] = {}
        sessions = self._planned_sessions or self._state.some_sessions(self._held.run.id, self._held.run.session_ids)
        launched = [session for session in sessions if session.attempt is not None and not session.state.ended]
        taken = {session.id: session for session in [*sessions, *self._each(launched, self._next(attempts))]}
        for session in taken.values():
            assert session.plan is not None
            groups.setdefault(session.plan.group, _Group(session.plan.group, {})).sessions[session.id] = session
        for group in groups.values():
            self._wait_for_trouble(group)
        return list(groups.values())

    def _wait_for_trouble(self, group: _Group) -> None:
        """Start a group again when what its sessions met may have passed."""
        if (trouble := group.trouble) is not None:
            after_s = max(0.0, trouble.again_s - self._clock())
            group.not_before_s = max(group.not_before_s, time.monotonic() + after_s)

    def _start(self, group: _Group, attempts: Attempts) -> None:
        """Launch a group if it may start now."""
        if time.monotonic() < group.not_before_s:
            return
        if group.waiting is None:
            group.waiting = self._wants(group.name, group.plans_left)
            group.waits_since_s = time.monotonic()
        if (postponed := self._admission.enter(group.waiting, group_estimate(group.plans_left))) is not None:
            self._postponed(group, postponed, attempts)
            return
        group.update(self._each(self._unnamed(group), self._next(attempts)))
        if not group.unended or self._unnamed(group):  # all of them had been published, or one cannot be fenced off
            self._left(group)
            self._wait_for_trouble(group)
            return
        if self._held.run.trouble is not None:
            self._asking(lambda: self._held.change(trouble=None))
        group.launches += 1
        group.used |= {session.attempt for session in group.unended if session.attempt}
        group.launched_sessions = tuple(session.id for session in group.unended)
        spec = self._spec(group)
        group.launched_s, group.silent_s = time.monotonic(), 0.0
        try:
            self._launcher.launch(spec)
        except StoreError as error:
            self._not_launched(group, attempts, one_line(error))
            return
        group.launched, group.done_s = spec.id, None
        group.log = LogKeeper(self._state, self._launcher, spec.id, spec.launcher)
        _LOG.info("%s launched: %s", spec.id, counted(len(group.unended), "session"))

    def _not_launched(self, group: _Group, attempts: Attempts, why: str) -> None:
        """This machine lacks what a process takes: the group waits, and no session has failed for it."""
        self._left(group)
        cause = Cause.RESOURCES
        group.update(self._each(group.unended, lambda session: self._failed(attempts, session, why, cause)))
        self._wait_for_trouble(group)

    def _follow(self, group: _Group, attempts: Attempts) -> None:
        """Once a group has ended or hangs: what became of its sessions, and when they are tried again."""
        assert group.launched is not None and group.log is not None
        group.log.look()
        status, why = self._launcher.status(group.launched), _KILLED
        if status.state is GroupState.RUNNING:
            if group.silent_s <= group.patience_s(self._settings.stall_s) and not group.lingers():
                return
            if group.unended:
                why = f"it recorded nothing for {group.silent_s:,.0f} s, so its process was ended"
                _LOG.warning("%s hangs: %s", group.launched, why)
        else:
            _LOG.info("%s ended with status %s %s", group.launched, status.exit_status, status.text)
            why = status.text if status.cause else why
        took_s = time.monotonic() - group.launched_s
        self._gone(group)
        self._see(group, [session.id for session in group.unended])
        self._learn(group, took_s)
        self._left(group)
        failed = [session for session in group.unended if session.state is SessionState.RUNNING or session.error]
        cause = status.cause
        group.update(self._each(failed or group.unended, lambda session: self._failed(attempts, session, why, cause)))
        failures = max((session.failures for session in group.unended), default=0)
        group.not_before_s = time.monotonic() + self._policy.wait_s(failures)
        self._wait_for_trouble(group)

    def _unnamed(self, group: _Group) -> list[Session]:
        """The sessions that have no attempt of this epoch, or one that was launched already."""
        return [
            session
            for session in group.unended
            if session.attempt is None or session.attempt in group.used or session.epoch != self._held.epoch
        ]

    def _name(self, group: str) -> str:
        """The name of a group, which no group of another job run has."""
        return f"{self._held.run.id}/{group}"

    def _wants(self, group: str, plans: list[SessionPlan]) -> Waiting:
        return Waiting.of(self._name(group), plans, self._held.run.accepted_s, self._admission.limits.slots)

    def _postponed(self, group: _Group, postponed: Postponed, attempts: Attempts) -> None:
        """The records of its sessions say why a group waits, unless it is for a moment. What never fits has failed."""
        if postponed.wait is Wait.NEVER_FITS:
            self._left(group)
            group.update(self._each(group.unended, lambda session: attempts.give_up(session.id, postponed.text)))
            return
        delay = Delay(postponed.wait, postponed.text, postponed.until_s)
        if time.monotonic() - group.waits_since_s < _DELAY_TOLD_AFTER_S:
            return
        untold = [session for session in group.unended if session.delay != delay][: self._delays_left]
        self._delays_left -= len(untold)
        group.update(self._each(untold, lambda session: self._told_delay(session, delay)))

    def _told_delay(self, session: Session, delay: Delay) -> Session:
        try:
            stored = self._state.session(session.job_run_id, session.id)
            told = replace(stored.value, delay=delay)
            if stored.value.state is SessionState.PLANNED:
                self._state.change_session(stored, told)  # whoever was faster has news of it
        except StoreError as error:
            _LOG.info("why session %s waits could not be told: %s", session.id, one_line(error))
        return replace(session, delay=delay)

    def _failed(self, attempts: Attempts, session: Session, how: str, launch: Cause | None) -> Session:
        """A try that did not end its session: another one follows, unless there were enough."""
        why, cause = session.error or how, launch or (Cause(session.cause) if session.cause else None)
        if cause is not None:
            now_s = self._clock()
            trouble = self._policy.next(session.trouble, cause, why, now_s, session.progress.round)
            if trouble is None:
                said = given_up(session.trouble, why, now_s)
                return self._asking(lambda: attempts.give_up(session.id, said))
            _LOG.warning("session %s waits: %s", session.id, told(trouble))
            return self._asking(lambda: attempts.next(session.id, trouble=trouble))
        if session.failures + 1 >= self._settings.tries:
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
        if group.waiting is not None:
            self._admission.leave(group.waiting.takes.group)
        group.waiting, group.launched = None, None

    def _gone(self, group: _Group) -> None:
        """Nothing is left of a process or cluster whose group has ended, but what it printed."""
        assert group.launched is not None and group.log is not None
        group.log.keep()
        try:
            self._launcher.terminate(group.launched)
        except StoreError as error:
            _LOG.error("%s may still run, the reaper looks after it: %s", group.launched, one_line(error))

    def _running(self) -> bool:
        return any(group.launched for group in self._groups)

    def _spec(self, group: _Group) -> GroupSpec:
        plans = group.plans_left
        first = plans[0]
        run_id, epoch = self._held.run.id, self._held.epoch
        return GroupSpec(
            id=f"{run_id}.{epoch}.{group.name}.{group.launches}",
            state_uri=self._state.uri,
            job_run_id=run_id,
            group=group.name,
            epoch=epoch,
            executor=first.executor,
            launcher=first.launcher,
            node_type=first.node_type,
            workers_initial=max(plan.workers_initial for plan in plans),
            workers_max=max(plan.workers_max for plan in plans),
            peak_bytes=max(plan.peak_bytes for plan in plans),
        )

    # What is expected, and what was learned

    def _look(self) -> None:
        """See how far sessions are, and say so where the job run is expected to take longer or less for it."""
        if time.monotonic() < self._look_again_s:
            return
        self._look_again_s = time.monotonic() + _LOOK_AT_SESSIONS_EVERY_S
        try:
            for group in self._groups:
                self._see_running(group)
            expected, run = self._expected(), self._held.run
            if is_news(run.expected, expected, run.desired_sla_s):
                self._held.change(expected=expected)
        except StoreError as error:
            _LOG.info("how far sessions are could not be seen: %s", one_line(error))

    def _see_running(self, group: _Group) -> None:
        """Read sessions that may have changed: as they run one by one, up to the first that has not ended."""
        if group.launched is None:
            return
        since_s = max(group.looked_s, group.launched_s)
        changed = False
        for session in group.unended:
            changed |= self._see(group, [session.id])
            if not group.sessions[session.id].state.ended:
                break
        group.looked_s = time.monotonic()
        group.silent_s = 0.0 if changed else group.silent_s + min(group.looked_s - since_s, _LOOK_COUNTS_MAX_S)

    def _see(self, group: _Group, names: list[str]) -> bool:
        """Read sessions; whether one of them has changed."""
        seen = self._asking(lambda: self._state.some_sessions(self._held.run.id, names))
        changed = any(group.sessions[session.id] != session for session in seen)
        group.update(seen)
        group.learnable += [session for session in seen if session.state is SessionState.SUCCEEDED]
        return changed

    def _expected(self) -> Estimate:
        """The estimate of the whole job run: running groups have some seconds left, others wait for a place."""
        now_s, unended = self._clock(), [group for group in self._groups if group.unended]
        running = [group.left(now_s) for group in unended if group.launched]
        waiting = [group.to_come(now_s) for group in unended if not group.launched]
        ours = {self._name(group.name) for group in self._groups}
        first = next((group.waiting for group in unended if not group.launched), None)
        others = self._admission.before(first, ours)
        plans = [plan for group in unended for plan in group.plans_left]
        elapsed_s = now_s - (self._held.run.started_s or now_s)
        return expect_job_run(running, waiting, self._at_once(plans), elapsed_s, now_s, others)

    def _at_once(self, plans: Sequence[SessionPlan]) -> int:
        """Groups that run at a time; on this machine they share its CPUs, as planned."""
        limits = self._admission.limits
        if limits.slots is None or not plans or any(plan.node_type != LOCAL for plan in plans):
            return limits.sessions_max
        return max(1, min(limits.sessions_max, limits.slots // max(plan.slots for plan in plans)))

    def _learn(self, group: _Group, took_s: float) -> None:
        """Learn what sessions and their group took, for what the next ones are expected to take."""
        ran = [group.sessions[name] for name in group.launched_sessions]
        inside_s = [session.outcome.seconds for session in ran if session.outcome and session.attempts == 1]
        try:
            self._rates.learn(group.learnable)
            if ran and len(inside_s) == len(ran) and (plan := ran[0].plan):
                self._starts.learn(f"{plan.launcher}/{plan.executor}", took_s - sum(inside_s))
        except DeltaCompactError as error:
            _LOG.warning("nothing could be learned from %s: %s", group.name, one_line(error))
        group.learnable.clear()

    # End

    def _cancel(self, attempts: Attempts) -> None:
        """End what runs gently, and see to it that nothing of it publishes any more. What is published stays."""
        for group in self._groups:
            if group.launched is not None:
                self._gone(group)
                self._see(group, [session.id for session in group.unended])
            self._left(group)
            group.update(
                self._each(
                    group.unended,
                    lambda session: self._asking(
                        lambda: attempts.give_up(session.id, _CANCELLED, SessionState.CANCELLED)
                    ),
                )
            )

    def _failure(self) -> str | None:
        """Why the job run has failed; None where every session has succeeded or had nothing to do."""
        sessions = [session for group in self._groups for session in group.sessions.values()]
        failed = [session for session in sessions if session.state is SessionState.FAILED]
        if any(session.state is SessionState.CANCELLED for session in sessions):
            return None
        if not failed:
            return None
        said = f"{len(failed)} of {counted(len(sessions), 'session')} failed; {failed[0].id}: {failed[0].error}"
        return said[:_ERROR_CHARACTERS_MAX]

    def _end(self, error: str | None) -> None:
        state = JobRunState.FAILED if error else JobRunState.CANCELLED if self._cancelled() else JobRunState.SUCCEEDED
        ended = {"finished_s": self._clock(), "error": error, "trouble": None, "cancelling": False}
        self._asking(lambda: self._held.end(state, **ended))
        _LOG.info("job run %s %s%s", self._held.run.id, state, f": {error}" if error else "")

    def _cancelled(self) -> bool:
        """Whether a session was, or the job run before it had any. One that had succeeded by then has succeeded."""
        sessions = [session for group in self._groups for session in group.sessions.values()]
        was_cancelled = any(session.state is SessionState.CANCELLED for session in sessions)
        return was_cancelled or (self._held.run.cancelling and self._held.run.state is JobRunState.ACCEPTED)

    def _let_go(self) -> None:
        """Nothing of ours runs when this returns, and others may claim the job run."""
        for group in self._groups:
            if group.launched is not None:
                self._gone(group)
            self._left(group)
        if not self._held.lost:
            try:
                self._held.release()
            except (LeaseLostError, DeltaCompactError) as error:
                _LOG.warning("job run %s was not given back: %s", self._held.run.id, one_line(error))

    def _asking(self, ask: Callable[[], T]) -> T:
        """Ask a store that may not answer at once."""
        return patiently(ask, _STORE_TRIES, wait_max_s=10)


def _again(stored: Session, planned: Session, was_ours: bool) -> Session:
    """A session that was recorded before, as it is planned now.

    One of this life was not launched: it begins. Of an earlier life, what has succeeded for this document stays; the
    last attempt at anything else is fenced off before the next one.
    """
    again = replace(planned, epoch=stored.epoch, attempts=stored.attempts)
    if stored.life == planned.life or not was_ours:
        return again
    if stored.state in (SessionState.SUCCEEDED, SessionState.NOTHING_TO_DO):
        return stored
    return replace(again, attempt=stored.attempt, engine_session_id=stored.engine_session_id)
