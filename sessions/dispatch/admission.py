"""Decides which groups run and which wait on one dispatcher, by the order and limits of planning/admission.py.

enter(run-1/g1)      None: it may start, and it counts as running from now on
enter(run-1/g2)      memory: it is planned for more memory than is left on this machine
leave(run-1/g1)      it has ended
enter(run-1/g2)      None
postponed()          run-1/g3: memory. Who is not in it asks to enter

wait([… 10,000])     all groups of a job run come together: one decision for all, and not one for each
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping

from sessions.base.model import Estimate
from sessions.planning.admission import DispatcherLimits, Postponed, Takes, WaitingGroup, admit, in_order
from sessions.planning.reasons import Wait

_DECIDED_FOR_S = 1.0
"""Groups ask many times a second. A decision holds until a group comes or leaves, or for this time."""


class Admission:
    """The groups of all job runs of a dispatcher. Safe to use from several threads."""

    def __init__(self, limits: DispatcherLimits, clock: Callable[[], float] = time.time) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, WaitingGroup] = {}
        self._running: dict[str, Takes] = {}
        self._expected: dict[str, Estimate] = {}
        self._started_s: dict[str, float] = {}
        self._postponed: dict[str, Postponed] = {}
        self._decide_again_s = 0.0

    def enter(self, group: WaitingGroup, expected: Estimate) -> Postponed | None:
        """Why the group does not start now. None: it may start. It waits from the first call on.

        `expected`: the seconds that it takes once it is launched.
        """
        name = group.takes.group
        with self._lock:
            self._wait(group, expected)
            self._decide_if_due()
            if name in self._postponed:
                return self._postponed[name]
            self._running[name] = self._waiting.pop(name).takes
            self._started_s[name] = self._clock()
            return None

    def postponed(self) -> Mapping[str, Postponed]:
        """Why groups do not start now, by name. The others that wait may start: most ask in vain, and thousands ask
        many times a second."""
        with self._lock:
            self._decide_if_due()
            return self._postponed

    def wait(self, groups: Iterable[tuple[WaitingGroup, Estimate]]) -> None:
        """These groups wait from now on, each with the seconds that it takes once it is launched."""
        with self._lock:
            for group, expected in groups:
                self._wait(group, expected)

    def leave(self, group: str) -> None:
        """The group has ended, or does not want to start any more."""
        with self._lock:
            waited, ran = self._waiting.pop(group, None), self._running.pop(group, None)
            never = waited and group in self._postponed and self._postponed[group].wait is Wait.NEVER_FITS
            if (waited or ran) and not never:  # one that never fits had no place to give to others
                self._decide_again_s = 0.0
            self._expected.pop(group, None)
            self._started_s.pop(group, None)

    def before(self, group: WaitingGroup | None, ours: Container[str]) -> list[Estimate]:
        """The seconds left of each group that takes a place before `group`: running groups, and those that start
        earlier. `group` None: only running groups. `ours`: names of groups to leave out."""
        now_s = self._clock()
        with self._lock:
            left = [self._left(name, now_s) for name in self._running if name not in ours]
            if group is not None:
                others = [other for other in self._waiting.values() if other.takes.group not in ours]
                ordered = in_order([*others, group], self.limits.starved_after_s, now_s)
                ahead = ordered[: ordered.index(group)]
                left += [self._expected[other.takes.group] for other in ahead]
        return left

    def _left(self, group: str, now_s: float) -> Estimate:
        expected, ran_s = self._expected[group], now_s - self._started_s[group]
        return expected.later(-ran_s, now_s)

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    @property
    def busy_slots(self) -> int:
        """CPUs of this machine that groups take now."""
        with self._lock:
            return sum(takes.slots for takes in self._running.values())

    def _wait(self, group: WaitingGroup, expected: Estimate) -> None:
        name = group.takes.group
        self._expected[name] = expected
        if self._waiting.get(name) != group:
            self._waiting[name] = group
            self._decide_again_s = 0.0

    def _decide_if_due(self) -> None:
        """Postpone the groups that may not start now. The others start as they ask; all of them fit together."""
        now_s = self._clock()
        if now_s < self._decide_again_s:
            return
        found = admit(list(self._waiting.values()), list(self._running.values()), self.limits, now_s)
        self._postponed = {postponed.group: postponed for postponed in found.wait}
        self._decide_again_s = now_s + _DECIDED_FOR_S
