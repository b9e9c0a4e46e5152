"""Which groups of sessions start now, and why each other one waits. Pure.

    limits   2 sessions at once, 20 GiB on this machine
    runs     a     9 GiB
    waits    b     read through 400 files, 1 GB to rewrite       400 a GB     starts: worst first
             c     read through  90 files, 1 GB to rewrite        90 a GB     sessions limit reached
             d     waits for five hours                                       starts before b: nobody waits for ever

A group that has waited for longer than `starved_after_s` goes first. Its room is reserved: other groups start only if
they fit beside it, too, so it waits at most until the groups that run now have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from deltacompact.planning.within_memory import MEMORY_BYTES_MIN
from sessions.base.cron import began_s
from sessions.base.model import SessionPlan
from sessions.planning.prices import LOCAL
from sessions.planning.reasons import PlanReason, Wait

REWRITE_BYTES_MIN = 1 << 20
"""The least that a session writes: records, index, a version."""
_MINUTES_MAX = 366 * 24 * 60


@dataclass(frozen=True, slots=True)
class QuietWindow:
    """For `minutes` minutes from each time of the cron expression, in its time zone, no group starts.

    QuietWindow("0 8 * * 1-5", 600, "Europe/Berlin"): office hours. Raises ValueError for an invalid cron expression or
    time zone.
    """

    cron: str
    minutes: int
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            CronSim(self.cron, datetime.now(ZoneInfo(self.time_zone)))
        except Exception as error:
            raise ValueError(f"quiet window {self.cron!r} in {self.time_zone!r}: {error}") from error
        if not 0 < self.minutes <= _MINUTES_MAX:
            raise ValueError(f"quiet window {self.cron!r} lasts {self.minutes} minutes")

    def until_s(self, now_s: float) -> float | None:
        """The end of the window that is open now (Unix seconds); None: none is open."""
        begin_s = began_s(self.cron, self.time_zone, now_s)
        ends_s = None if begin_s is None else begin_s + 60 * self.minutes
        return ends_s if ends_s is not None and now_s < ends_s else None


@dataclass(frozen=True, slots=True)
class DispatcherLimits:
    """Limits of one dispatcher: groups and workers at a time, and memory and CPUs of groups on this machine."""

    sessions_max: int = 4
    workers_max: int | None = None
    memory_bytes: int | None = None
    slots: int | None = None
    starved_after_s: float = 4 * 3600.0
    quiet: tuple[QuietWindow, ...] = ()


def limited(plan: SessionPlan, limits: DispatcherLimits) -> SessionPlan:
    """The plan within these limits. If it exceeds them, a larger dispatcher made it: here its session takes all.

    How much work its busiest slot then has is not known, so rates learn nothing from it. A plan that is known to lack
    the memory for even one task keeps it, and no process has less than MEMORY_BYTES_MIN: these never fit.
    """
    if plan.node_type == LOCAL:
        most = None if limits.memory_bytes is None else max(limits.memory_bytes, MEMORY_BYTES_MIN)
        too_wide = any(choice.reason == PlanReason.EXCEEDS_MEMORY for choice in plan.choices)
        within = replace(
            plan,
            slots=_least(plan.slots, limits.slots),
            memory_bytes=_least(plan.memory_bytes, most),
            peak_bytes=plan.peak_bytes if too_wide else _least(plan.peak_bytes, most),
        )
    else:
        workers = _least(plan.workers_max, limits.workers_max)
        within = replace(
            plan,
            workers_initial=min(plan.workers_initial, workers),
            workers_max=workers,
            slots=plan.slots * workers // plan.workers_max,
        )
    return plan if within == plan else replace(within, work={})


def _least(planned: int, limit: int | None) -> int:
    return planned if limit is None else min(planned, limit)


@dataclass(frozen=True, slots=True)
class Takes:
    """The resources of a running group. Workers are of clusters, memory and slots of this machine: else they are 0."""

    group: str
    workers: int = 0
    memory_bytes: int = 0
    slots: int = 0

    @classmethod
    def of(cls, group: str, plans: Sequence[SessionPlan], limits: DispatcherLimits) -> Takes:
        """The resources of a group, whose sessions run one after another. A process may take its whole memory bound."""
        plans = [limited(plan, limits) for plan in plans]
        here = [plan for plan in plans if plan.node_type == LOCAL]
        return cls(
            group,
            max((plan.workers_max for plan in plans if plan.node_type != LOCAL), default=0),
            max((max(plan.peak_bytes, plan.memory_bytes) for plan in here), default=0),
            max((plan.slots for plan in here), default=0),
        )


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """A group that has not started. `read_through`: its deltas and small files; `rewrite_bytes`: bytes to rewrite."""

    takes: Takes
    read_through: int
    rewrite_bytes: int
    since_s: float

    @classmethod
    def of(cls, group: str, plans: Sequence[SessionPlan], since_s: float, limits: DispatcherLimits) -> WaitingGroup:
        """A group with these sessions left to run, on a machine with these limits."""
        read_through, size = sum(plan.read_through for plan in plans), sum(plan.bytes for plan in plans)
        return cls(Takes.of(group, plans, limits), read_through, size, since_s)

    @property
    def benefit_by_cost(self) -> float:
        """Files that readers no longer go through, for each byte rewritten."""
        return self.read_through / max(self.rewrite_bytes, REWRITE_BYTES_MIN)


@dataclass(frozen=True, slots=True)
class Postponed:
    """A group that waits, and why. `until_s`: until when, if it is known (Unix seconds)."""

    group: str
    wait: Wait
    text: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The groups to start now, in order, and why each of the others waits."""

    start: tuple[str, ...] = ()
    wait: tuple[Postponed, ...] = ()


