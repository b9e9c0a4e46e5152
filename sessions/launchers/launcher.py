"""A launcher starts one group of sessions somewhere, and tells when it has ended.

    launch(run-1.3.g0.1)      a process or a cluster, in which `deltacompact-sessions run-group …` runs
    launch(run-1.3.g0.1)      it runs already: nothing happens
    status(run-1.3.g0.1)      running; then: ended, exit status 0
    terminate(run-1.3.g0.1)   it is gone when this returns, even if it was at work

The outcome of sessions is in their records. If a launcher says "ended" of a group that runs, no harm is done: the next
attempt fences the former one off.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from sessions.base.troubles import Cause


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One launch of a group of sessions. `id` is new for every launch: it names the process or cluster.

    `launcher`: chosen by the plan. `peak_bytes`: the most memory that one session takes in one process.
    """

    id: str
    state_uri: str
    job_run_id: str
    group: str
    epoch: int
    executor: str
    launcher: str
    node_type: str
    workers_initial: int
    workers_max: int
    peak_bytes: int

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs in the process, or on the head of the cluster."""
        where = ("--state", self.state_uri, "--job-run", self.job_run_id)
        return ("deltacompact-sessions", "run-group", *where, "--group", self.group, "--epoch", str(self.epoch))


class GroupState(enum.StrEnum):
    """UNKNOWN: never launched here, or forgotten."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group.

    exit_status    of a group that has ended, as a shell has it (128 + signal). None: unknown
    cause          why it could not be brought up, or reached, for now
    """

    state: GroupState
    exit_status: int | None = None
    text: str = ""
    cause: Cause | None = None


class Launcher(Protocol):
    """Safe to use from several threads. Raises StoreError if the backend does not answer."""

    def launch(self, spec: GroupSpec) -> None: ...

    def status(self, group_id: str) -> GroupStatus: ...

    def logs(self, group_id: str) -> str:
        """The end of the group's log."""

    def terminate(self, group_id: str) -> None: ...

    def close(self) -> None:
        """Terminate the groups that must not outlive the dispatcher."""
