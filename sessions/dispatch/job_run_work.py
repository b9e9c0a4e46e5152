"""The work on one job run that we hold, from its claim to its end, in a thread of the dispatcher.

claimed    RUNNING in an earlier epoch: new attempts at sessions that have not ended; old attempts are fenced off
planned    a session for each partition, in groups; expected to take 412 s, of the desired 600 s
worked     each group is started and followed, see group_work.py
shown      in the table to which the destination is published, see showing.py
ended      SUCCEEDED, or FAILED if a session has failed, or the published table does not show what was compacted

a record is gone or damaged    FAILED, with its sessions: nobody would ever end it, and it would hold up the job runs of
                               its stream
an error that we do not know   given back; FAILED after as many as a session may have failures
told to stop     launches nothing more, lets running groups end, gives the lease back
cancelled        the same, but ends running groups; published versions stay, and are shown
lease lost       terminates its groups: another dispatcher works on
"""

from __future__ import annotations

import logging
import time

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.wording import counted, one_line
from sessions.base.logs import about
from sessions.base.model import JobRunSession, JobRunState, SessionPlan, SessionState, Trouble
from sessions.base.troubles import Cause, RetryPolicy, cause_of, given_up, left_s, span, trouble_text
from sessions.dispatch.asking import asking, each
from sessions.dispatch.attempts import SessionAttempts
from sessions.dispatch.delays import Delays
from sessions.dispatch.forecast import JobRunForecast
from sessions.dispatch.group_work import GroupWork
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.looks import Looks
from sessions.dispatch.means import Means
from sessions.dispatch.planned import record_plans
from sessions.dispatch.retries import Retries
from sessions.dispatch.showing import NotShown, Showing
from sessions.documents.instruction import Instruction, of_accepted
from sessions.planning.refine import group_estimate
from sessions.records.leases import HeldJobRun, LeaseLostError

_LOG = logging.getLogger("sessions")
_ROUND_EVERY_S = 0.1
_ERROR_CHARACTERS_MAX = 500
_WORTH_GIVING_BACK_S = 5.0
_PLANNED_WHOLE_WITHIN_S = 60.0
"""So long a partition that does not answer holds up the plans of the others."""


