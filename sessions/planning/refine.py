"""The expected SLA while a session runs, and that of a job run: pure.

    expected 412 s, 371 … 470, promised 520   hash_bucket 60, dedupe 90, materialize 230, other 32
    after 130 s: hash_bucket is done, and half of dedupe: 105 s of work in 130 s, so this session is slower than planned
    what is left, 307 s of work, is taken to go on a little faster than that          expected 495 s, 462 … 540
    two of four workers are gone: what is left takes twice as long                    expected 860 s

A job run takes as long as the last of its sessions; those that wait for a place count with their wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from sessions.base.model import Estimate, Progress, SessionPlan

STAGES = ("rehash", "hash_bucket", "dedupe", "assign_pointers", "lay_out", "write_index", "materialize")
"""In their order; `session` is before, between and after them."""

_IN_EVERY_ROUND = ("hash_bucket", "dedupe")
_BEFORE = 0.5
"""The share of the seconds outside of stages that lies before the first stage: reading logs and planning."""

_DOUBT = 0.25
"""After this share of its work, a session's own pace counts as much as the planned one."""


def share_done(plan: SessionPlan, progress: Progress) -> float:
    """The share of a session's work that is done: finished stages, and the finished tasks of the current one.

    hash_bucket and dedupe run in every round; the other stages run once, after the last round.
    """
    total = sum(plan.stage_s.values())
    if not progress.stage or total <= 0:
        return 0.0
    rounds = max(1, progress.rounds or plan.rounds)
    finished_rounds = min(rounds, progress.round)
    done = _BEFORE * plan.stage_s.get("session", 0.0)
    reached = STAGES.index(progress.stage) if progress.stage in STAGES else len(STAGES)
    for place, stage in enumerate(STAGES):
        seconds = plan.stage_s.get(stage, 0.0)
        parts = rounds if stage in _IN_EVERY_ROUND else 1
        over = float(finished_rounds) if parts > 1 else 0.0
        if place < reached:
            over = finished_rounds + 1.0 if parts > 1 else 1.0
        elif place == reached and progress.tasks:
            over += min(1.0, progress.tasks_done / progress.tasks)
        done += seconds * min(1.0, over / parts)
    return min(1.0, done / total)


def refine(plan: SessionPlan, progress: Progress, elapsed_s: float) -> Estimate:
    """The seconds that a session will take in all, seen `elapsed_s` after it began. Never fewer than `elapsed_s`."""
    first, share = plan.expected, max(progress.share, share_done(plan, progress))
    planned_s = share * first.seconds
    # The observed pace is drawn towards the planned one, because one slow task tells little.
    doubt_s = _DOUBT * first.seconds
    pace = (elapsed_s + doubt_s) / (planned_s + doubt_s) if share else max(1.0, elapsed_s / max(first.seconds, 1e-9))
    left_s = (first.seconds - planned_s) * pace
    return Estimate.of(lambda bound: elapsed_s + left_s * getattr(first, bound) / first.seconds)


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """When the last session ends, if they start in this order, `at_once` at a time."""
    places = [0.0] * max(1, min(at_once, len(seconds)))
    for session_s in seconds:
        heapq.heapreplace(places, places[0] + session_s)
    return max(places)


def expect_job_run(
    running: Sequence[Estimate],
    waiting: Sequence[Estimate],
    at_once: int,
    elapsed_s: float = 0.0,
    at_s: float = 0.0,
    others: Sequence[Estimate] = (),
) -> Estimate:
    """Seconds of a job run: the maximum over its groups of sessions (paper, compaction sessions).

    `running`: what is left of each group, in seconds from now; `waiting`: those that start when a place is free, in
    this order, their start included. `at_once`: places for all of them. `elapsed_s` since the job run began. `others`
    are groups of other job runs, running or ahead of those that wait: they take places, and their ends do not count.
    """

    def last(bound: str) -> float:
        ours: list[float] = [getattr(estimate, bound) for estimate in running]
        places = ours + [0.0] * (max(1, at_once) - len(ours))
        heapq.heapify(places)
        for estimate in others:
            heapq.heapreplace(places, places[0] + getattr(estimate, bound))
        for estimate in waiting:
            ours.append(places[0] + getattr(estimate, bound))
            heapq.heapreplace(places, ours[-1])
        return elapsed_s + max(ours, default=0.0)

    return Estimate.of(last, at_s)


def group_estimate(plans: Sequence[SessionPlan], at_s: float = 0.0) -> Estimate:
    """Seconds of a group that has not been launched: its start, and its sessions one after another."""
    start = plans[0].start_s if plans else 0.0
    return Estimate.of(lambda bound: start + sum(getattr(plan.expected, bound) for plan in plans), at_s)
