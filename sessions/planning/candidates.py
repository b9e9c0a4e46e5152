"""The ways to run one session, and the best of them. Pure.

desired SLA 900 s                          start   expected   promised   dollars
this machine, in process                   0.3 s    2,400 s    2,980 s      0.00    too slow
1 x r6in.4xlarge, spot                     240 s      640 s    1,030 s      0.22    too slow
2 x r6in.4xlarge, spot                     240 s      330 s      650 s      0.23    the cheapest that meets it
8 x r6in.4xlarge, spot                     240 s      100 s      365 s      0.45
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deltacompact.base.settings import Settings
from deltacompact.planning.driver_work import capacity_of, driver_s
from deltacompact.planning.sizing import task_memory
from deltacompact.planning.statistics import PartitionStatistics
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN, within_memory
from deltacompact.planning.work import Folding, WorkTerms, work_of
from sessions.planning.expectation import Expectation
from sessions.planning.observations import SessionWork
from sessions.planning.prices import Offer
from sessions.planning.reasons import PlanReason
from sessions.planning.situation import Situation, Wish
from sessions.planning.sizes import Resources, SessionSizes, sizes_of

DAY_S = 86_400.0
NODES = (*range(1, 17), 18, 20, 23, 26, 30, 35, 40, 46, 53, 61, 70, 81, 93, 107, 110, 123, 141, 162, 186, 214, 250)
"""Numbers of workers that are considered: all small ones, then steps of about 15 %, and the most that may be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run one session. `fits`: its tasks fit the memory of its nodes."""

    offer: Offer
    nodes: int
    on: Resources
    sizes: SessionSizes
    work: SessionWork
    seconds: float
    promise_s: float
    fits: bool

    @property
    def done_s(self) -> float:
        """Seconds from the launch to the end."""
        return self.offer.start_s + self.seconds

    @property
    def promised_s(self) -> float:
        """The latest end, counted from the launch."""
        return self.offer.start_s + self.promise_s

    @property
    def usd(self) -> float:
        return self.offer.usd(self.nodes, self.done_s)


def best(candidates: Sequence[Candidate], desired_s: float | None) -> tuple[Candidate, PlanReason]:
    """The cheapest candidate that meets the desired SLA, else the fastest. Candidates that fit the memory go first."""
    fitting = [candidate for candidate in candidates if candidate.fits]
    if not fitting:
        return min(
            candidates, key=lambda candidate: (_memory_share(candidate), candidate.usd)
        ), PlanReason.EXCEEDS_MEMORY
    within = DAY_S if desired_s is None else desired_s
    meeting = [candidate for candidate in fitting if candidate.promised_s <= within]
    if not meeting:
        return min(fitting, key=lambda candidate: (candidate.promised_s, candidate.usd)), PlanReason.FASTEST
    chosen = min(meeting, key=lambda candidate: (candidate.usd, candidate.promised_s))
    if desired_s is not None:
        return chosen, PlanReason.CHEAPEST_THAT_MEETS_SLA
    cheapest = min(fitting, key=lambda candidate: (candidate.usd, candidate.promised_s))
    return chosen, PlanReason.CHEAPEST if chosen is cheapest else PlanReason.CHEAPEST_WITHIN_A_DAY


def _memory_share(candidate: Candidate) -> float:
    """A task's peak memory as a share of the memory that a task has there."""
    return candidate.sizes.peak_task_bytes / candidate.on.memory_per_task_bytes


