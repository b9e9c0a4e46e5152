"""A job run's plan: one SessionPlan for each partition, from statistics, offers, rates and the desired SLA. Pure.

    day=1    2 x r6in.4xlarge, spot    group g1    expected 330 s, the first session of its cluster
    day=2    2 x r6in.4xlarge, spot    group g1    expected 12 s, it shares the start of 240 s
    day=3    this machine              group g2    expected 1.5 s

Each session runs on the best of its candidates (candidates.py). If none meets the desired SLA, it is the fastest, and a
choice says which SLA can be met. An SLA counts from the start of the job run: the start of a process or cluster is
included. A session's expected SLA counts from the moment that its process or cluster is up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltacompact.planning.statistics import PartitionStatistics
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN
from deltacompact.planning.work import STAGE_OF, TERMS, WorkTerms
from sessions.base.model import Choice, SessionPlan
from sessions.planning import choices
from sessions.planning.candidates import Candidate, best, candidates
from sessions.planning.choices import choice_of
from sessions.planning.grouping import Groupable, grouped
from sessions.planning.prices import LOCAL, Offer
from sessions.planning.reasons import PlanReason
from sessions.planning.refine import makespan
from sessions.planning.situation import Situation, Wish


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


def _session(partition: PartitionStatistics, wish: Wish, situation: Situation) -> SessionPlan:
    chosen, reason = best(candidates(partition, wish, situation), wish.desired_sla_s)
    expectation = situation.expectation(chosen.offer.pool)
    work, stream = chosen.work, partition.stream
    stage_s: dict[str, float] = {}
    for term, seconds in expectation.by_term(work, stream).items():
        stage_s[STAGE_OF[term]] = stage_s.get(STAGE_OF[term], 0.0) + seconds
    initial = choices.workers_initial(partition, chosen)
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
        choices=(*chosen.sizes.choices, choices.runs_on(chosen, reason), initial, choices.memory(chosen)),
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


def as_found_later(plan: SessionPlan) -> SessionPlan:
    """The plan of a partition with nothing to do, or that could not be read: more may be there when its session runs.

    The session then takes the hash buckets of the index that it finds, and rates learn nothing from its work.
    """
    if choice_of([plan], "hash_buckets", PlanReason.ASKED_FOR) is not None:
        return replace(plan, work={})
    choices = tuple(choice for choice in plan.choices if choice.what != "hash_buckets")
    return replace(plan, work={}, hash_bucket_count=0, choices=choices)


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
        of_worker = plan.node_cpus or plan.slots // plan.workers_max  # plans of the version before lack the CPUs
        chosen["ray_cpus"] = max(1, of_worker * plan.workers_initial)
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
