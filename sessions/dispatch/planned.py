"""Records the sessions of a planned job run, and then the job run as running.

epoch 2     sessions "all", group g1.2      epoch 1 had recorded sessions, and died: they are planned anew
life 2      session of day=1                it had succeeded in life 1: it stays; the others begin anew
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from deltacompact.base.errors import StoreError
from sessions.base.ids import session_id
from sessions.base.model import Estimate, JobRun, JobRunSession, JobRunState, SessionPlan
from sessions.dispatch.asking import each
from sessions.dispatch.forecast import JobRunForecast
from sessions.dispatch.means import Means
from sessions.planning.choices import nearest_sla_s
from sessions.planning.remedies import cpus_needed, not_promised
from sessions.records.leases import HeldJobRun

_LOG = logging.getLogger("sessions")


def record_plans(held: HeldJobRun, means: Means, plans: Sequence[SessionPlan]) -> list[JobRunSession]:
    """Record the sessions, and then the job run as running. Returns the sessions."""
    run = held.run
    plans = tuple(replace(plan, group=f"{plan.group}.{held.epoch}") for plan in plans)
    means.launcher.ready()
    groups: dict[str, list[SessionPlan]] = {}
    for plan in plans:
        groups.setdefault(plan.group, []).append(plan)
    sessions = each(plans, lambda plan: _recorded(held, plan))
    names = {group: [session_id(plan.partition) for plan in members] for group, members in groups.items()}
    each(names.items(), lambda named: held.state.put_group(run.id, *named))
    now_s = means.clock()
    expected = JobRunForecast(held, means).at_first(groups, now_s)
    nearest_s, cpus = _promisable_s(run, nearest_sla_s(plans), expected, now_s), cpus_needed(plans)
    if nearest_s is not None:
        _LOG.warning("%s", not_promised(run.desired_sla_s, nearest_s, cpus))
    held.change(
        state=JobRunState.RUNNING,
        started_s=now_s,
        nearest_sla_s=nearest_s,
        cpus_needed=cpus,
        expected_first=expected,
        expected=expected,
        session_ids=tuple(name for of_group in names.values() for name in of_group),
        launchers=tuple(sorted({plan.launcher for plan in plans})),
        trouble=None,
    )
    return sessions


def _promisable_s(run: JobRun, planned_s: float | None, expected: Estimate | None, now_s: float) -> float | None:
    """The nearest SLA that can be promised, if the desired SLA cannot. It includes the time since the acceptance, and
    the seconds of other job runs before this one. None: the desired SLA can be promised."""
    if run.desired_sla_s is None or expected is None:
        return planned_s
    promised_s = math.ceil(max(0.0, now_s - run.accepted_s) + expected.promise_s)
    if planned_s is None and promised_s <= run.desired_sla_s:
        return None
    return float(max(planned_s or 0.0, promised_s))


def _recorded(held: HeldJobRun, plan: SessionPlan) -> JobRunSession:
    name, run = session_id(plan.partition), held.run
    session = JobRunSession(name, run.id, plan.partition, plan=plan, life=run.life)
    session = replace(session, expected_first=plan.expected, expected=plan.expected)
    if held.state.add_session(session):
        return session
    # An earlier epoch recorded the session and died before the job run was running, or it is from an earlier life.
    stored = held.state.session(run.id, name)
    again = _again(stored.value, session, was_ours=name in run.session_ids)
    if again != stored.value and held.state.change_session(stored, again) is None:
        raise StoreError(f"session {name} was changed meanwhile")
    return again


def _again(stored: JobRunSession, planned: JobRunSession, was_ours: bool) -> JobRunSession:
    """A session that was recorded before, as it is planned now.

    A session of an earlier life stays if it has succeeded for this document; otherwise its last attempt is fenced off
    before the next one. A session of this life was never launched, but it may still have to fence off such an attempt.
    """
    again = replace(planned, epoch=stored.epoch, attempts=stored.attempts)
    if not was_ours:  # what an attempt for another document published is no outcome for this one
        return again
    if stored.life != planned.life and stored.state.compacted:
        return stored
    return replace(again, attempt=stored.attempt, engine_session_id=stored.engine_session_id)
