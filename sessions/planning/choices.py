"""The choices of a plan, each with its reason in words. Pure.

runs_on            2 x r6in.4xlarge, ray     the cheapest that meets the desired SLA: $0.23, 330 s with its start
workers_initial    1                         the first stage has 9 tasks
memory             8                         a task takes 6.1 GiB of 9.6 GiB: 8 tasks at a time
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from deltacompact.base.wording import size
from deltacompact.planning.statistics import PartitionStatistics
from sessions.base.model import Choice, SessionPlan
from sessions.planning.candidates import Candidate, resources_of
from sessions.planning.reasons import PlanReason


def runs_on(chosen: Candidate, reason: PlanReason) -> Choice:
    """On what the session runs."""
    on = f"{chosen.nodes} x {chosen.offer.node.name}, {chosen.offer.executor}"
    text = {
        PlanReason.CHEAPEST_THAT_MEETS_SLA: "the cheapest that meets the desired SLA",
        PlanReason.CHEAPEST: "the cheapest; no SLA is asked for",
        PlanReason.CHEAPEST_WITHIN_A_DAY: "the cheapest that ends within a day; no SLA is asked for",
        PlanReason.FASTEST: "the fastest there is",
        PlanReason.EXCEEDS_MEMORY: "what comes nearest to the memory that it takes",
    }[reason]
    return Choice("runs_on", on, reason, f"{text}: ${chosen.usd:,.2f}, {chosen.done_s:,.0f} s with its start")


def workers_initial(partition: PartitionStatistics, chosen: Candidate) -> Choice:
    """How many workers the cluster begins with."""
    tasks = max(1, math.ceil(partition.delta_rows / chosen.sizes.task_rows), partition.delta_files)
    wanted = math.ceil(tasks / (chosen.on.slots / chosen.nodes))
    if wanted < chosen.nodes:
        return Choice("workers_initial", wanted, PlanReason.FIRST_STAGE, f"the first stage has {tasks:,} tasks")
    return Choice("workers_initial", chosen.nodes, PlanReason.ALL_SLOTS, "there is work for all workers from the start")


def memory(chosen: Candidate) -> Choice:
    """How many tasks run at a time, by the memory that one takes."""
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


def nearest_sla_s(plans: Iterable[SessionPlan]) -> float | None:
    """The nearest SLA that can be promised, if the job run's desired one cannot; else None."""
    found = choice_of(plans, "desired_sla", PlanReason.CANNOT_BE_MET)
    return None if found is None else float(found.value)


def choice_of(plans: Iterable[SessionPlan], what: str, reason: PlanReason) -> Choice | None:
    """The first choice of this kind that was made for this reason."""
    choices = (choice for plan in plans for choice in plan.choices)
    return next((choice for choice in choices if (choice.what, choice.reason) == (what, reason)), None)
