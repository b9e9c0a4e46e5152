"""Decides where the sessions of one compact() run, and which of them run side by side: pure.

    lane       its sessions               where their tasks run
    inline     small, in this process     one after another, in the session's own thread: while one waits, others work
    pool       larger, in this process    on the threads of this process, one for each CPU, which all sessions share
    cluster    the rest                   on the slots of the Ray cluster

    partition    rows         bytes       lane
    a            100          10 kB       inline
    b            9,000,000    1.5 GB      pool        "auto" keeps the smallest ones here, up to its limits together
    c            80,000,000   12 GB       cluster

Every lane is a queue. A session starts when all sessions before it in its lane have started, and the running ones leave
room for its planned memory.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing.task_memory import SESSION_BYTES, TASK_BASE_BYTES
from deltacompact.table.ports import PartitionSnapshot

INLINE_SESSIONS = 32
"""A session of few rows makes some dozens of requests and hardly computes: with 30 ms a request, so many keep one CPU
busy."""

INLINE_SESSIONS_ON_DISK = 4
"""A disk answers in a thousandth of that, but a small session waits half of its time until objects are synced."""

POOL_SESSIONS = 4
CLUSTER_SESSIONS = 16
"""A session leaves slots idle while it reads its log, decides and publishes: others fill these gaps."""

PROCESS_SHARE_BESIDE_CLUSTER = 0.2
"""The share of this machine's memory for sessions in this process while a cluster runs, which may be on it too."""


class Lane(enum.StrEnum):
    INLINE = "inline"
    POOL = "pool"
    CLUSTER = "cluster"


def stays_here(settings: Settings, delta_rows: int, data_bytes: int) -> bool:
    """Whether the settings exclude a cluster, or the input is too small for one."""
    is_small = delta_rows <= settings.local_rows_max and data_bytes <= settings.local_bytes_max
    return settings.executor == "local" or (settings.executor == "auto" and is_small)


def lanes(snapshots: Sequence[PartitionSnapshot], settings: Settings) -> list[Lane]:
    """The lane of each partition.

    With "auto" the smallest partitions stay in this process, as many as are below its limits together.
    """
    here, several = _here(snapshots, settings), settings.partitions_at_once != 1 and len(snapshots) > 1
    return [
        Lane.CLUSTER
        if number not in here
        else Lane.INLINE
        if several and _has_one_task_a_stage(snapshot, settings.limits)
        else Lane.POOL
        for number, snapshot in enumerate(snapshots)
    ]


def _here(snapshots: Sequence[PartitionSnapshot], settings: Settings) -> set[int]:
    """The numbers of the partitions that stay in this process."""
    here, rows, data_bytes = set(), 0, 0
    for number in sorted(range(len(snapshots)), key=lambda number: snapshots[number].bytes):
        rows, data_bytes = rows + snapshots[number].delta_rows, data_bytes + snapshots[number].bytes
        if not stays_here(settings, rows, data_bytes):
            break
        here.add(number)
    return here


def _has_one_task_a_stage(snapshot: PartitionSnapshot, limits: Limits) -> bool:
    """Whether the session would be too small to work on several CPUs anyway."""
    rows = snapshot.delta_rows + (snapshot.base.rows if snapshot.base else 0)
    return rows <= limits.task_rows_min and snapshot.bytes <= limits.output_parallel_bytes_min


@dataclass(frozen=True, slots=True)
class Claim:
    """The planned memory of a session in bytes: `heap_bytes` of its simultaneous tasks, `held_bytes` between stages."""

    lane: Lane
    heap_bytes: int = 0
    held_bytes: int = 0

    @classmethod
    def of(cls, lane: Lane, needs: Needs) -> Claim:
        """The claim of a planned session. Tasks in one process share its interpreter and libraries, tasks on Ray do
        not."""
        task = needs.cluster_peak_bytes if lane is Lane.CLUSTER else needs.peak_bytes - TASK_BASE_BYTES
        return cls(lane, needs.tasks_at_once * task, SESSION_BYTES + needs.held_bytes)


@dataclass(frozen=True, slots=True)
class LaneBounds:
    """The most sessions that may run in a lane side by side, and the most memory that they may claim together."""

    sessions: int
    heap_bytes: int
    held_bytes: int


def sessions_at_once(lane: Lane, settings: Settings, waits: bool) -> int:
    """The most sessions of a lane that run side by side. `waits`: the store is behind a network.

    Each inline session runs a task, and the settings may bound the tasks of this process.
    """
    if lane is Lane.CLUSTER:
        return settings.partitions_at_once or CLUSTER_SESSIONS
    if lane is Lane.POOL:
        return settings.partitions_at_once or (POOL_SESSIONS if waits else 1)
    inline = settings.partitions_at_once or (INLINE_SESSIONS if waits else INLINE_SESSIONS_ON_DISK)
    bounds = (inline, settings.local_threads, settings.concurrent_tasks)
    return min(bound for bound in bounds if bound is not None)


def lane_bounds(capacities: Mapping[Lane, Capacity], sessions: Mapping[Lane, int]) -> dict[Lane, LaneBounds]:
    """The bounds of each lane in use. `capacities`: of the process or the cluster; `sessions`: the most of each lane.

    The lanes in this process divide its memory.
    """
    in_process = sum(lane is not Lane.CLUSTER for lane in capacities)
    here = (PROCESS_SHARE_BESIDE_CLUSTER if Lane.CLUSTER in capacities else 1.0) / max(1, in_process)
    return {
        lane: _bounds(capacity, sessions[lane], 1.0 if lane is Lane.CLUSTER else here)
        for lane, capacity in capacities.items()
    }


def _bounds(capacity: Capacity, sessions: int, share: float) -> LaneBounds:
    heap = capacity.memory_per_task_bytes * capacity.slots
    return LaneBounds(sessions, int(heap * share), int(capacity.object_store_bytes * share))


def admitted(queue: Iterable[Claim], running: Sequence[Claim], bounds: LaneBounds, free: int | None) -> int:
    """How many sessions at the head of a lane's queue may start now, beside those that run in the lane.

    `free`: at most so many. A session that is alone in its lane starts, however much it claims: its plan is made for
    the whole machine.
    """
    together = list(running)
    for claim in queue:
        if len(together) - len(running) == free or not _fits(claim, together, bounds):
            break
        together.append(claim)
    return len(together) - len(running)


def _fits(claim: Claim, running: Sequence[Claim], bounds: LaneBounds) -> bool:
    together = [*running, claim]
    return not running or (
        len(together) <= bounds.sessions
        and sum(session.heap_bytes for session in together) <= bounds.heap_bytes
        and sum(session.held_bytes for session in together) <= bounds.held_bytes
    )
