"""What each task claims of a Ray cluster, so that no more tasks run at a time than may.

4 nodes of 16 CPUs, 40 GiB for tasks     a task claims         tasks at a time
no limit                                 1 CPU                 64
40 tasks at most                         2 CPUs                32
10 GiB a task                            1 CPU and 10 GiB      16, 4 on each node
3 tasks at most                          16 CPUs               3: only three nodes get tasks

A task runs on one node, so it cannot claim more than a node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.planning.plan import Capacity

_HEAP_SHARE = 0.7
"""The share of a node's memory for tasks, unless the user says a task's memory."""

_UNKNOWN_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node as it announces itself. `memory_bytes` is for tasks, without its object store; 0: it does not say."""

    id: str
    cpus: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """What a task claims, and the nodes that run tasks, with as many `slots` each. `memory_bytes` None: no memory.

    `everywhere`: a task may run on any node. Otherwise the others would run more tasks at a time than may.
    """

    cpus: int
    memory_bytes: int | None
    nodes: tuple[str, ...]
    slots: tuple[int, ...]
    task_bytes: int
    everywhere: bool

    @classmethod
    def of(cls, nodes: Sequence[RayNode], tasks_max: int | None, task_bytes: int | None) -> TaskClaim:
        """The smallest claim that keeps the limits. `task_bytes`: the memory that a task may take; None: its share."""
        memory = min(task_bytes or 0, max(node.memory_bytes for node in nodes)) or None

        def tasks(node: RayNode, cpus: int) -> int:
            by_memory = node.memory_bytes // memory if memory else node.cpus
            return min(node.cpus // cpus, by_memory)

        most = max(node.cpus for node in nodes if tasks(node, 1))
        may = tasks_max or sum(node.cpus for node in nodes)
        cpus = next((cpus for cpus in range(1, most) if sum(tasks(node, cpus) for node in nodes) <= may), most)
        running = [node for node in nodes if tasks(node, cpus)]
        everywhere = sum(tasks(node, cpus) for node in running) <= may
        if not everywhere:  # each of them runs one task
            running = running[:may]
        slots = tuple(tasks(node, cpus) for node in running)
        shares = [
            int((node.memory_bytes or _UNKNOWN_BYTES) * _HEAP_SHARE) // count
            for node, count in zip(running, slots, strict=True)
        ]
        return cls(cpus, memory, tuple(node.id for node in running), slots, task_bytes or min(shares), everywhere)

    def capacity(self, object_store_bytes: int, is_near: bool) -> Capacity:
        """The capacity for plans. `is_near`: the store is not behind a network."""
        return Capacity(sum(self.slots), self.task_bytes, object_store_bytes, self.slots, is_near=is_near)