def in_order(waiting: Sequence[WaitingGroup], starved_after_s: float, now_s: float) -> list[WaitingGroup]:
    """Groups that have waited too long come first, the longest waiting ahead. The others follow by benefit by cost."""

    def rank(group: WaitingGroup) -> tuple[bool, float, float, str]:
        starved = _starved(group, starved_after_s, now_s)
        return not starved, group.since_s if starved else -group.benefit_by_cost, group.since_s, group.takes.group

    return sorted(waiting, key=rank)


def admit(
    waiting: Sequence[WaitingGroup], running: Sequence[Takes], limits: DispatcherLimits, now_s: float
) -> Admitted:
    """Admit groups, in order, that fit beside the running ones."""
    ordered = in_order(waiting, limits.starved_after_s, now_s)
    ends = [end for window in limits.quiet if (end := window.until_s(now_s)) is not None]
    if ends:
        text = "a quiet window is open"
        return Admitted((), tuple(Postponed(group.takes.group, Wait.QUIET, text, max(ends)) for group in ordered))
    start: list[str] = []
    wait: list[Postponed] = []
    used, kept = list(running), list(running)
    for group in ordered:
        name = group.takes.group
        if never := _short_of(group.takes, [], limits):
            wait.append(Postponed(name, Wait.NEVER_FITS, f"even alone: {_TEXTS[never]}"))
        elif short := _short_of(group.takes, used, limits):
            wait.append(Postponed(name, short, _TEXTS[short]))
            if _starved(group, limits.starved_after_s, now_s):
                kept.append(group.takes)
        elif _short_of(group.takes, kept, limits):
            wait.append(Postponed(name, Wait.RESERVED, "what is free is kept for one that has waited too long"))
        else:
            start.append(name)
            used.append(group.takes)
            kept.append(group.takes)
    return Admitted(tuple(start), tuple(wait))


_TEXTS = {
    Wait.SESSIONS: "as many sessions run as may",
    Wait.WORKERS: "it needs more workers than are left",
    Wait.MEMORY: "it is planned for more memory than is left on this machine",
    Wait.CPUS: "it is planned for more CPUs than are left on this machine",
}


def _short_of(wanted: Takes, used: Sequence[Takes], limits: DispatcherLimits) -> Wait | None:
    if len(used) + 1 > limits.sessions_max:
        return Wait.SESSIONS
    if wanted.workers and _over(limits.workers_max, [wanted.workers, *(taken.workers for taken in used)]):
        return Wait.WORKERS
    if wanted.memory_bytes and _over(
        limits.memory_bytes, [wanted.memory_bytes, *(taken.memory_bytes for taken in used)]
    ):
        return Wait.MEMORY
    if wanted.slots and _over(limits.slots, [wanted.slots, *(taken.slots for taken in used)]):
        return Wait.CPUS
    return None


def _over(limit: int | None, taken: Sequence[int]) -> bool:
    return limit is not None and sum(taken) > limit


def _starved(one: WaitingGroup, after_s: float, now_s: float) -> bool:
    return now_s - one.since_s >= after_s
