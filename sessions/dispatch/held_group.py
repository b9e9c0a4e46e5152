"""One group of sessions of a job run that we hold: its state, and how long it will take.

g1  waits since 10:00:00 for a place              to_come: the start and the work of its sessions
g1  launched as run-1.2.g1.1                      left: the rest of its running session, and its later sessions
g1  silent for 300 s, patience 240 s              it hangs
g1  all sessions ended 10 s ago, process runs     it lingers
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sessions.base.model import Estimate, JobRunSession, SessionPlan, SessionState, Trouble
from sessions.base.troubles import left_s
from sessions.dispatch.log_keeper import LogKeeper
from sessions.planning.admission import WaitingGroup
from sessions.planning.prices import LOCAL
from sessions.planning.refine import group_estimate

_STALL_FACTOR = 10
_PROCESS_ENDS_WITHIN_S = 10.0
"""A process ends within this time after its last session: Ray on this machine shuts down."""


@dataclass(slots=True)
class HeldGroup:
    """One group of sessions. It waits for a place, is launched, and may be launched again, until all sessions have
    ended.

    launched             the id of the running launch. None: the group is not running
    done_s               when its records said that all sessions have ended
    launches             how often it was launched
    launched_sessions    the sessions of the running launch
    silent_s             for how long its records have not changed. Only successful looks count: a store that does not
                         answer makes no group silent
    used                 the attempts that were launched: none is launched twice
    waits_since_s        since when it waits for a place
    not_before_s         it is not launched before this time
    learnable            sessions that ended in a process of ours, to learn rates from

    Times are of the monotonic clock.
    """

    name: str
    sessions: dict[str, JobRunSession]
    launched: str | None = None
    log: LogKeeper | None = None
    done_s: float | None = None
    launches: int = 0
    launched_sessions: tuple[str, ...] = ()
    looked_s: float = 0.0
    silent_s: float = 0.0
    used: set[str] = field(default_factory=set)
    waiting: WaitingGroup | None = None
    waits_since_s: float = 0.0
    launched_s: float = 0.0
    not_before_s: float = 0.0
    learnable: list[JobRunSession] = field(default_factory=list)

    def update(self, sessions: Iterable[JobRunSession]) -> None:
        self.sessions.update({session.id: session for session in sessions})
        if not self.unended and self.done_s is None:
            self.done_s = time.monotonic()

    @property
    def unended(self) -> list[JobRunSession]:
        return [session for session in self.sessions.values() if not session.state.ended]

    @property
    def trouble(self) -> Trouble | None:
        """Why the group cannot be launched yet: the trouble of its sessions that lasts longest."""
        troubles = [session.trouble for session in self.unended if session.trouble is not None]
        return max(troubles, key=lambda trouble: trouble.again_s, default=None)

    @property
    def plans_left(self) -> list[SessionPlan]:
        return [session.plan for session in self.unended if session.plan is not None]

    def unnamed(self, epoch: int) -> list[JobRunSession]:
        """The sessions that need a new attempt: they have none of this epoch, or it was launched already."""
        return [
            session
            for session in self.unended
            if session.attempt is None or session.attempt in self.used or session.epoch != epoch
        ]

    def wait_for_trouble(self, now_s: float) -> None:
        """Do not launch the group before its trouble may have passed. `now_s`: by the clock that dates records."""
        if (trouble := self.trouble) is not None:
            self.not_before_s = max(self.not_before_s, time.monotonic() + max(0.0, left_s(trouble, now_s)))

    def wants_a_place(self, now_s: float) -> bool:
        """Whether it may be launched, and does not wait for a place yet. `now_s`: of the monotonic clock."""
        return self.launched is None and self.waiting is None and now_s >= self.not_before_s and bool(self.unended)

    def left(self, now_s: float) -> Estimate:
        """Seconds from now until a launched group ends."""
        left = [_estimate_left(session, now_s) for session in self.unended]
        running = any(session.state is SessionState.RUNNING for session in self.unended)
        start_s = 0.0 if running else max((plan.start_s for plan in self.plans_left), default=0.0)
        start_s = max(0.0, start_s - (time.monotonic() - self.launched_s))
        return Estimate.of(lambda bound: start_s + sum(getattr(of_session, bound) for of_session in left), now_s)

    def to_come(self, now_s: float) -> Estimate:
        """Seconds from now until a group that is not launched ends. It may have to wait before it is tried again."""
        return group_estimate(self.plans_left).later(max(0.0, self.not_before_s - time.monotonic()), now_s)

    def lingers(self) -> bool:
        """Whether all sessions have ended and the launch has not: a process after some seconds, a cluster at once."""
        if self.unended or self.done_s is None:
            return False
        is_process = all(session.plan is None or session.plan.launcher == LOCAL for session in self.sessions.values())
        return not is_process or time.monotonic() - self.done_s > _PROCESS_ENDS_WITHIN_S

    def patience_s(self, stall_s: float, ray_wait_s: float) -> float:
        """How long the group may be silent. The time doubles with each failure, because the plan may be wrong.

        On Ray a session waits `ray_wait_s` for workers before its first stage, and records nothing meanwhile.
        """
        on_ray = any(plan.executor == "ray" for plan in self.plans_left)
        waits_s = ray_wait_s if on_ray and not any(session.progress.stage for session in self.unended) else 0.0
        longest_s = max((plan.start_s + plan.expected.seconds for plan in self.plans_left), default=0.0)
        failures = max((session.failures for session in self.unended), default=0)
        return float(waits_s + max(stall_s, _STALL_FACTOR * longest_s) * 2**failures)


def _estimate_left(session: JobRunSession, now_s: float) -> Estimate:
    expected = session.plan.expected if session.plan else Estimate(0.0, 0.0, 0.0)
    if session.state is SessionState.RUNNING and session.started_s is not None:
        return (session.expected or expected).later(session.started_s - now_s, now_s)
    return expected
