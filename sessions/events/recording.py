"""Observes changes of records, and puts the events of each change into the outbox.

    accepted -> running, epoch 1          a claim: all events of the record, in case a crash kept some back
    round 2 -> round 3                    round_completed~2
    expected 412 s -> 405 s               nothing
    expected 412 s -> 380 s               sla.updated

It runs in every process that writes records: in dispatchers and in the processes of groups.
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
    """Records events.

    accepted    the job runs that this process accepted; its courier delivers their events until another one claims them
    claimed     the job runs that this process claimed; its courier delivers their events
    latest      the claimed job runs, as this process last wrote them
    unlisted    the job runs of which this process has recorded events since its courier last listed them

    Job runs are remembered, because events of their sessions name their table and SLA.
    """

    def __init__(self, state: StateStore) -> None:
        self.accepted: set[str] = set()
        self.claimed: set[str] = set()
        self.latest: dict[str, JobRun] = {}
        self.unlisted: set[str] = set()
        self._state = state
        self._outbox = Outbox(state.store)
        self._job_runs: dict[str, JobRun] = {}

    def know(self, run: JobRun) -> None:
        """Remember a job run that the caller has read. Events only use its facts that never change."""
        self._job_runs.setdefault(run.id, run)

    def forget(self, job_run_id: str) -> None:
        """Somebody else delivers its events, or all are delivered. If a session changes after all, it is read again."""
        self.accepted.discard(job_run_id)
        self.claimed.discard(job_run_id)
        self.unlisted.discard(job_run_id)
        self.latest.pop(job_run_id, None)
        self._job_runs.pop(job_run_id, None)

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
            ours = before is not None and after.id in self.accepted  # its events were recorded when we accepted it
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
            self._job_runs.pop(after.id, None)

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
                self._put(event)

    def _put(self, event: JobRunEvent) -> None:
        self._outbox.record(event)
        self.unlisted.add(event.job_run_id)

    def _record_estimate(
        self, before: JobRun | JobRunSession | None, after: JobRun | JobRunSession, run: JobRun | None
    ) -> None:
        desired_s = run.desired_sla_s if run else None
        if is_news(before.expected if before else None, after.expected, desired_s):
            event = estimate_told(after, run)
            assert event is not None
            self._put(event)

    def _job_run(self, job_run_id: str) -> JobRun | None:
        """A job run as it was read once. The fields that events need never change."""
        if job_run_id not in self._job_runs:
            try:
                self._job_runs[job_run_id] = self._state.job_run(job_run_id).value
            except DeltaCompactError:
                return None
        return self._job_runs[job_run_id]


def record_missing(state: StateStore, run: JobRun) -> None:
    """Record the events of a job run that has ended, if a crash kept some back."""
    outbox = Outbox(state.store)
    recorded = outbox.recorded(run.id)
    events = [event for session in _sessions(state, run) for event in events_of_session(session, run)]
    for event in [*events, *events_of_job_run(run)]:
        if event.name not in recorded:
            outbox.record(event)


def _sessions(state: StateStore, run: JobRun) -> Iterable[JobRunSession]:
    """The sessions of a job run, by their names. If one is missing or damaged, by a listing, which costs a request."""
    try:
        return state.some_sessions(run.id, run.session_ids)
    except (InputError, CorruptionError):
        return state.sessions(run.id)


def _epoch(run: JobRun) -> int:
    return run.lease.epoch if run.lease else 0
