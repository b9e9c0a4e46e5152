"""Passing causes of failure, and how long to try again: one policy for planning, attempts and launches.

    10:00:00   StoreError: the catalog does not answer      tried again at 10:00:01
    10:00:03   the same                                     at 10:00:05; later each time, up to every 5 minutes
    16:00:00   the same                                     FAILED, "given up after 6 h (80 tries): …"

    InputError, CorruptionError    for good: another try would fail in the same way
    anything else                  a failure: as many tries as `--tries` says

A trouble ends with the session, or when one more round is completed. If it comes back after more time than the limit,
it counts as another trouble, and a session may have only as many troubles as tries. So every session ends.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deltacompact.base.backoff import wait_s
from deltacompact.base.errors import ClusterError, CredentialsError, StoreError
from deltacompact.base.wording import counted
from sessions.base.exhaustion import exhausted
from sessions.base.model import Trouble
from sessions.base.settings import DEFAULTS

WAIT_MAX_S = 300.0
"""The longest wait between two tries."""


class Cause(enum.StrEnum):
    """Why something cannot be done now."""

    UNREACHABLE = "unreachable"  # a store or catalog does not answer, is throttled, or has an error of its own
    CREDENTIALS = "credentials"  # credentials have expired, and will be renewed
    RESOURCES = "resources"  # a machine has run out of memory, disk space, descriptors or processes
    LAUNCH = "launch"  # a process or cluster could not be brought up, or a Ray cluster is not up


def cause_of(error: BaseException) -> Cause | None:
    """The passing cause of an error; None: the error does not pass, or is unknown."""
    if isinstance(error, CredentialsError):
        return Cause.CREDENTIALS
    if isinstance(error, ClusterError):
        return Cause.LAUNCH
    if exhausted(error):
        return Cause.RESOURCES
    if isinstance(error, StoreError | ConnectionError | TimeoutError):
        return Cause.UNREACHABLE
    return None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait for a passing cause: `give_up_after_s` in all; the waits double up to WAIT_MAX_S."""

    give_up_after_s: float = DEFAULTS.give_up_after_s
    tries: int = DEFAULTS.tries

    def wait_s(self, tries: int) -> float:
        """Seconds to wait before the next try, after `tries` tries."""
        return wait_s(max(0, tries - 1), 1.0, WAIT_MAX_S, least=0.5)

    def next(self, before: Trouble | None, cause: Cause, text: str, now_s: float, rounds: int = 0) -> Trouble | None:
        """The trouble after one more try, with the time of the next; None: give up.

        `rounds`: the rounds that this try has completed, resumed ones too. `now_s` is the store's time.
        """
        if before is None or rounds > before.rounds:
            return Trouble(cause, text, now_s, 1, now_s + self.wait_s(1), rounds)
        rounds = before.rounds  # this try may have completed fewer, and the next one resumes them: that is no progress
        if now_s - before.again_s > self.give_up_after_s:
            if before.number >= self.tries:
                return None
            return Trouble(cause, text, now_s, 1, now_s + self.wait_s(1), rounds, before.number + 1)
        if now_s - before.since_s >= self.give_up_after_s:
            return None
        tries = before.tries + 1
        again_s = min(now_s + self.wait_s(tries), max(now_s, before.since_s + self.give_up_after_s))
        return Trouble(cause, text, before.since_s, tries, again_s, rounds, before.number)


def left_s(trouble: Trouble, now_s: float) -> float:
    """Seconds until the next try; 0 if it lies further ahead than any wait: the clock was set back since."""
    after_s = trouble.again_s - now_s
    return after_s if after_s <= WAIT_MAX_S else 0.0


def given_up(before: Trouble | None, text: str, now_s: float) -> str:
    """The error text for work that was tried long enough."""
    tries = (before.tries if before else 0) + 1
    lasted_s = max(0.0, now_s - before.since_s) if before else 0.0
    return f"given up after {span(lasted_s)} ({counted(tries, 'try', 'tries')}): {text}"


def trouble_text(trouble: Trouble) -> str:
    """The text about a trouble while it lasts."""
    return f"{trouble.text} ({trouble.cause}, {counted(trouble.tries, 'try', 'tries')}, tried again)"


def span(seconds: float) -> str:
    """ "45 s", "12 min", "6 h"."""
    for size_s, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size_s or seconds == size_s:
            return f"{seconds / size_s:,.0f} {name}"
    return f"{seconds:,.0f} s"
