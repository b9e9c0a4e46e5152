"""Finds what would keep a desired SLA that cannot be promised: more CPUs, or more time. Pure.

    desired 900 s, 2 CPUs here        promised within 2,980 s      2,980 s would be kept
    the same on  4 CPUs               promised within 1,520 s
    the same on  8 CPUs               promised within   810 s      8 CPUs would keep 900 s
    desired 2 s                       0.3 s to start and a session of one task: 64 times the CPUs do not help

The job run is planned again on machines and clusters that are 2, 4, … 64 times as large, so what cannot be divided
stays undivided. For more than 256 partitions such planning takes too long, so only the time is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltacompact.planning.statistics import PartitionStatistics
from sessions.base.model import Choice, SessionPlan
from sessions.planning.choices import choice_of, nearest_sla_s
from sessions.planning.plan import plan_job_run
from sessions.planning.prices import Offer
from sessions.planning.reasons import PlanReason
from sessions.planning.situation import Situation, Wish

PARTITIONS_MAX = 256
_FACTORS = (2, 4, 8, 16, 32, 64)
_CPUS = "cpus"


def plan_with_remedy(
    partitions: Sequence[PartitionStatistics], wish: Wish, situation: Situation
) -> tuple[SessionPlan, ...]:
    """The plans of a job run. If its desired SLA cannot be promised, each plan says how many CPUs would keep it."""
    plans = plan_job_run(partitions, wish, situation)
    if nearest_sla_s(plans) is None or len(partitions) > PARTITIONS_MAX:
        return plans
    cpus = _cpus(situation)
    for factor in _FACTORS:
        if nearest_sla_s(plan_job_run(partitions, wish, larger(situation, factor))) is None:
            text = f"{factor * cpus:,} CPUs would keep {wish.desired_sla_s:,.0f} s; there are {cpus:,}"
            remedy = Choice(_CPUS, factor * cpus, PlanReason.MORE_CPUS, text)
            return tuple(replace(plan, choices=(*plan.choices, remedy)) for plan in plans)
    return plans


def cpus_needed(plans: Sequence[SessionPlan]) -> int | None:
    """The CPUs that would keep a desired SLA that cannot be promised. None: it can be, or more CPUs do not help."""
    found = choice_of(plans, _CPUS, PlanReason.MORE_CPUS)
    return None if found is None else int(found.value)


def not_promised(desired_s: float | None, nearest_s: float, cpus: int | None) -> str:
    """One line for people: what cannot be promised, and what would keep it."""
    text = f"the desired SLA of {desired_s:,.0f} s cannot be promised: the nearest that can is {nearest_s:,.0f} s"
    return text if cpus is None else f"{text}, or {cpus:,} CPUs would keep it"


def larger(situation: Situation, factor: int) -> Situation:
    """The situation with `factor` times the CPUs, the memory and the simultaneous sessions."""
    offers = tuple(_larger(offer, factor) for offer in situation.offers)
    return replace(situation, offers=offers, sessions_max=factor * situation.sessions_max)


def _larger(offer: Offer, factor: int) -> Offer:
    if not offer.here:
        return replace(offer, nodes_max=factor * offer.nodes_max)
    node = offer.node
    return replace(offer, node=replace(node, vcpus=factor * node.vcpus, memory_bytes=factor * node.memory_bytes))


def _cpus(situation: Situation) -> int:
    return max(offer.nodes_max * offer.node.vcpus for offer in situation.offers)
