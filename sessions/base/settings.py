"""What may be set of a dispatcher, each default once: `dispatch --help` shows them, so this file imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """`drain`: work until the queue is empty and every accepted job run has ended.

    At most `max_sessions` groups of sessions run at a time (None: one for each CPU of this machine), and `max_workers`
    workers of all clusters together. A lease that was not renewed for `lease_s` is taken over. After SIGTERM running
    groups have `grace_s` to end. A session that fails `tries` times has failed for good. One that has recorded nothing
    for `stall_s`, and for ten times of what it is expected to take, has failed too. What passes (a catalog that does
    not answer, expired credentials, no memory) is waited for, `give_up_after_s` at most. A message that was received
    and not accepted for `visibility_s` comes again.
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
"""Between two answers to the task token: a fifth of the 5 minutes after which the state machine gives a node up."""
