"""Records the sessions of a planned job run, then that it is running.

epoch 2     sessions "all", group g1.2      an earlier epoch recorded them and died: they stay as they are
life 2      session of day=1                it had succeeded in life 1: it stays; the others begin anew
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from deltacompact.base.errors import StoreError
from sessions.base.ids import session_id
from sessions.base.model import JobRunSession, JobRunState, SessionPlan, SessionState
from sessions.dispatch.asking import each
from sessions.dispatch.forecast import JobRunForecast
from sessions.dispatch.means import Means
from sessions.planning.plan import nearest_sla_s
from sessions.records.leases import HeldJobRun

_LOG = logging.getLogger("sessions")


def record_plans(held: HeldJobRun, means: Means, plans: Sequence[SessionPlan]) -> list[JobRunSession]:
    """Record the sessions, then that the job run is running. What an earlier epoch recorded stays as it is."""
    run = held.run
    plans = tuple(replace(plan, group=f"{plan.group}.{held.epoch}") for plan in plans)
    means.launcher.ready()
    groups: dict[str, list[SessionPlan]] = {}
    for plan in plans:
        groups.setdefault(plan.group, []).append(plan)
    sessions = each(plans, lambda plan: _recorded(held, plan))
    names = {group: [session_id(plan.partition) for plan in members] for group, members in groups.items()}
    for group, of_group in names.items():
        held.state.put_group(run.id, group, of_group)
    now_s = means.clock()
    expected = JobRunForecast(held, means).at_first(groups, now_s)
    nearest_s = nearest_sla_s(plans)
    if nearest_s is not None:
        _LOG.warning("desired SLA %s s cannot be met, the nearest that can is %s s", run.desired_sla_s, nearest_s)
    held.change(
        state=JobRunState.RUNNING,
        started_s=now_s,
        nearest_sla_s=nearest_s,
        expected_first=expected,
        expected=expected,
        session_ids=tuple(name for of_group in names.values() for name in of_group),
        launchers=tuple(sorted({plan.launcher for plan in plans})),
        trouble=None,
    )
    return sessions


def _recorded(held: HeldJobRun, plan: SessionPlan) -> JobRunSession:
    name, run = session_id(plan.partition), held.run
    session = JobRunSession(name, run.id, plan.partition, plan=plan, life=run.life)
    session = replace(session, expected_first=plan.expected, expected=plan.expected)
    if held.state.add_session(session):
        return session
    # An earlier epoch recorded it and died before the job run was running, or it is of an earlier life.
    stored = held.state.session(run.id, name)
    again = _again(stored.value, session, was_ours=name in run.session_ids)
    if again != stored.value and held.state.change_session(stored, again) is None:
        raise StoreError(f"session {name} was changed meanwhile")
    return again


def _again(stored: JobRunSession, planned: JobRunSession, was_ours: bool) -> JobRunSession:
    """A session that was recorded before, as it is planned now.

    One of this life was not launched: it begins. Of an earlier life, what has succeeded for this document stays; the
    last attempt at anything else is fenced off before the next one.
    """
    again = replace(planned, epoch=stored.epoch, attempts=stored.attempts)
    if stored.life == planned.life or not was_ours:
        return again
    if stored.state in (SessionState.SUCCEEDED, SessionState.NOTHING_TO_DO):
        return stored
    return replace(again, attempt=stored.attempt, engine_session_id=stored.engine_session_id)
