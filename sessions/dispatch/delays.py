"""Tells in the records of sessions why their group waits, unless it is for a moment."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from deltacompact.base.errors import StoreError
from deltacompact.base.wording import one_line
from sessions.base.model import Delay, JobRunSession, SessionState
from sessions.dispatch.asking import each
from sessions.dispatch.held_group import HeldGroup
from sessions.planning.admission import Postponed
from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")
_TOLD_AFTER_S = 1.0
_TOLD_AT_ONCE = 32
"""Sessions that are told why they wait, each time that all groups were looked at: it must not hold up the others."""


class Delays:
    """Tells the sessions of one job run why they wait."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._left = 0

    def begin(self) -> None:
        """All groups are looked at once more."""
        self._left = _TOLD_AT_ONCE

    def tell(self, group: HeldGroup, postponed: Postponed) -> None:
        delay = Delay(postponed.wait, postponed.text, postponed.until_s)
        if time.monotonic() - group.waits_since_s < _TOLD_AFTER_S:
            return
        untold = [session for session in group.unended if session.delay != delay][: self._left]
        self._left -= len(untold)
        group.update(each(untold, lambda session: self._told(session, delay)))

    def _told(self, session: JobRunSession, delay: Delay) -> JobRunSession:
        try:
            stored = self._state.session(session.job_run_id, session.id)
            told = replace(stored.value, delay=delay)
            if stored.value.state is SessionState.PLANNED:
                self._state.change_session(stored, told)  # whoever was faster has news of it
        except StoreError as error:
            _LOG.info("why session %s waits could not be told: %s", session.id, one_line(error))
        return replace(session, delay=delay)
