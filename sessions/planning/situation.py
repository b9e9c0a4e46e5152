"""What a plan depends on besides the partition: what the document wishes, and what there is to run on. Pure.

wish         an SLA of 900 s, at most 40 tasks at a time
situation    this machine with 2 CPUs, one of them busy; 1 to 250 x r6in.4xlarge; what sessions took in each pool
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from deltacompact.planning.sizing import task_memory
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN
from sessions.planning.expectation import FIRST_EXPECTATION, Expectation
from sessions.planning.prices import Offer
from sessions.planning.sizes import Resources


@dataclass(frozen=True, slots=True)
class Wish:
    """The document's fields that change the plan. `tasks_max`: most tasks at a time."""

    desired_sla_s: float | None = None
    hash_buckets: int | None = None
    rows_per_round: int | None = None
    tasks_max: int | None = None
    memory_per_task_bytes: int | None = None
    memory_bytes: int | None = None

    def limited(self, on: Resources) -> Resources:
        """The resources, limited as the document says."""
        slots = min(on.slots, self.tasks_max or on.slots)
        memory = self.memory_per_task_bytes or on.memory_per_task_bytes
        if not on.shared_process:  # where each task claims its memory: see executors/claims.py
            heap, _ = task_memory.node_memory(on.node_memory_bytes)
            slots = min(slots, on.nodes * max(1, heap // memory))
        return replace(on, slots=slots, memory_per_task_bytes=memory, bound_bytes=on.bound_bytes * slots // on.slots)

    def accepted(self, offers: Iterable[Offer]) -> list[Offer]:
        """The offers. If the document bounds the memory: only those of a process here, with at most this memory."""
        bound = self.memory_bytes
        if bound is None:
            return list(offers)
        return [
            replace(offer, node=replace(offer.node, memory_bytes=min(bound, offer.node.memory_bytes)))
            for offer in offers
            if offer.executor == "local"
        ]


@dataclass(frozen=True, slots=True)
class Situation:
    """The circumstances of a plan: offers, what is known of each pool, and how much may run here at a time.

    `busy_slots`: slots of this machine on which other sessions run; `sessions_max`: most sessions at a time.
    """

    offers: tuple[Offer, ...]
    expectations: Mapping[str, Expectation]
    sessions_max: int = 4
    busy_slots: int = 0
    prices: str = ""
    now_s: float = 0.0

    def expectation(self, pool: str) -> Expectation:
        return self.expectations.get(pool) or FIRST_EXPECTATION

    @property
    def here_at_once(self) -> int:
        """How many groups may run on this machine at a time, by its free CPUs and its memory."""
        nodes = [offer.node for offer in self.offers if offer.here]
        cpus = max((node.vcpus for node in nodes), default=1)
        fit = max((node.memory_bytes for node in nodes), default=0) // MEMORY_BYTES_MIN
        return max(1, min(self.sessions_max, cpus - self.busy_slots, fit))
