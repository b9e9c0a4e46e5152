"""A dispatcher's settings and their defaults. `dispatch --help` shows them, so this file imports no other room."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """A dispatcher's settings.

    drain               work until the queue is empty and every accepted job run has ended
    max_sessions        groups of sessions that run at a time, at most (None: one for each CPU of this machine)
    max_workers         workers of all clusters together, at most
    lease_s             a lease that was not renewed for this long is taken over
    grace_s             time for running groups to end after SIGTERM
    tries               a session that fails this often has failed for good
    stall_s             a session has failed if it records nothing for this long, and for ten times its expected seconds
    give_up_after_s     longest wait for a passing trouble: no answer of a catalog, expired credentials, no memory
    visibility_s        a message that was received and not accepted for this long comes again
    """

    drain: bool = False
    max_sessions: int | None = None
    max_workers: int = 64
    lease_s: float = 60.0
    grace_s: float = 300.0
    tries: int = 3
    stall_s: float = 300.0
    give_up_after_s: float = 6 * 3600.0
    visibility_s: float = 60.0


DEFAULTS = DispatcherSettings()
HEARTBEAT_S = 60.0
"""Between two heartbeats for a task token: a fifth of the 5 minutes after which the state machine gives a node up."""
READ_AT_ONCE = 16
"""Records and logs that are read side by side: they are small, so reading one is mostly waiting."""
