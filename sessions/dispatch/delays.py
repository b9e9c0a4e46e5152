"""Records in sessions why their group waits, unless it waits only for a moment."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from deltacompact.base.errors import PassingError
from deltacompact.base.wording import one_line
from sessions.base.model import Delay, JobRunSession, SessionState
from sessions.dispatch.asking import each
from sessions.dispatch.held_group import HeldGroup
from sessions.planning.admission import Postponed
from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")
_RECORDED_FROM_S = 1.0
_RECORDED_AT_ONCE = 32
"""The most sessions whose delay is recorded in one round over all groups, so that groups are not held up."""


class Delays:
    """Records why the sessions of one job run wait."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._left = 0
        self._told_of: dict[str, tuple[float, Postponed]] = {}

    def begin(self) -> None:
        """A new round over all groups begins."""
        self._left = _RECORDED_AT_ONCE

    def tell(self, group: HeldGroup, postponed: Postponed) -> None:
        told_of = group.waits_since_s, postponed
        if self._left <= 0 or self._told_of.get(group.name) == told_of:
            return
        if time.monotonic() - group.waits_since_s < _RECORDED_FROM_S:
            return
        delay = Delay(postponed.wait, postponed.text, postponed.until_s)
        waiting = [session for session in group.unended if session.delay != delay]
        untold = waiting[: self._left]
        self._left -= len(untold)
        group.update(each(untold, lambda session: self._told(session, delay)))
        if len(untold) == len(waiting):
            self._told_of[group.name] = told_of

    def _told(self, session: JobRunSession, delay: Delay) -> JobRunSession:
        try:
            stored = self._state.session(session.job_run_id, session.id)
            told = replace(stored.value, delay=delay)
            if stored.value.state is SessionState.PLANNED:
                self._state.change_session(stored, told)  # if another writer was faster, it has newer facts
        except PassingError as error:
            _LOG.info("why session %s waits could not be told: %s", session.id, one_line(error))
        return replace(session, delay=delay)
