"""Decides what follows a try that did not end its session: another attempt, at once or later, or the session's end.

its process was killed              tried again, and counted as a failure; after three failures it has failed
its catalog does not answer         tried again later, longer each time; not counted as a failure
its process loses the state         the same, unless the session had recorded an error of its own before
the job run is cancelled            ended, unless it had published
"""

from __future__ import annotations

import logging

from deltacompact.base.wording import counted
from sessions.base.model import JobRunSession, SessionState
from sessions.base.troubles import Cause, given_up, trouble_text
from sessions.dispatch.asking import asking
from sessions.dispatch.attempts import SessionAttempts
from sessions.dispatch.means import Means

_LOG = logging.getLogger("sessions")
_CANCELLED = "it was cancelled"


class Retries:
    """Tries the sessions of one job run again, or gives them up."""

    def __init__(self, attempts: SessionAttempts, means: Means) -> None:
        self._attempts = attempts
        self._tries = means.settings.tries
        self._policy = means.policy
        self._clock = means.clock

    def next(self, session: JobRunSession) -> JobRunSession:
        """The session with a new attempt, or as it has ended."""
        return asking(lambda: self._attempts.next(session.id))

    def give_up(self, session: JobRunSession, why: str) -> JobRunSession:
        return asking(lambda: self._attempts.give_up(session.id, why))

    def cancel(self, session: JobRunSession) -> JobRunSession:
        return asking(lambda: self._attempts.give_up(session.id, _CANCELLED, SessionState.CANCELLED))

    def after(self, session: JobRunSession, how: str, launch: Cause | None) -> JobRunSession:
        """The session after a try that did not end it: with another attempt, or given up after enough tries.

        how       how the process ended: the reason, if the session has recorded no error of this try
        launch    why the launch failed, or its process could not go on. None: neither
        """
        own = session.has_begun and session.error
        why, cause = own or how, launch
        if own:
            cause = Cause(session.cause) if session.cause else None
        if cause is not None:
            return self._later(session, cause, why)
        if session.failures + 1 >= self._tries:
            return self.give_up(session, f"failed {counted(session.failures + 1, 'time')}: {why}")
        _LOG.warning("session %s is tried again: %s", session.id, why)
        return asking(lambda: self._attempts.next(session.id, failures=1))

    def _later(self, session: JobRunSession, cause: Cause, why: str) -> JobRunSession:
        now_s = self._clock()
        trouble = self._policy.next(session.trouble, cause, why, now_s, session.progress.round)
        if trouble is None:
            return self.give_up(session, given_up(session.trouble, why, now_s))
        _LOG.warning("session %s waits: %s", session.id, trouble_text(trouble))
        return asking(lambda: self._attempts.next(session.id, trouble=trouble))
