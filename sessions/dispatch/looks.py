"""Reads in the records how far the sessions of running groups are, and learns from the seconds of ended sessions."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from deltacompact.base.errors import DeltaCompactError, PassingError
from deltacompact.base.wording import one_line
from sessions.base.model import SessionState
from sessions.dispatch.asking import asking
from sessions.dispatch.forecast import JobRunForecast
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.means import Means
from sessions.events.due import is_news
from sessions.records.leases import HeldJobRun

_LOG = logging.getLogger("sessions")
_LOOK_EVERY_S = 2.0
_LOOK_COUNTS_MAX_S = 10.0
"""The most of the time between two looks that counts as silence: the dispatcher itself may have been suspended."""


class Looks:
    """Looks at the sessions of one job run."""

    def __init__(self, held: HeldJobRun, means: Means, forecast: JobRunForecast) -> None:
        self._held = held
        self._rates, self._starts = means.rates, means.starts
        self._forecast = forecast
        self._again_s = time.monotonic() + _LOOK_EVERY_S

    def look(self, groups: Collection[HeldGroup]) -> None:
        """Read how far sessions are. If the expected seconds of the job run change by it, record that."""
        if time.monotonic() < self._again_s:
            return
        self._again_s = time.monotonic() + _LOOK_EVERY_S
        try:
            for group in groups:
                self._see_running(group)
            expected, run = self._forecast.of(groups), self._held.run
            if is_news(run.expected, expected, run.desired_sla_s):
                self._held.change(expected=expected)
        except PassingError as error:
            _LOG.info("how far sessions are could not be seen: %s", one_line(error))

    def see(self, group: HeldGroup, names: Sequence[str] | None = None) -> bool:
        """Read these sessions of a group, or all that have not ended. Returns whether one of them has changed."""
        wanted = [session.id for session in group.unended] if names is None else list(names)
        seen = asking(lambda: self._held.state.some_sessions(self._held.run.id, wanted))
        changed = any(group.sessions[session.id] != session for session in seen)
        group.update(seen)
        group.learnable += [session for session in seen if session.state is SessionState.SUCCEEDED]
        return changed

    def _see_running(self, group: HeldGroup) -> None:
        """Read the sessions that may have changed. They run one after another, so stop at the first that has not
        ended."""
        if group.launched is None:
            return
        since_s = max(group.looked_s, group.launched_s)
        changed = False
        for session in group.unended:
            changed |= self.see(group, [session.id])
            if not group.sessions[session.id].state.ended:
                break
        group.looked_s = time.monotonic()
        group.silent_s = 0.0 if changed else group.silent_s + min(group.looked_s - since_s, _LOOK_COUNTS_MAX_S)

    def learn(self, group: HeldGroup, took_s: float) -> None:
        """Learn from the seconds that sessions and their group took, for later forecasts."""
        ran = [group.sessions[name] for name in group.launched_sessions]
        inside_s = [session.outcome.seconds for session in ran if session.outcome and session.attempts == 1]
        try:
            self._rates.learn(group.learnable)
            if ran and len(inside_s) == len(ran) and (plan := ran[0].plan):
                self._starts.learn(f"{plan.launcher}/{plan.executor}", took_s - sum(inside_s))
        except DeltaCompactError as error:
            _LOG.warning("nothing could be learned from %s: %s", group.name, one_line(error))
        group.learnable.clear()
