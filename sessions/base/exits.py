"""Exit statuses of a group's process.

StoreError: no answer of the state     77, a passing cause: the next attempt waits for it
ValueError                             75, a failed try of the session that was under way
"""

from __future__ import annotations

from sessions.base.troubles import Cause, cause_of

EXIT_ENDED = 0
"""Every session of the group has ended: succeeded, failed for good, or had nothing to do."""
EXIT_AGAIN = 75
"""A session of the group must be tried again."""
EXIT_SUPERSEDED = 76
"""The group belongs to another dispatcher now."""
EXIT_PASSING = {Cause.UNREACHABLE: 77, Cause.CREDENTIALS: 78, Cause.RESOURCES: 79, Cause.LAUNCH: 80}
"""The process lacked what it needs outside of a session, such as the state. For earlier releases each is EXIT_AGAIN."""
EXIT_TERMINATED = 143
"""SIGTERM ended the process: the next attempt resumes."""


def exit_status_of(error: BaseException) -> int:
    """The exit status of a process that this error has ended."""
    cause = cause_of(error)
    return EXIT_AGAIN if cause is None else EXIT_PASSING[cause]


def cause_of_exit(exit_status: int | None) -> Cause | None:
    """The passing cause for which a process has ended; None: there was none, or the status is unknown."""
    return next((cause for cause, status in EXIT_PASSING.items() if status == exit_status), None)