class JobRunWork:
    """Does the work of one held job run. Start with `run`."""

    def __init__(self, held: HeldJobRun, means: Means) -> None:
        self._held = held
        self._means = means
        self._forecast = JobRunForecast(held, means)
        self._looks = Looks(held, means, self._forecast)
        self._group_work: GroupWork
        self._groups: list[HeldGroup] = []

    def run(self) -> None:
        """Bring the job run to its end, or give it back."""
        with about(job_run=self._held.run.id, epoch=self._held.epoch):
            unexpected: Exception | None = None
            try:
                self._work()
            except LeaseLostError as lost:
                _LOG.warning("%s", lost)
            except Exception as error:
                _LOG.error("job run %s: %s", self._held.run.id, one_line(error), exc_info=True)
                unexpected = error
            finally:
                self._let_go(unexpected)

    def _work(self) -> None:
        try:
            instruction = of_accepted(self._held.run.document)
        except InputError as error:  # accepted by another version
            self._end(one_line(error))
            return
        sessions = self._sessions(instruction)
        if sessions is None:
            return
        self._group_work = self._work_on(instruction)
        self._groups = self._group_work.taken(sessions)
        while any(group.unended or group.launched for group in self._groups):
            stopping = self._means.stopping
            if stopping.gently.is_set() and (stopping.now.is_set() or not self._running()):
                return
            self._check_lease()
            if self._held.run.cancelling:
                self._group_work.cancel(self._groups)
                break
            if (trouble := self._all_wait_for()) is not None:
                asking(lambda trouble=trouble: self._held.change(trouble=trouble))  # type: ignore[misc]
                _LOG.info("job run %s is given back: %s", self._held.run.id, trouble_text(trouble))
                return
            self._round(self._group_work)
            time.sleep(_ROUND_EVERY_S)
        self._show_and_end(instruction)

    def _check_lease(self) -> None:
        if self._held.lost:
            raise LeaseLostError(f"job run {self._held.run.id}: the lease of epoch {self._held.epoch} is lost")

    def _work_on(self, instruction: Instruction) -> GroupWork:
        held, means = self._held, self._means
        retries, wait_s = self._retries(instruction), instruction.engine_settings().ray_wait_s
        return GroupWork(held, means, self._looks, retries, Delays(held.state), wait_s)

    def _retries(self, instruction: Instruction) -> Retries:
        means, limits = self._means, self._means.admission.limits
        attempts = SessionAttempts(self._held, instruction, policy=means.policy, clock=means.clock, limits=limits)
        return Retries(attempts, means)

    def _round(self, work: GroupWork) -> None:
        """Look after each group once."""
        work.delays.begin()
        if not self._means.stopping.gently.is_set():
            self._wait_for_places()
        waiting = [group for group in self._groups if group.launched is None]
        work.follow(group for group in self._groups if group.launched is not None)
        work.start(waiting)
        self._looks.look(self._groups)

    def _wait_for_places(self) -> None:
        """All groups that want to start wait from now on, before the first one asks: there is one decision for all."""
        now_s = time.monotonic()
        come = [group for group in self._groups if group.wants_a_place(now_s)]
        for group in come:
            group.waiting = self._forecast.waiting(group.name, group.plans_left)
            group.waits_since_s = now_s
        waiting = [(group.waiting, group_estimate(group.plans_left)) for group in come if group.waiting is not None]
        self._means.admission.wait(waiting)

    # Plan

    def _sessions(self, instruction: Instruction) -> list[JobRunSession] | None:
        """The recorded sessions. None: the job run has ended, or waits for a trouble to pass."""
        held = self._held
        if held.run.state is not JobRunState.ACCEPTED:
            return list(held.state.some_sessions(held.run.id, held.run.session_ids))
        if held.run.cancelling:
            self._end(None)
            return None
        plans = self._plans(instruction)
        return None if plans is None else asking(lambda: record_plans(held, self._means, plans))

    def _plans(self, instruction: Instruction) -> tuple[SessionPlan, ...] | None:
        """The plans of the sessions. None: the job run has failed, or waits for a trouble to pass."""
        try:
            return self._means.plan(instruction, self._is_patient())
        except Exception as error:
            text, cause = one_line(error), cause_of(error)
            if cause is None:  # no other dispatcher or later try would do better
                if not isinstance(error, DeltaCompactError):
                    _LOG.warning("job run %s cannot be planned", self._held.run.id, exc_info=True)
                self._end(text)
            elif (given_up_text := self._put_off(self._held.run.trouble, cause, text, self._means.policy)) is not None:
                self._end(given_up_text)
            return None

    def _is_patient(self) -> bool:
        """Whether a partition that does not answer is waited for, so that its plan is no guess."""
        trouble = self._held.run.trouble
        limit_s = min(_PLANNED_WHOLE_WITHIN_S, self._means.policy.give_up_after_s)
        return trouble is None or self._means.clock() - trouble.since_s < limit_s

    def _put_off(
        self, before: Trouble | None, cause: Cause, text: str, policy: RetryPolicy, unshown: bool = False
    ) -> str | None:
        """Give the job run back until another try. After enough tries, say why there is none."""
        now_s = self._means.clock()
        trouble = policy.next(before, cause, text, now_s)
        if trouble is None:
            return given_up(before, text, now_s)
        asking(lambda: self._held.change(trouble=trouble, unshown=unshown))
        _LOG.warning("job run %s is given back: %s", self._held.run.id, trouble_text(trouble))
        return None

    def _all_wait_for(self) -> Trouble | None:
        """The trouble that ends first, if no group runs and each waits for a while: then the job run is given back."""
        if self._running():
            return None
        now_s, troubles = self._means.clock(), []
        for group in self._groups:
            if group.unended:
                trouble = group.trouble
                if trouble is None or left_s(trouble, now_s) <= _WORTH_GIVING_BACK_S:
                    return None
                troubles.append(trouble)
        return min(troubles, key=lambda trouble: trouble.again_s, default=None)

    def _running(self) -> bool:
        return any(group.launched for group in self._groups)

    # End

    def _show_and_end(self, instruction: Instruction) -> None:
        """Show what was compacted, and end the job run; or give it back until another try."""
        within_s = self._means.showing.within_s
        showing = Showing(instruction, self._all_sessions(), self._means.showing)
        try:
            error = self._try_to_show(showing, within_s)
        finally:
            showing.leave()
        if self._means.stopping.now.is_set():
            return
        unshown = error.text if error else None
        if error and error.cause and not self._held.run.cancelling:
            policy = self._means.policy
            if showing.target is not None:
                policy = RetryPolicy(min(within_s, policy.give_up_after_s), tries=1)
            unshown = self._put_off(self._trouble_of(showing, error), error.cause, error.text, policy, unshown=True)
            if unshown is None:
                return
        if unshown is not None:
            unshown = f"{unshown[:_ERROR_CHARACTERS_MAX]}; once that is mended, publish or job-runs retry shows it"
        errors = [error for error in (self._failure(), unshown) if error]
        self._end("; ".join(errors) or None, unshown is not None)

    def _try_to_show(self, showing: Showing, within_s: float) -> NotShown | None:
        """Start a try, and wait for it unless it hangs, or the job run is cancelled meanwhile. A job run that was
        cancelled before is shown, too."""
        cancelled = self._held.run.cancelling
        showing.start()
        while showing.is_alive() and not self._means.stopping.now.is_set():
            self._check_lease()
            if self._held.run.cancelling and not cancelled:
                return NotShown.because(showing.target, "the job run was cancelled", None)
            if showing.lasted_s > within_s:
                return NotShown.because(showing.target, f"no answer within {span(within_s)}", Cause.UNREACHABLE)
            showing.join(_ROUND_EVERY_S)
        return showing.error

    def _trouble_of(self, showing: Showing, error: NotShown) -> Trouble:
        """The trouble of showing before this try: it began with the first try. The trouble of a session is another, and
        so is that of a lake that did not say whether the table is published: its answer counts as a round."""
        run, rounds = self._held.run, int(showing.target is not None)
        if run.unshown and run.trouble is not None and run.trouble.rounds >= rounds:
            return run.trouble
        assert error.cause is not None
        began_s = self._means.clock() - showing.lasted_s
        return Trouble(error.cause, error.text, began_s, 0, began_s, rounds)

    def _failed_by(self, error: Exception) -> None:
        """Count an error that does not pass. End the job run after enough of them, and at once if one of its records
        is gone or damaged."""
        failures, text = self._held.run.failures + 1, one_line(error)
        if isinstance(error, NotFoundError | CorruptionError):
            self._fail(text)
        elif failures >= self._means.settings.tries:
            self._fail(f"failed {counted(failures, 'time')}: {text}")
        else:
            asking(lambda: self._held.change(failures=failures))

    def _fail(self, text: str) -> None:
        """End the job run and those of its sessions that can be read: nobody follows them any more. Sessions of an
        earlier life are left alone: they may be of another document."""
        run, state = self._held.run, self._held.state
        retries: Retries | None = None
        try:
            retries = self._retries(of_accepted(run.document))
        except Exception as error:  # the document may be what has failed: the job run ends all the same
            _LOG.warning("sessions of job run %s cannot be ended: %s", run.id, one_line(error))

        def ended(session: JobRunSession) -> JobRunSession:
            if retries is None or session.state.ended or session.life != run.life:
                return session
            try:
                return retries.give_up(session, f"its job run has failed: {text}")
            except LeaseLostError:
                raise
            except Exception as error:
                _LOG.warning("session %s could not be ended: %s", session.id, one_line(error))
                return session

        sessions = each(asking(lambda: list(state.sessions(run.id))), ended)
        compacted = {session.id for session in sessions if session.state.compacted}
        failed = tuple(name for name in run.session_ids if name not in compacted)  # those that cannot be read, too
        self._end_as(JobRunState.FAILED, text, failed)

    def _failure(self) -> str | None:
        """Why the job run has failed. None: no session has failed, or the job run was cancelled."""
        sessions, failed = self._all_sessions(), self._failed()
        if any(session.state is SessionState.CANCELLED for session in sessions):
            return None
        if not failed:
            return None
        said = f"{len(failed)} of {counted(len(sessions), 'session')} failed; {failed[0].id}: {failed[0].error}"
        return said[:_ERROR_CHARACTERS_MAX]

    def _end(self, error: str | None, unshown: bool = False) -> None:
        failed = tuple(session.id for session in self._failed())
        self._end_as(self._end_state(error), error, failed, unshown)

    def _end_as(self, state: JobRunState, error: str | None, failed: tuple[str, ...], unshown: bool = False) -> None:
        ended = {"finished_s": self._means.clock(), "error": error, "trouble": None, "cancelling": False}
        asking(lambda: self._held.end(state, **ended, failed_session_ids=failed, unshown=unshown))
        _LOG.info("job run %s %s%s", self._held.run.id, state, f": {error}" if error else "")

    def _end_state(self, error: str | None) -> JobRunState:
        """CANCELLED if a session was cancelled, or the job run was before it had sessions. A job run whose sessions had
        all succeeded by then has succeeded."""
        if any(session.state is SessionState.CANCELLED for session in self._all_sessions()):
            return JobRunState.CANCELLED
        if error:
            return JobRunState.FAILED
        cancelled = self._held.run.cancelling and self._held.run.state is JobRunState.ACCEPTED
        return JobRunState.CANCELLED if cancelled else JobRunState.SUCCEEDED

    def _all_sessions(self) -> list[JobRunSession]:
        return [session for group in self._groups for session in group.sessions.values()]

    def _failed(self) -> list[JobRunSession]:
        return [session for session in self._all_sessions() if session.state is SessionState.FAILED]

    def _let_go(self, unexpected: Exception | None) -> None:
        """End all groups, and give the job run back: other dispatchers may claim it, unless an error has ended it."""
        if self._groups:
            self._group_work.let_go(self._groups)
        if not self._held.lost:
            try:
                if unexpected is not None and cause_of(unexpected) is None:
                    self._failed_by(unexpected)
                if not self._held.lost:
                    self._held.release()
            except (LeaseLostError, DeltaCompactError) as error:
                _LOG.warning("job run %s was not given back: %s", self._held.run.id, one_line(error))
