"""A cluster whose tasks take virtual time: slots, queues, lost nodes, and the lineage that brings values back.

    0.0 s    40 works begin on 40 slots; work 40 waits for a slot, work 50 for the values of works 0‥40
    2.1 s    work 7 ends on node 1, work 40 begins there
    60 s     node 1 is lost: its running works go back to the queue, and work 7 runs again if work 50 still needs it
    180 s    node 1 is replaced

As on Ray, works begin in the order in which they are ready, a wish for a node is soft, and values that were lost are
made again by running their works once more, and whatever these need.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong.

    spread             of the seconds of alike tasks: the sigma of a lognormal distribution
    straggler_share    of the runs of tasks take `straggler_times` as long
    lost_every_s       a node is lost every so many seconds (0: none), and is replaced after `back_after_s` (0: never)
    """

    spread: float = 0.1
    straggler_share: float = 0.0
    straggler_times: float = 8.0
    lost_every_s: float = 0.0
    back_after_s: float = 0.0


class Inputs:
    """The works whose values one or more works wait for."""

    __slots__ = ("missing", "waiting", "works")

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = works
        self.waiting: list[Work] = []
        self.missing = sum(not work.is_there for work in works)
        for work in works:
            work.feeds.append(self)


class Work:
    """One run of a task. `kept` counts the handles of its values that somebody still refers to.

    `wanted`: it is to run, or runs. `is_there`: its values are.
    """

    __slots__ = (
        "awaits", "blocked", "feeds", "is_there", "kept", "node", "running", "seconds", "told", "typical_s", "wanted",
        "wish",
    )  # fmt: skip

    def __init__(self, typical_s: float, wish: int | None, awaits: Sequence[Inputs]) -> None:
        self.typical_s = typical_s
        self.wish = wish
        self.awaits = awaits
        self.feeds: list[Inputs] = []
        self.node: int | None = None
        self.running: int | None = None
        self.is_there = self.wanted = self.told = False
        self.seconds = 0.0
        self.kept = 0
        self.blocked = 0


