"""The next attempt at a session, once no earlier one can publish any more.

    record   attempt run-1/1/1, engine session 5c5c…     its dispatcher or its process is gone, or seems to be
    fence    run-1/1/1 into the stream's log             now it can publish nothing, if it has not yet
    look     does a version carry 5c5c…?                 yes: the session has succeeded, it is adopted
    record   attempt run-1/2/2                           no: compare-and-swap, then it may be launched

    the catalog does not answer       only the session's trouble changes: it is tried again later, or fails

Why that is enough. A runner records its engine session after it has taken its snapshot, and before it seals anything.
If our swap comes first, the runner's swap fails, and it ends. If the runner's comes first, we see the engine session:
its base is fixed, so it meets our fence in that base's log, or the seal of another session.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from deltacompact import DeltaStreamCatalog
from deltacompact.base.errors import CorruptionError, InputError, StoreError
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import one_line
from deltacompact.catalog.delta_streams import open_catalog
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.table.ports import PublishedVersion
from sessions.base.ids import attempt_name
from sessions.base.model import Delay, JobRunSession, Outcome, Progress, SessionState, Trouble
from sessions.base.troubles import RetryPolicy, cause_of, given_up, trouble_text
from sessions.documents.instruction import Instruction
from sessions.planning.admission import DispatcherLimits, limited
from sessions.records.leases import HeldJobRun, LeaseLostError
from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")


class SessionAttempts:
    """The attempts at the sessions of one job run that we hold."""

    def __init__(
        self,
        held: HeldJobRun,
        instruction: Instruction,
        open_catalog: Callable[[str], DeltaStreamCatalog] = open_catalog,
        policy: RetryPolicy | None = None,
        clock: Callable[[], float] = time.time,
        limits: DispatcherLimits | None = None,
    ) -> None:
        self._held = held
        self._state: StateStore = held.state
        self._instruction = instruction
        self._open_catalog = open_catalog
        self._catalog: DeltaStreamCatalog | None = None
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._limits = limits or DispatcherLimits()

    def next(self, session_id: str, failures: int = 0, trouble: Trouble | None = None) -> JobRunSession:
        """The session with a new attempt, or as it has ended. `failures`: to add to its failures.

        `trouble` is what the latest try met. If the former attempt cannot be fenced off now, the session keeps that
        attempt, and gets a trouble that says so. Raises LeaseLostError if another dispatcher has a later epoch.
        """
        while True:
            if self._held.lost:  # the next holder raises a session's epoch only when it starts it
                raise LeaseLostError(f"job run {self._held.run.id}: the lease of epoch {self._held.epoch} is lost")
            stored = self._state.session(self._held.run.id, session_id)
            session = stored.value
            if session.state.ended:
                return session
            if session.epoch > self._held.epoch:
                raise LeaseLostError(f"session {session_id} is in epoch {session.epoch}")
            try:
                after = self._after(session, failures, trouble)
            except Exception as error:
                after = self._not_fenced(session, error)
            swapped = self._state.change_session(stored, after)
            if swapped is not None:
                return swapped.value

    def give_up(self, session_id: str, error: str | None, state: SessionState = SessionState.FAILED) -> JobRunSession:
        """End the session as failed or cancelled, unless it has ended otherwise.

        If its last attempt cannot be fenced off, that attempt may still publish its whole result.
        """
        while True:
            session = self.next(session_id, 1)
            if session.state.ended:
                return session
            stored = self._state.session(self._held.run.id, session_id)
            if stored.value.attempt == session.attempt:
                failed = replace(_at_rest(stored.value), state=state, finished_s=self._clock(), error=error)
                if (swapped := self._state.change_session(stored, failed)) is not None:
                    return swapped.value

    def _not_fenced(self, session: JobRunSession, error: Exception) -> JobRunSession:
        """The session after `error`: its table or partition is gone or damaged, or its catalog does not answer now."""
        self._catalog = None  # it may be opened with other credentials
        if (cause := cause_of(error)) is not None:
            text, now_s = one_line(error), self._clock()
            trouble = self._policy.next(session.trouble, cause, text, now_s, session.progress.round)
            if trouble is not None:
                return replace(session, trouble=trouble, delay=Delay(cause, trouble_text(trouble), trouble.again_s))
            error = StoreError(given_up(session.trouble, text, now_s))
        elif not isinstance(error, InputError | CorruptionError):
            raise error
        failed = replace(_at_rest(session), state=SessionState.FAILED, finished_s=self._clock())
        return replace(failed, error=one_line(error), error_named=type(error).__name__)

    def _after(self, session: JobRunSession, failures: int, trouble: Trouble | None) -> JobRunSession:
        if session.attempt is not None and session.engine_session_id is not None:
            published = self._fenced_off(session, session.attempt, session.engine_session_id)
            if published is not None:
                _LOG.info("session %s had published %s: adopted", session.id, published.version)
                return _adopted(session, published, self._clock())
        attempts, whole = session.attempts + 1, session.planned or session.plan
        plan = whole and limited(whole, self._limits)
        return replace(
            session,
            state=SessionState.PLANNED,
            epoch=self._held.epoch,
            attempts=attempts,
            attempt=attempt_name(session.job_run_id, self._held.epoch, attempts),
            plan=plan,
            planned=None if plan == whole else whole,
            failures=session.failures + failures,
            progress=Progress(),
            cause=None,
            trouble=trouble or session.trouble,
            delay=Delay(trouble.cause, trouble_text(trouble), trouble.again_s) if trouble else session.delay,
        )

    def _fenced_off(self, session: JobRunSession, attempt: str, engine_session_id: str) -> PublishedVersion | None:
        """Fence the attempt off, so that it can publish nothing any more. Returns what its session has published."""
        stream = self._stream(session)
        published = stream.published_by(engine_session_id)
        if published is None:
            stream.fence_attempt(attempt)
            published = stream.published_by(engine_session_id)  # perhaps it published before our fence
        return published

    def _stream(self, session: JobRunSession) -> DeltaStreamPartition:
        asked, catalog = self._instruction, self._catalog  # another thread may close ours meanwhile
        if catalog is None:
            catalog = self._catalog = self._open_catalog(asked.catalog)
        source = catalog.described(asked.source_table_id)
        keys = source.keys or (TableKeys.of(asked.primary_keys, asked.sort_keys) if asked.primary_keys else None)
        if keys is None:
            raise InputError(f"table {asked.source_table_id!r} has no keys, so nothing of it was compacted")
        destination = asked.destination_compacted_table_id or asked.source_table_id
        partition = catalog.partition(asked.source_table_id, session.partition)
        return DeltaStreamPartition(catalog, source, destination, partition, keys)


def _at_rest(session: JobRunSession) -> JobRunSession:
    """The session without a trouble or a delay."""
    return replace(session, cause=None, trouble=None, delay=None)


def _adopted(session: JobRunSession, published: PublishedVersion, now_s: float) -> JobRunSession:
    compacted = published.compacted
    outcome = Outcome(
        seconds=round(max(0.0, now_s - (session.started_s or now_s)), 3),
        live=compacted.rows,
        bytes_out=compacted.bytes,
        version=published.version,
    )
    done = replace(_at_rest(session), state=SessionState.SUCCEEDED, finished_s=now_s)
    return replace(done, outcome=outcome, error=None, error_named=None)
