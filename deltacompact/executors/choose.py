"""Chooses executors: small streams are compacted in this process, because starting a cluster would take longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.lanes import Lane, stays_here
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import Capacity
from deltacompact.planning.work import START_S


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The executor and capacity of a compaction. `assumed` says why the capacity is a guess; None: it is known."""

    executor: str
    capacity: Capacity
    assumed: str | None = None

    @property
    def start_s(self) -> float:
        """Seconds until the first task may run."""
        return START_S["own_ray" if self.executor == "ray" and self.assumed else "process"]


def executor_for(settings: Settings, delta_rows: int, data_bytes: int) -> Executor:
    """The executor that the settings name; for "auto" the local one up to the limits of the settings, else Ray."""
    lane = lane_for(settings, delta_rows, data_bytes)
    return executors_for(settings, {lane: 1})[lane]


def executors_for(settings: Settings, sessions: Mapping[Lane, int], waits: bool = False) -> dict[Lane, Executor]:
    """One executor for each lane. `sessions`: how many of a lane run at a time. `waits`: the store is remote.

    Together, the executors keep to the rate limits.
    """
    in_process = [lane for lane in sessions if lane is not Lane.CLUSTER]
    executors: dict[Lane, Executor] = {}
    processes = 1
    if Lane.CLUSTER in sessions:
        from deltacompact.executors.ray import RayExecutor

        executors[Lane.CLUSTER] = cluster = RayExecutor(settings, beside=bool(in_process), waits=waits)
        processes += cluster.capacity.slots
    for lane in in_process:
        executors[lane] = LocalExecutor(settings, sessions[lane] if lane is Lane.INLINE else 0, processes, waits)
    return executors


def share_slots(executors: Mapping[Lane, Executor], needs: Sequence[Needs]) -> None:
    """Let tasks of this process share its CPUs: as many as each of these sessions allows, and as they have together."""
    pool = executors.get(Lane.POOL)
    if isinstance(pool, LocalExecutor) and needs:
        wanted = max(pool.capacity.slots, sum(of_plan.tasks_at_once for of_plan in needs))
        pool.share_slots(min(wanted, *(of_plan.task_places for of_plan in needs)))


def capacities(settings: Settings, executors: Mapping[Lane, Executor]) -> dict[Lane, Capacity]:
    """The capacity that the sessions of a lane share: the cluster's, or that of this process."""
    here = LocalExecutor(settings).capacity
    return {lane: executor.capacity if lane is Lane.CLUSTER else here for lane, executor in executors.items()}


def foresee(settings: Settings, lane: Lane, waits: bool = False) -> Foreseen:
    """The executor and capacity that the lane would have. Starts no cluster, and makes none grow.

    `waits`: the store is remote.
    """
    if lane is not Lane.CLUSTER:
        return Foreseen("local", LocalExecutor(settings, int(lane is Lane.INLINE), waits=waits).capacity)
    from deltacompact.executors.ray import foreseen_capacity

    return Foreseen("ray", *foreseen_capacity(settings, waits))


def lane_for(settings: Settings, delta_rows: int, data_bytes: int) -> Lane:
    """The lane of a session that runs alone."""
    return Lane.POOL if stays_here(settings, delta_rows, data_bytes) else Lane.CLUSTER
