"""An observer of the records that puts what follows from each change into the outbox.

    accepted -> running, epoch 1          a claim: everything that follows from the record, in case a crash kept it back
    round 2 -> round 3                    round_completed~2
    expected 412 s -> 405 s               nothing
    expected 412 s -> 380 s               sla.updated

It runs wherever records are written: in dispatchers and in the processes of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError
from sessions.base.model import JobRun, JobRunSession
from sessions.events.due import estimate_told, events_of_job_run, events_of_session, is_news
from sessions.events.event import JobRunEvent
from sessions.events.outbox import Outbox
from sessions.records.state_store import StateStore


class EventRecorder:
    """Records events. Job runs are remembered for what their sessions' events say of them.

    `accepted` and `claimed` are the job runs that this process did so with: whose events its courier delivers. Of those
    that it claimed, `latest` is what it last wrote.
    """

    def __init__(self, state: StateStore) -> None:
        self.accepted: set[str] = set()
        self.claimed: set[str] = set()
        self.latest: dict[str, JobRun] = {}
        self._state = state
        self._outbox = Outbox(state.store)
        self._job_runs: dict[str, JobRun] = {}

    def know(self, run: JobRun) -> None:
        """A job run that was read already: events say of it what never changes."""
        self._job_runs.setdefault(run.id, run)

    def changed(self, before: JobRun | JobRunSession | None, after: JobRun | JobRunSession) -> None:
        if isinstance(after, JobRun):
            assert before is None or isinstance(before, JobRun)
            self._job_run_changed(before, after)
        else:
            assert before is None or isinstance(before, JobRunSession)
            self._session_changed(before, after)

    def _job_run_changed(self, before: JobRun | None, after: JobRun) -> None:
        if before is None or _epoch(before) != _epoch(after):
            (self.accepted if before is None else self.claimed).add(after.id)
            ours = before is not None and after.id in self.accepted  # what follows from it was recorded when we did so
            if not ours:
                self._outbox.expect(after.id)
            known = events_of_job_run(before) if ours and before is not None else []
        else:
            known = events_of_job_run(before)
        self._job_runs[after.id] = after
        if after.id in self.claimed:
            self.latest[after.id] = after
        self._record(known, events_of_job_run(after))
        self._record_estimate(before, after, after)
        if after.state.ended:
            del self._job_runs[after.id]

    def _session_changed(self, before: JobRunSession | None, after: JobRunSession) -> None:
        run = self._job_run(after.job_run_id)
        tried_again = before is None or (before.epoch, before.attempts) != (after.epoch, after.attempts)
        known = [] if tried_again or before is None else events_of_session(before, run)
        self._record(known, events_of_session(after, run))
        self._record_estimate(before, after, run)

    def _record(self, known: list[JobRunEvent], now: list[JobRunEvent]) -> None:
        told = {event.name for event in known}
        for event in now:
            if event.name not in told:
                self._outbox.record(event)

    def _record_estimate(
        self, before: JobRun | JobRunSession | None, after: JobRun | JobRunSession, run: JobRun | None
    ) -> None:
        desired_s = run.desired_sla_s if run else None
        if is_news(before.expected if before else None, after.expected, desired_s):
            event = estimate_told(after, run)
            assert event is not None
            self._outbox.record(event)

    def _job_run(self, job_run_id: str) -> JobRun | None:
        """A job run as it was once read. The fields that events need never change."""
        if job_run_id not in self._job_runs:
            try:
                self._job_runs[job_run_id] = self._state.job_run(job_run_id).value
            except DeltaCompactError:
                return None
        return self._job_runs[job_run_id]


def record_missing(state: StateStore, run: JobRun) -> None:
    """Record what follows from the records of a job run that has ended, and a crash kept back."""
    outbox = Outbox(state.store)
    recorded = outbox.recorded(run.id)
    events = [event for session in _sessions(state, run) for event in events_of_session(session, run)]
    for event in [*events, *events_of_job_run(run)]:
        if event.name not in recorded:
            outbox.record(event)


def _sessions(state: StateStore, run: JobRun) -> Iterable[JobRunSession]:
    """By their names, where all are there: a listing costs a request more, and finds what is damaged or missing."""
    try:
        return state.some_sessions(run.id, run.session_ids)
    except (InputError, CorruptionError):
        return state.sessions(run.id)


def _epoch(run: JobRun) -> int:
    return run.lease.epoch if run.lease else 0
