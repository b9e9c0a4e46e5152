"""Forecasts how long a held job run takes. Its groups run side by side, as many as have a place.

g1 runs, 40 s left · g2 and g3 wait, 60 s each · two at a time · another job run is before us for 20 s
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sessions.base.model import Estimate, SessionPlan
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.means import Means
from sessions.planning.admission import WaitingGroup
from sessions.planning.prices import LOCAL
from sessions.planning.refine import expect_job_run, group_estimate
from sessions.records.leases import HeldJobRun


class JobRunForecast:
    """Forecasts one job run. `name` makes the name of a group unique among all job runs."""

    def __init__(self, held: HeldJobRun, means: Means) -> None:
        self._held = held
        self._admission = means.admission
        self._clock = means.clock

    def name(self, group: str) -> str:
        return f"{self._held.run.id}/{group}"

    def waiting(self, group: str, plans: Sequence[SessionPlan]) -> WaitingGroup:
        """The group as it waits for a place."""
        limits, accepted_s = self._admission.limits, self._held.run.accepted_s
        return WaitingGroup.of(self.name(group), list(plans), accepted_s, limits)

    def at_first(self, groups: Mapping[str, Sequence[SessionPlan]], now_s: float) -> Estimate | None:
        """The estimate of planned groups, before any is launched. None: there are no groups."""
        if not groups:
            return None
        to_come = [group_estimate(list(plans), now_s) for plans in groups.values()]
        first = self.waiting(*next(iter(groups.items())))
        plans = [plan for members in groups.values() for plan in members]
        others = self._admission.before(first, ())
        return expect_job_run([], to_come, self._at_once(plans), 0.0, now_s, others)

    def of(self, groups: Collection[HeldGroup]) -> Estimate:
        """The estimate of the whole job run, with the seconds that running groups have left."""
        now_s, unended = self._clock(), [group for group in groups if group.unended]
        running = [group.left(now_s) for group in unended if group.launched]
        waiting = [group.to_come(now_s) for group in unended if not group.launched]
        ours = {self.name(group.name) for group in groups}
        first = next((group.waiting for group in unended if not group.launched), None)
        others = self._admission.before(first, ours)
        plans = [plan for group in unended for plan in group.plans_left]
        elapsed_s = now_s - (self._held.run.started_s or now_s)
        return expect_job_run(running, waiting, self._at_once(plans), elapsed_s, now_s, others)

    def _at_once(self, plans: Sequence[SessionPlan]) -> int:
        """How many groups run side by side. On this machine they share its CPUs, as planned."""
        limits = self._admission.limits
        if limits.slots is None or not plans or any(plan.node_type != LOCAL for plan in plans):
            return limits.sessions_max
        return max(1, min(limits.sessions_max, limits.slots // max(plan.slots for plan in plans)))
