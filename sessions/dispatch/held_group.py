"""One group of sessions of a job run that we hold: what is known of it, and how long it will take.

g1  waits since 10:00:00 for a place              to come: start and work of its sessions
g1  launched as run-1.2.g1.1                      left: what its running session has left, and those behind it
g1  silent for 300 s                              its patience is 240 s: it hangs
g1  all ended, its process runs for 10 s more     it lingers
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sessions.base.model import Estimate, JobRunSession, SessionPlan, SessionState, Trouble
from sessions.dispatch.log_keeper import LogKeeper
from sessions.planning.admission import WaitingGroup
from sessions.planning.prices import LOCAL
from sessions.planning.refine import group_estimate

_STALL_FACTOR = 10
_PROCESS_ENDS_WITHIN_S = 10.0
"""Once its last session has ended: Ray on this machine shuts down. What a cluster says of itself is known later."""


@dataclass(slots=True)
class HeldGroup:
    """One group of sessions: waiting since `waits_since_s`, then running under `launched`, until all have ended.

    `used` are the attempts that were launched: none is launched twice. `launched_sessions` are those of the launch,
    `learnable` those that ended in a process of ours, for the rates. `silent_s` is for how long its records have not
    changed, by looks that succeeded: a store that does not answer makes nobody silent. `done_s` is since when its
    records say that all has ended while its process or cluster has not.
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
        """Why it cannot be launched yet: the trouble of its sessions that lasts longest."""
        troubles = [session.trouble for session in self.unended if session.trouble is not None]
        return max(troubles, key=lambda trouble: trouble.again_s, default=None)

    @property
    def plans_left(self) -> list[SessionPlan]:
        return [session.plan for session in self.unended if session.plan is not None]

    def unnamed(self, epoch: int) -> list[JobRunSession]:
        """The sessions whose attempt of this epoch was launched already, or that have none."""
        return [
            session
            for session in self.unended
            if session.attempt is None or session.attempt in self.used or session.epoch != epoch
        ]

    def wait_for_trouble(self, now_s: float) -> None:
        """Start it again when what its sessions met may have passed. `now_s` is of the clock that dates records."""
        if (trouble := self.trouble) is not None:
            after_s = max(0.0, trouble.again_s - now_s)
            self.not_before_s = max(self.not_before_s, time.monotonic() + after_s)

    def left(self, now_s: float) -> Estimate:
        """Seconds from now until a launched group ends."""
        left = [_left(session, now_s) for session in self.unended]
        running = any(session.state is SessionState.RUNNING for session in self.unended)
        start_s = 0.0 if running else max((plan.start_s for plan in self.plans_left), default=0.0)
        start_s = max(0.0, start_s - (time.monotonic() - self.launched_s))
        return Estimate.of(lambda bound: start_s + sum(getattr(of_session, bound) for of_session in left), now_s)

    def to_come(self, now_s: float) -> Estimate:
        """The same for a group that is not launched. It may have to wait before it is tried again."""
        return group_estimate(self.plans_left).later(max(0.0, self.not_before_s - time.monotonic()), now_s)

    def lingers(self) -> bool:
        """Whether nothing is left to do for a process that had its time to end since, or for a cluster."""
        if self.unended or self.done_s is None:
            return False
        is_process = all(session.plan is None or session.plan.launcher == LOCAL for session in self.sessions.values())
        return not is_process or time.monotonic() - self.done_s > _PROCESS_ENDS_WITHIN_S

    def patience_s(self, stall_s: float) -> float:
        """How long its sessions may record nothing. Each try gets twice as long, because the plan may be wrong."""
        longest_s = max((plan.start_s + plan.expected.seconds for plan in self.plans_left), default=0.0)
        failures = max((session.failures for session in self.unended), default=0)
        return float(max(stall_s, _STALL_FACTOR * longest_s) * 2**failures)


def _left(session: JobRunSession, now_s: float) -> Estimate:
    expected = session.plan.expected if session.plan else Estimate(0.0, 0.0, 0.0)
    if session.state is SessionState.RUNNING and session.started_s is not None:
        return (session.expected or expected).later(session.started_s - now_s, now_s)
    return expected