def candidates(partition: PartitionStatistics, wish: Wish, situation: Situation) -> list[Candidate]:
    """Every way to run a session that may be the best one.

    More nodes of an offer are listed only if they are faster. Leaves out a way whose start alone costs more than all of
    a way that meets the desired SLA.
    """
    found: list[Candidate] = []
    within, enough_usd = wish.desired_sla_s or DAY_S, math.inf
    for offer in sorted(wish.accepted(situation.offers), key=lambda offer: offer.usd(1, offer.start_s)):
        expectation = situation.expectation(offer.pool)
        fastest = math.inf
        nodes_max = min(offer.nodes_max, wish.tasks_max or offer.nodes_max)
        for nodes in (*(nodes for nodes in NODES if nodes < nodes_max), nodes_max):
            if offer.usd(nodes, offer.start_s) > enough_usd:
                break
            candidate = _candidate(partition, wish, offer, nodes, expectation)
            if candidate.seconds < fastest:
                found.append(candidate)
            if candidate.fits:
                fastest = min(fastest, candidate.seconds)
            if candidate.fits and candidate.promised_s <= within:
                enough_usd = min(enough_usd, candidate.usd)
        if enough_usd == 0.0:
            break
    return found


def _candidate(
    partition: PartitionStatistics, wish: Wish, offer: Offer, nodes: int, expectation: Expectation
) -> Candidate:
    """The candidate with as many tasks at a time as fit the nodes' memory."""
    for on in map(wish.limited, resources_of(offer, nodes)):
        sizes = sizes_of(partition, on, wish.hash_buckets, wish.rows_per_round)
        if fits := sizes.peak_task_bytes <= on.memory_per_task_bytes:
            break
    expected = expectation.of(work := _work(partition, sizes, on), partition.stream)
    return Candidate(offer, nodes, on, sizes, work, expected.seconds, expected.promise_s, fits)


def _work(partition: PartitionStatistics, sizes: SessionSizes, on: Resources) -> SessionWork:
    """The session's work in a warm process. The first session of a group starts cold: see `_cold`."""
    folding = Folding(sizes.hash_buckets, sizes.rounds, sizes.adds_run, sizes.rehash)
    driver = _driver_s(partition.delta_rows + partition.base_rows, on)
    busiest, whole = (work_of(partition, folding, slots, driver) for slots in (on.slots, 1))
    return SessionWork(busiest, whole, _requests(partition, busiest, on.slots) if partition.is_remote else 0.0)


_REQUESTS = 10
"""Requests that any session sends one after the other: for its log, its records, the switch."""
_AT_ONCE = 4
"""Requests of a slot that wait together: on a remote store, that many tasks share a slot."""


def _requests(partition: PartitionStatistics, busiest: WorkTerms, slots: int) -> float:
    """Requests of the busiest slot; requests that wait at the same time count as one."""
    touched = partition.touched.decoded_rows * partition.base_files / slots
    return _REQUESTS + (busiest.delta_file + busiest.object + touched) / _AT_ONCE


def _driver_s(rows: int, on: Resources) -> float:
    """Seconds of the driver; 0 within one process, where handing out tasks costs nothing."""
    if on.shared_process:
        return 0.0
    return driver_s(rows, capacity_of(on.nodes, on.slots // on.nodes, on.node_memory_bytes))


def resources_of(offer: Offer, nodes: int) -> Iterator[Resources]:
    """The ways to divide nodes among tasks: a task for each CPU, then half as many with twice the memory, down to one.

    A process on this machine begins with the most tasks that can read as usual. Its last resort is one task that reads
    as little at a time as fits.
    """
    memory, cpus, is_local = offer.node.memory_bytes, offer.node.vcpus, offer.executor == "local"
    heap, store = task_memory.node_memory(memory)
    bound = max(MEMORY_BYTES_MIN, memory)
    if is_local:
        cpus = _divided(bound, cpus).slots
    while True:
        yield Resources(cpus * nodes, nodes, memory, heap // cpus, store * nodes, is_local, bound * is_local)
        if cpus == 1:
            break
        cpus //= 2
    if is_local:
        yield _divided(bound, 1)


def _divided(bound: int, cpus: int) -> Resources:
    """The resources of a process with this memory bound, divided as the engine divides them."""
    within = within_memory(Settings(memory_bytes=bound, local_threads=cpus))
    slots, task, held = within.local_threads, within.memory_per_task_bytes, within.object_store_bytes
    assert slots is not None and task is not None and held is not None
    return Resources(slots, 1, bound, task, held, True, bound, reads_less=True)