class Nodes:
    """The cluster. `now_s` is the virtual time up to which everything has happened."""

    def __init__(self, slots: Sequence[int], trouble: Trouble, seed: int) -> None:
        self.now_s = 0.0
        self.busy_s = 0.0
        self.nodes_lost = self.works_repeated = 0
        self._slots = list(slots)
        self._free = list(slots)
        self._alive = [True] * len(slots)
        self._idle = dict.fromkeys(range(len(slots)))
        self._queues: list[deque[Work]] = [deque() for _ in slots]
        self._queue: deque[Work] = deque()
        self._running: list[dict[Work, None]] = [{} for _ in slots]
        self._ended_on: list[list[Work]] = [[] for _ in slots]
        self._trouble = trouble
        self._random = np.random.default_rng(seed)
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], Work | None]]] = []
        if trouble.lost_every_s:
            self._at(trouble.lost_every_s, self._lose_a_node)

    @property
    def idle_slots(self) -> int:
        return sum(free for free, alive in zip(self._free, self._alive, strict=True) if alive)

    # What the executor does

    def begin(self, work: Work) -> None:
        """Queue a work, as soon as what it waits for is there."""
        work.wanted, work.blocked = True, 0
        for inputs in work.awaits:
            self._await(work, inputs)
        if not work.blocked:
            self._enqueue(work)

    def cancel(self, work: Work) -> None:
        work.wanted, work.told = False, True
        if work.running is not None:
            self._stop(work)

    def ends(self, until_s: float) -> Iterator[Work]:
        """Go on to a time; yields the works that end, when they end."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, happens = heapq.heappop(self._events)
            if (work := happens()) is not None:
                yield work
        self.now_s = max(self.now_s, until_s)

    # Inside

    def _at(self, after_s: float, happens: Callable[[], Work | None]) -> int:
        number = next(self._numbers)
        heapq.heappush(self._events, (self.now_s + after_s, number, happens))
        return number

    def _enqueue(self, work: Work) -> None:
        if work.wish is not None and self._alive[work.wish]:
            self._queues[work.wish].append(work)
            self._fill(work.wish)
            return
        self._queue.append(work)
        while self._queue and self._idle:
            self._fill(next(iter(self._idle)), 1)

    def _fill(self, node: int, at_most: int | None = None) -> None:
        """Begin queued works on a node's free slots."""
        began = 0
        while self._alive[node] and self._free[node] and began != at_most:
            queue = self._queues[node] or self._queue
            if not queue:
                break
            began += self._run(queue.popleft(), node)
        self._idle.pop(node, None)
        if self._alive[node] and self._free[node]:
            self._idle[node] = None

    def _run(self, work: Work, node: int) -> bool:
        if not work.wanted or work.blocked or work.running is not None:
            return False
        self._free[node] -= 1
        self._running[node][work] = None
        work.node, work.seconds = node, work.typical_s * self._times()
        run = self._at(work.seconds, lambda: self._end(work, run))
        work.running = run
        return True

    def _times(self) -> float:
        trouble = self._trouble
        slow = self._random.random() < trouble.straggler_share
        return float(self._random.lognormal(0.0, trouble.spread)) * (trouble.straggler_times if slow else 1.0)

    def _end(self, work: Work, run: int) -> Work | None:
        if work.running != run:
            return None
        node = work.node
        assert node is not None
        self.busy_s += work.seconds
        self._ended_on[node].append(work)
        first, work.told, work.is_there, work.wanted = not work.told, True, True, False
        self._stop(work)
        for inputs in work.feeds:
            inputs.missing -= 1
            if not inputs.missing:
                self._unblock(inputs)
        return work if first else None

    def _stop(self, work: Work) -> None:
        node, work.running = work.node, None
        assert node is not None
        del self._running[node][work]
        if self._alive[node]:
            self._free[node] += 1
            self._fill(node)

    def _unblock(self, inputs: Inputs) -> None:
        inputs.waiting = [work for work in inputs.waiting if work.wanted]
        for work in inputs.waiting:
            work.blocked -= 1
            if not work.blocked and work.running is None:
                self._enqueue(work)

    # Lost nodes

    def _lose_a_node(self) -> None:
        self._at(self._trouble.lost_every_s, self._lose_a_node)
        alive = [node for node, is_alive in enumerate(self._alive) if is_alive]
        if len(alive) < 2:
            return
        node = int(self._random.choice(alive))
        self.nodes_lost += 1
        self._alive[node] = False
        self._idle.pop(node, None)
        stopped, queued, ended = list(self._running[node]), list(self._queues[node]), self._ended_on[node]
        self._running[node], self._ended_on[node] = {}, []
        self._queues[node].clear()
        for work in stopped:
            work.running = None
        for work in ended:
            if work.is_there and work.node == node:  # not lost before, nor made again elsewhere
                self._lose(work)
        for work in [*stopped, *queued]:
            if not work.blocked and work.wanted:
                self._enqueue(work)
        if self._trouble.back_after_s:
            self._at(self._trouble.back_after_s, lambda: self._replace(node))

    def _replace(self, node: int) -> None:
        self._alive[node], self._free[node] = True, self._slots[node]
        self._fill(node)

    def _lose(self, work: Work) -> None:
        """The values of a work are gone. It runs again where somebody waits for them."""
        work.is_there = False
        for inputs in work.feeds:
            inputs.missing += 1
            inputs.waiting = [waits for waits in inputs.waiting if waits.wanted]
            for waits in inputs.waiting if inputs.missing == 1 else ():
                waits.blocked += 1
        if any(inputs.waiting for inputs in work.feeds):
            self._make_again(work)

    def _await(self, work: Work, inputs: Inputs) -> None:
        """Let a work wait for values. Those that nobody kept are gone, and those that are gone are made again."""
        if not any(waits.wanted for waits in inputs.waiting):
            inputs.waiting.clear()
            for input_ in inputs.works:
                if input_.is_there and not input_.kept:
                    self._lose(input_)
        inputs.waiting.append(work)
        work.blocked += inputs.missing > 0
        for input_ in inputs.works if inputs.missing else ():
            self._make_again(input_)

    def _make_again(self, work: Work) -> None:
        """Run a work once more whose values are gone, and whatever it needs."""
        if work.is_there or work.wanted:
            return
        self.works_repeated += 1
        self.begin(work)
