"""Simulates several processes on one store. Exactly one runs at a time; the test says which, and up to which operation.

    a = simulation.start(lambda catalog: catalog.append("t", rows))       a waits before its first store operation
    a.step()                                                               it happens; a waits before its second
    a.step(Fault.LOST)                                                     it happens, but a gets a StoreError
    a.step(Fault.DIES)                                                     a dies; its first two operations happened

The same steps give the same run: the simulation sets the clock, and nothing else is random.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from typing import Any

from stores import Crash, FetchingStore, InterceptedStore

from deltacompact.base.errors import StoreError
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.log.objects import LOG_LIMITS, LogLimits
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore

Work = Callable[[DeltaStreamCatalog], Any]
Stops = Callable[[str, str], bool]


class Fault(enum.Enum):
    """How an operation of the store may go wrong."""

    FAILS = "a StoreError, and nothing happened"
    LOST = "it happened, and a StoreError all the same"
    DIES = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    TAKEN = "a put happened, and the answer is that the place was taken: a proxy sent it twice"
    REPEATED = "a put or delete happens, and once more much later: a copy of the request was on its way"


WRITES = ("put", "put_if_absent", "writer", "delete")


def everywhere(kind: str, path: str) -> bool:
    return True


def at_the_log(kind: str, path: str) -> bool:
    """Stop only at objects that processes share: the log, the records of sessions, the table's declaration."""
    return "/data/" not in path and "/index/" not in path and kind not in ("stat", "open")


class Simulation:
    """One store and one clock. Processes that start from now on divide logs by `log_limits`.

    `remote`: scheduled processes see a store behind a network.
    """

    def __init__(self, log_limits: LogLimits = LOG_LIMITS, remote: bool = False) -> None:
        self.log_limits = log_limits
        self.remote = remote
        self.now_s = 1_000_000_000.0
        self.store = MemoryStore(clock=self.clock)
        self.actors: list[Actor] = []
        self.under_way: list[Callable[[], Any]] = []
        """Requests that the store has carried out and that will reach it once more."""

    def clock(self) -> float:
        return self.now_s

    def catalog(self) -> DeltaStreamCatalog:
        """The catalog of a new process that runs unscheduled, on the store as it is."""
        return self.catalog_on(self.store)

    def catalog_on(self, store: ObjectStore, actor: Actor | None = None) -> DeltaStreamCatalog:
        clock, wait = (actor.clock, actor.wait) if actor else (self.clock, time.sleep)
        return DeltaStreamCatalog(store, clock=clock, wait=wait, log_limits=self.log_limits)

    def start(self, work: Work, name: str = "", stops: Stops = everywhere) -> Actor:
        """Start a process with a catalog of its own. It runs up to its first operation."""
        actor = Actor(self, work, name, stops)
        self.actors.append(actor)
        return actor

    def run(self, latency_s: Callable[[], float], until: Callable[[], bool]) -> None:
        """Run all processes side by side. Each operation takes `latency_s()`; the process that is due first goes
        next."""
        while not until() and (going := [actor for actor in self.actors if not actor.done]):
            actor = min(going, key=lambda actor: actor.due_s)
            self.now_s = max(self.now_s, actor.due_s)
            actor.due_s = self.now_s + latency_s()
            actor.step()

    def end(self) -> None:
        """Let every process die at its pending operation."""
        for actor in self.actors:
            if not actor.done:
                actor.step(Fault.DIES)


class Actor:
    """One process: a thread that waits before each operation that `stops` names."""

    def __init__(self, simulation: Simulation, work: Work, name: str, stops: Stops) -> None:
        self.name = name
        self.done = False
        self.died = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.pending: tuple[str, str] | None = None
        self.stepped_at_s = simulation.now_s
        self.steps = 0
        self.ahead_s = 0.0
        """How far the clock of this process is ahead of the store's."""
        self.due_s = simulation.now_s
        """When the pending operation happens in `Simulation.run`."""
        self._simulation = simulation
        self._work = work
        self._stops = stops
        self._fault: Fault | None = None
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._stands.acquire()

    def step(self, fault: Fault | None = None) -> None:
        """Carry out the pending operation, and let the process run up to its next operation."""
        assert not self.done
        self.steps += 1
        self.stepped_at_s = self._simulation.now_s
        self._fault = fault
        self._go.release()
        self._stands.acquire()

    def finish(self) -> Any:
        """Run to the end. Return the result, or raise the error."""
        while not self.done:
            self.step()
        if self.error is not None:
            raise self.error
        return self.result

    def run_to(self, kind: str, path: str) -> None:
        """Run until an operation of this kind is pending on a path that contains `path`."""
        while not self.done and not (self.pending and self.pending[0] == kind and path in self.pending[1]):
            self.step()
        assert not self.done, f"{self.name} ended before it came to {kind} {path}: {self.error or self.result}"

    def _run(self) -> None:
        try:
            kind = FetchingStore if self._simulation.remote else InterceptedStore
            store = kind(self._simulation.store, self._intercept)
            self.result = self._work(self._simulation.catalog_on(store, self))
        except Crash:
            self.died = True
        except BaseException as error:
            self.error = error
        finally:
            self.pending, self.done = None, True
            self._stands.release()

    def clock(self) -> float:
        return self._simulation.now_s + self.ahead_s

    def wait(self, seconds: float) -> None:
        self.due_s += seconds

    def _intercept(self, kind: str, path: str, act: Callable[[], Any]) -> Any:
        # Other threads of the process only read entries that never change. Their reads need no schedule.
        if threading.current_thread() is not self._thread or not self._stops(kind, path):
            return act()
        self.pending = (kind, path)
        self._stands.release()
        self._go.acquire()
        match self._fault:
            case Fault.FAILS:
                raise StoreError(f"{kind} {path}: failed")
            case Fault.LOST:
                act()
                raise StoreError(f"{kind} {path}: no reply")
            case Fault.DIES:
                raise Crash
            case Fault.DIES_AFTER:
                act()
                raise Crash
            case Fault.TAKEN if kind == "put_if_absent":
                act()
                return False
            case Fault.REPEATED if kind in WRITES:
                self._simulation.under_way.append(act)
        return act()
