"""A launcher starts one group of sessions somewhere, and tells when it has ended.

    launch(run-1.3.g0.1)      a process or a cluster, in which `deltacompact-sessions run-group …` runs
    launch(run-1.3.g0.1)      it is there already: nothing happens
    status(run-1.3.g0.1)      running; then: ended, exit status 0
    terminate(run-1.3.g0.1)   it is gone when this returns, whatever it was at

What became of the sessions is in their records. A launcher that says "ended" of a group that is not does no harm: the
next attempt fences the former one off.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from sessions.base.troubles import Cause


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One try at a group of sessions. `id` is new with every try: it names the process or cluster.

    `launcher` is the one that the plan chose; `peak_bytes` is the most memory that one of its sessions takes in one
    process.
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
        """What runs in the process, or on the head of the cluster."""
        where = ("--state", self.state_uri, "--job-run", self.job_run_id)
        return ("deltacompact-sessions", "run-group", *where, "--group", self.group, "--epoch", str(self.epoch))


class GroupState(enum.StrEnum):
    """UNKNOWN: never launched here, or forgotten."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """`exit_status` of a group that has ended, as a shell says it (128 + signal), where it is known.

    `cause`: it was never brought up, for a cause that passes.
    """

    state: GroupState
    exit_status: int | None = None
    text: str = ""
    cause: Cause | None = None


class Launcher(Protocol):
    """Safe to use from several threads. Raises StoreError where the backend does not answer."""

    def launch(self, spec: GroupSpec) -> None: ...

    def status(self, group_id: str) -> GroupStatus: ...

    def logs(self, group_id: str) -> str:
        """What the group has printed, the last of it."""

    def terminate(self, group_id: str) -> None: ...

    def close(self) -> None:
        """Terminate what still runs."""
