"""Which groups may start now: at most so many at once, and no more memory than the machine has.

    budget 2 groups, 16 GiB      running: a (10 GiB)
    waiting: b (8 GiB), c (4 GiB)      c starts; b waits for a
    waiting: d (20 GiB)                starts once nothing else runs, since it will never fit beside anything

`choose` is a pure function of who waits and who runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sessions.base.model import SessionPlan


@dataclass(frozen=True, slots=True)
class Budget:
    """Most groups at once (each runs one session at a time), and most bytes of memory that they may plan to take."""

    sessions_max: int
    memory_bytes_max: int


@dataclass(frozen=True, slots=True)
class Demand:
    """A group that wants to start. `accepted_s` is when its job run was accepted, for order and for fairness."""

    job_run_id: str
    group: str
    accepted_s: float
    plans: tuple[SessionPlan, ...]

    @property
    def peak_bytes(self) -> int:
        """Its sessions run one after another."""
        return max(plan.peak_bytes for plan in self.plans)


Choose = Callable[[Sequence[Demand], Sequence[Demand], Budget], Sequence[Demand]]


def first_come(waiting: Sequence[Demand], running: Sequence[Demand], budget: Budget) -> list[Demand]:
    """Those that may start now, the longest accepted first; a smaller one may pass a larger one that does not fit."""
    chosen: list[Demand] = []
    free = budget.sessions_max - len(running)
    memory = budget.memory_bytes_max - sum(demand.peak_bytes for demand in running)
    for demand in sorted(waiting, key=lambda demand: (demand.accepted_s, demand.job_run_id, demand.group)):
        if free == 0:
            break
        if demand.peak_bytes <= memory or not (running or chosen):
            chosen.append(demand)
            free, memory = free - 1, memory - demand.peak_bytes
    return chosen


class Admission:
    """Who waits and who runs, on one dispatcher. Safe to use from several threads."""

    def __init__(self, budget: Budget, choose: Choose = first_come) -> None:
        self.budget = budget
        self._choose = choose
        self._lock = threading.Lock()
        self._waiting: list[Demand] = []
        self._running: list[Demand] = []

    def enter(self, demand: Demand) -> bool:
        """Whether the group may start now. It waits from the first time on that it asks."""
        with self._lock:
            if demand not in self._waiting:
                self._waiting.append(demand)
            if demand not in self._choose(tuple(self._waiting), tuple(self._running), self.budget):
                return False
            self._waiting.remove(demand)
            self._running.append(demand)
            return True

    def leave(self, demand: Demand) -> None:
        """The group has ended, or does not want to start any more."""
        with self._lock:
            for demands in (self._waiting, self._running):
                if demand in demands:
                    demands.remove(demand)

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)
