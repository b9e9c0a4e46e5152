"""Writes the engine's events into a session's record while the session runs.

    SessionStarted    engine session and rounds are recorded, or this process ends: nothing is sealed before that, and
                      only an engine session of the record can be fenced off
    StageStarted      hash_bucket, 12 tasks      written if the last write was a second ago
    TaskFinished      1, 2, 3 of 12
    RoundCompleted    round 1 of 5

The record names its attempt. If it names another one, ours was superseded: a dispatcher that takes over first changes
the record, and then fences earlier attempts off.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deltacompact.base.errors import NotFoundError, PassingError
from deltacompact.base.events import (
    Event,
    GroupWritten,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from deltacompact.base.wording import one_line
from sessions.base.clock import StoreClock
from sessions.base.model import JobRun, JobRunSession, Progress, SessionState
from sessions.base.patience import patiently
from sessions.planning.refine import refine, share_done
from sessions.records.state_store import StateStore, StoredRecord

_LOG = logging.getLogger("sessions")
_WRITE_EVERY_S = 1.0
_TRIES = 4


class Superseded(BaseException):
    """Another attempt has begun, so this process ends. `except Exception` does not catch it."""


class NotRecorded(BaseException):
    """The engine session is not in the record, so this process ends. Sinks of events may raise no Exception: it would
    be logged, and the session would go on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the engine session could not be recorded: {one_line(error)}")
        self.error = error


class LeaseWatch:
    """Checks now and then that the dispatcher that started us still holds the job run."""

    def __init__(self, state: StateStore, job_run_id: str, epoch: int) -> None:
        self._state = state
        self._job_run_id = job_run_id
        self._epoch = epoch
        self._next_s = 0.0

    def __call__(self) -> None:
        """Check, if it is time. If the store does not answer, nothing happens."""
        if time.monotonic() >= self._next_s:
            try:
                self.check()
            except Exception as error:
                _LOG.info("the lease could not be looked at: %s", one_line(error))

    def check(self) -> None:
        """Raises Superseded if the lease has another epoch."""
        try:
            run = self._state.job_run(self._job_run_id).value
        except NotFoundError:
            raise Superseded(f"job run {self._job_run_id} is no more") from None
        self.see(run)

    def see(self, run: JobRun) -> None:
        """The same for a job run that was read just now."""
        lease = run.lease
        if lease is None or lease.epoch != self._epoch:
            raise Superseded(f"job run {self._job_run_id} is in epoch {lease.epoch if lease else None}")
        self._next_s = time.monotonic() + lease.ttl_s / 3


class SessionReport:
    """The record of one session, as its runner writes it. An event sink of compact()."""

    def __init__(
        self,
        state: StateStore,
        stored: StoredRecord[JobRunSession],
        still_ours: Callable[[], None],
        now_s: StoreClock | None = None,
    ) -> None:
        self.now_s = now_s or StoreClock()
        self._state = state
        self._stored = stored
        self._attempt = stored.value.attempt
        self._still_ours = still_ours
        self._began_s = time.monotonic()
        self._lost_s = 0.0
        self._unwritten: dict[str, Any] = {}
        self._written_s = 0.0
        self._progress = Progress()
        self.error_named: str | None = None

    @property
    def session(self) -> JobRunSession:
        return self._stored.value

    def __call__(self, event: Event) -> None:
        match event:
            case SessionStarted():
                self._progress = Progress(rounds=event.rounds)
                self._record(event.session_id)
            case StageStarted():
                self._progress = replace(self._progress, stage=event.stage, tasks=event.tasks, tasks_done=0)
                self._tell()
            case TaskFinished():
                self._progress = replace(self._progress, tasks_done=self._progress.tasks_done + 1)
                self._tell()
            case StageFinished():
                self._still_ours()
            case SessionFinished():
                self.error_named = event.error_named
            case GroupWritten():
                self._progress = Progress(stage="materialize", tasks=event.groups, tasks_done=event.written)
                self._tell()
            case RoundCompleted():
                self._progress = replace(self._progress, round=event.round)
                self._tell()
            case _:  # it only shows that the session is at work
                self._tell()

    def _record(self, engine_session_id: str) -> None:
        try:
            self.write(engine_session_id=engine_session_id, **self._told())
        except Exception as error:
            raise NotRecorded(error) from error

    def begin(self) -> None:
        """Record that the session runs. Its start is that of its first try, by the store's clock.

        Only the reply has the store's time, so the start is in the next write, with a progress that has a time: that
        tells a try that has begun from one that has not.
        """
        self.write(state=SessionState.RUNNING, delay=None, error=None, error_named=None, cause=None)
        if not self.now_s.is_told:  # if the reply has no time, read the record, which has
            self.now_s.told(self._state.session(self.session.job_run_id, self.session.id).modified_s)
        started_s = self.session.started_s or self.now_s()
        self._lost_s = self.now_s() - started_s
        self._unwritten = {"started_s": started_s, "progress": Progress(updated_s=self.now_s())}
        if plan := self.session.plan:
            self._unwritten["expected"] = plan.expected.later(self._lost_s, self.now_s())

    def write(self, **fields: Any) -> None:
        """Change the record. Raises Superseded if it belongs to another attempt, or cannot be written."""
        patiently(lambda: self._swap(fields), _TRIES, wait_max_s=5)

    def _swap(self, fields: dict[str, Any]) -> None:
        while True:
            after = replace(self.session, **{**self._unwritten, **fields})
            swapped = self._state.change_session(self._stored, after)
            if swapped is not None:
                self._stored, self._written_s, self._unwritten = swapped, time.monotonic(), {}
                if math.isfinite(swapped.modified_s):
                    self.now_s.told(swapped.modified_s)
                return
            found = self._state.session(self.session.job_run_id, self.session.id)
            ours = found.value.attempt == self._attempt and not found.value.state.ended
            if not ours or found.version.number == self._stored.version.number:
                raise Superseded(f"session {self.session.id}: attempt {found.value.attempt} has taken over")
            self._stored = found  # our own write, whose reply was lost

    def _tell(self) -> None:
        """Write the progress of the session, at most once a second. Nothing depends on it."""
        if time.monotonic() - self._written_s < _WRITE_EVERY_S:
            return
        self._still_ours()
        try:
            self._swap(self._told())
        except PassingError:
            self._written_s = time.monotonic()

    def _told(self) -> dict[str, Any]:
        """The fields with the session's progress and current estimate."""
        now_s, plan = self.now_s(), self.session.plan
        progress = replace(self._progress, updated_s=now_s)
        if plan is None:
            return {"progress": progress}
        progress = replace(progress, share=share_done(plan, progress))
        expected = refine(plan, progress, time.monotonic() - self._began_s)
        return {"progress": progress, "expected": expected.later(self._lost_s, now_s)}
