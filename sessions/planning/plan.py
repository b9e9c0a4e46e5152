"""A job run's plan: one SessionPlan for each partition, from statistics, offers, rates and the desired SLA. Pure.

    desired SLA 900 s                          start   expected   promised   dollars
    this machine, in process                   0.3 s    2,400 s    2,980 s      0.00    too slow
    1 x r6in.4xlarge, spot                     240 s      640 s    1,030 s      0.22    too slow
    2 x r6in.4xlarge, spot                     240 s      330 s      650 s      0.23    the cheapest that meets it
    8 x r6in.4xlarge, spot                     240 s      100 s      365 s      0.45

If nothing meets the desired SLA, the fastest way is chosen, and the choice says which SLA can be met. An SLA counts
from the start of the job run: the start of a process or cluster is included. A session's expected SLA counts from the
moment that its process or cluster is up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base.settings import Settings
from deltacompact.base.wording import size
from deltacompact.planning import sizing
from deltacompact.planning.driver_work import capacity_of, driver_s
from deltacompact.planning.statistics import PartitionStatistics
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN, within_memory
from deltacompact.planning.work import STAGE_OF, TERMS, Folding, WorkTerms, work_of
from sessions.base.model import Choice, SessionPlan
from sessions.planning.expectation import FIRST_EXPECTATION, Expectation
from sessions.planning.grouping import Groupable, grouped
from sessions.planning.observations import SessionWork
from sessions.planning.prices import LOCAL, Offer
from sessions.planning.reasons import PlanReason
from sessions.planning.refine import makespan
from sessions.planning.sizes import Resources, SessionSizes, sizes_of

DAY_S = 86_400.0
NODES = (*range(1, 17), 18, 20, 23, 26, 30, 35, 40, 46, 53, 61, 70, 81, 93, 107, 110, 123, 141, 162, 186, 214, 250)
"""Numbers of workers that are considered: all small ones, then steps of about 15 %, and the most that may be."""


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
            heap, _ = sizing.node_memory(on.node_memory_bytes)
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


def plan_job_run(
    partitions: Sequence[PartitionStatistics], wish: Wish, situation: Situation
) -> tuple[SessionPlan, ...]:
    """A plan for each partition, in their order. Sessions with the same group share a process or cluster.

    Raises ValueError if there is no offer.
    """
    if not situation.offers:
        raise ValueError("there is nothing to run sessions on: no offer")
    whole = _sharing(situation, 1)
    plans = _grouped([_session(partition, wish, whole) for partition in partitions], wish, whole)
    groups_here = len({plan.group for plan in plans if plan.node_type == LOCAL})
    if (at_once := min(groups_here, situation.here_at_once)) > 1:
        part = _sharing(situation, at_once)
        plans = _grouped([_session(partition, wish, part) for partition in partitions], wish, part)
    promised = promised_s(plans, situation)
    return tuple(_with_sla(plan, wish, promised) for plan in plans)


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
    heap, store = sizing.node_memory(memory)
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


def _session(partition: PartitionStatistics, wish: Wish, situation: Situation) -> SessionPlan:
    chosen, reason = best(candidates(partition, wish, situation), wish.desired_sla_s)
    expectation = situation.expectation(chosen.offer.pool)
    work, stream = chosen.work, partition.stream
    stage_s: dict[str, float] = {}
    for term, seconds in expectation.by_term(work, stream).items():
        stage_s[STAGE_OF[term]] = stage_s.get(STAGE_OF[term], 0.0) + seconds
    initial = _workers_initial(partition, chosen)
    return SessionPlan(
        partition=partition.partition,
        group="",
        executor=chosen.offer.executor,
        node_type=chosen.offer.node.name,
        workers_initial=int(initial.value),
        workers_max=chosen.nodes,
        hash_bucket_count=chosen.sizes.hash_buckets,
        rehash=chosen.sizes.rehash,
        rounds=chosen.sizes.rounds,
        delta_files=partition.delta_files,
        delta_rows=partition.delta_rows,
        base_rows=partition.base_rows,
        bytes=partition.bytes,
        peak_bytes=_peak_bytes(chosen),
        memory_bytes=_bound_bytes(chosen),
        expected=expectation.of(work, stream, situation.now_s),
        cost_usd=chosen.usd,
        choices=(*chosen.sizes.choices, _runs_on(chosen, reason), initial, _memory(chosen)),
        launcher=chosen.offer.launcher,
        slots=chosen.on.slots,
        node_cpus=chosen.offer.node.vcpus,
        memory_per_task_bytes=chosen.on.memory_per_task_bytes,
        read_through=partition.read_through,
        start_s=chosen.offer.start_s,
        stage_s={stage: took for stage, took in stage_s.items() if took},
        work=_named(work.busiest),
        stream=stream,
        prices=situation.prices,
        mode=partition.mode,
        whole=_named(work.whole),
        waits=(work.requests, work.starts),
        expected_cpu=expectation.cpu(work, stream, situation.now_s),
    )


def _named(terms: WorkTerms) -> dict[str, float]:
    return {term: amount for term, amount in zip(TERMS, terms.vector.tolist(), strict=True) if amount}


def _runs_on(chosen: Candidate, reason: PlanReason) -> Choice:
    on = f"{chosen.nodes} x {chosen.offer.node.name}, {chosen.offer.executor}"
    text = {
        PlanReason.CHEAPEST_THAT_MEETS_SLA: "the cheapest that meets the desired SLA",
        PlanReason.CHEAPEST: "the cheapest; no SLA is asked for",
        PlanReason.CHEAPEST_WITHIN_A_DAY: "the cheapest that ends within a day; no SLA is asked for",
        PlanReason.FASTEST: "the fastest there is",
        PlanReason.EXCEEDS_MEMORY: "what comes nearest to the memory that it takes",
    }[reason]
    return Choice("runs_on", on, reason, f"{text}: ${chosen.usd:,.2f}, {chosen.done_s:,.0f} s with its start")


def _workers_initial(partition: PartitionStatistics, chosen: Candidate) -> Choice:
    tasks = max(1, math.ceil(partition.delta_rows / chosen.sizes.task_rows), partition.delta_files)
    wanted = math.ceil(tasks / (chosen.on.slots / chosen.nodes))
    if wanted < chosen.nodes:
        return Choice("workers_initial", wanted, PlanReason.FIRST_STAGE, f"the first stage has {tasks:,} tasks")
    return Choice("workers_initial", chosen.nodes, PlanReason.ALL_SLOTS, "there is work for all workers from the start")


def _memory(chosen: Candidate) -> Choice:
    task, may = chosen.sizes.peak_task_bytes, chosen.on.memory_per_task_bytes
    text = f"a task takes {size(task)} of {size(may)}"
    if not chosen.fits:
        return Choice(
            "memory", chosen.on.slots, PlanReason.EXCEEDS_MEMORY, f"{text}, with one task at a time on a node"
        )
    full = next(resources_of(chosen.offer, chosen.nodes)).slots
    if chosen.on.slots < full:
        return Choice("memory", chosen.on.slots, PlanReason.MEMORY, f"{text}: {chosen.on.slots} tasks at a time")
    return Choice("memory", chosen.on.slots, PlanReason.FITS, text)


def _peak_bytes(chosen: Candidate) -> int:
    """The peak of one node's memory. Ray's workers are processes of their own, beside its object store."""
    if chosen.offer.executor == "local":
        return chosen.sizes.peak_bytes
    store = chosen.on.object_store_bytes // chosen.nodes
    return chosen.on.slots // chosen.nodes * chosen.sizes.peak_task_bytes + store


def _bound_bytes(chosen: Candidate) -> int:
    """The memory bound of a process on this machine; 0: the session runs elsewhere, or without a bound."""
    bound = chosen.on.bound_bytes
    return max(MEMORY_BYTES_MIN, bound, chosen.sizes.peak_bytes) if bound else 0


def _sharing(situation: Situation, at_once: int) -> Situation:
    """The situation of one of `at_once` sessions here: together they run as many tasks as the machine has CPUs."""

    def part(offer: Offer) -> Offer:
        if not offer.here:
            return offer
        free = max(1, offer.node.vcpus - situation.busy_slots)
        cpus = max(1, free // at_once)
        memory = offer.node.memory_bytes * cpus // offer.node.vcpus
        return replace(offer, node=replace(offer.node, vcpus=cpus, memory_bytes=memory))

    return replace(situation, offers=tuple(map(part, situation.offers)))


def _grouped(plans: Sequence[SessionPlan], wish: Wish, situation: Situation) -> tuple[SessionPlan, ...]:
    items = [
        Groupable(
            (plan.launcher, plan.executor, plan.node_type, plan.workers_max),
            plan.expected.seconds,
            plan.start_s,
            plan.expected.promise_s,
        )
        for plan in plans
    ]
    groups = grouped(items, wish.desired_sla_s)
    named: list[SessionPlan] = list(plans)
    for number, members in enumerate(groups, 1):
        starts = plans[members[0]].start_s
        for place in members:
            plan = _cold(plans[place], situation) if place == members[0] else plans[place]
            if len(members) > 1:
                text = f"{len(members):,} sessions share a start of {starts:,.0f} s"
                why = Choice("group", number, PlanReason.SHARES_START, text)
            else:
                text = f"{plan.expected.seconds:,.1f} s of work are worth a start of {starts:,.0f} s"
                why = Choice("group", number, PlanReason.WORTH_ITS_START, text)
            named[place] = replace(plan, group=f"g{number}", choices=(*plan.choices, why))
    return tuple(named)


def _cold(plan: SessionPlan, situation: Situation) -> SessionPlan:
    """The plan of the first session of a process or cluster: it adds a cold start."""
    expectation = situation.expectation(f"{plan.executor}/{plan.node_type}")
    cold_s = expectation.cold_s(plan.stream)
    stage_s = {**plan.stage_s, "session": plan.stage_s.get("session", 0.0) + cold_s}
    expected = plan.expected.later(cold_s, plan.expected.at_s)
    return replace(plan, expected=expected, stage_s=stage_s, waits=(plan.waits[0], 1.0))


def _with_sla(plan: SessionPlan, wish: Wish, promised: float) -> SessionPlan:
    """The plan with the verdict on the job run's SLA: whether it can be met, and the nearest SLA that can."""
    desired, nearest = wish.desired_sla_s, math.ceil(promised)
    if desired is None:
        choice = Choice("desired_sla", None, PlanReason.NOT_ASKED_FOR, "nobody asked for an SLA")
    elif nearest <= desired:
        choice = Choice("desired_sla", desired, PlanReason.MET, f"promised within {nearest:,} s of {desired:,.0f} s")
    else:
        text = f"{desired:,.0f} s cannot be promised; the nearest that can is {nearest:,} s"
        choice = Choice("desired_sla", nearest, PlanReason.CANNOT_BE_MET, text)
    return replace(plan, choices=(*plan.choices, choice))


def nearest_sla_s(plans: Iterable[SessionPlan]) -> float | None:
    """The nearest SLA that can be promised, if the job run's desired one cannot; else None."""
    found = choice_of(plans, "desired_sla", PlanReason.CANNOT_BE_MET)
    return None if found is None else float(found.value)


def choice_of(plans: Iterable[SessionPlan], what: str, reason: PlanReason) -> Choice | None:
    """The first choice of this kind that was made for this reason."""
    choices = (choice for plan in plans for choice in plan.choices)
    return next((choice for choice in choices if (choice.what, choice.reason) == (what, reason)), None)


def settings_of(plan: SessionPlan) -> dict[str, Any]:
    """The settings of deltacompact that carry out a plan. The document decides the other settings."""
    chosen = {
        "executor": plan.executor,
        "concurrent_tasks": plan.slots,
        "memory_per_task_bytes": plan.memory_per_task_bytes,
    }
    if plan.memory_bytes:
        chosen["memory_bytes"] = plan.memory_bytes
    if plan.node_type != LOCAL:  # the cluster may grow later, but the first stage waits only for its initial workers
        chosen["ray_cpus"] = plan.node_cpus * plan.workers_initial or None
    return chosen


def promised_s(plans: Sequence[SessionPlan], situation: Situation) -> float:
    """The latest end of the last session, in seconds from the start of the job run."""
    of_group: dict[tuple[bool, str], float] = {}
    for plan in plans:
        group = plan.node_type == LOCAL, plan.group
        of_group[group] = of_group.get(group, plan.start_s) + plan.expected.promise_s
    here = [seconds for (is_here, _), seconds in of_group.items() if is_here]
    elsewhere = [seconds for (is_here, _), seconds in of_group.items() if not is_here]
    return max(makespan(here, situation.here_at_once), makespan(elsewhere, situation.sessions_max))
