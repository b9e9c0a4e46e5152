"""Ending a job run from outside, and running one again.

    cancel     nobody holds it: CANCELLED at once
               somebody does: `cancelling` in its record; the holder sees that as it renews its lease, ends its groups
    retry      FAILED or CANCELLED -> ACCEPTED, in its next life: how it had ended is in `earlier`
    submit     again under the id of an ended job run: as retry, with the document that was sent

Lease epochs count on through all lives, so attempts of an earlier life are fenced off like any other. `retry` runs the
same document and skips the sessions that had succeeded; a new submission runs all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deltacompact.base.errors import ConflictError
from sessions.base.model import Ending, JobRun, JobRunState
from sessions.records.leases import NOBODY
from sessions.records.state_store import StateStore, StoredRecord

_SWAPS_MAX = 20


def cancel(state: StateStore, job_run_id: str) -> JobRun:
    """Cancel a job run. Returns it: ended already, or marked for its holder to end. Raises NotFoundError."""
    for _ in range(_SWAPS_MAX):
        stored = state.job_run(job_run_id)
        run = stored.value
        if run.state.ended or run.cancelling:
            return run
        if (run.lease is not None and run.lease.owner != NOBODY) or run.state is JobRunState.RUNNING:
            after = replace(run, cancelling=True)  # its last attempts have to be fenced off
        else:
            after = replace(run, state=JobRunState.CANCELLED, finished_s=state.now_s(), trouble=None)
        if state.change_job_run(stored, after) is not None:
            if after.state.ended:
                state.close(after)
            return after
    raise ConflictError(f"job run {job_run_id} is changed faster than it can be cancelled: try again")


def retry(state: StateStore, job_run_id: str) -> JobRun:
    """Run a failed or cancelled job run again. Raises NotFoundError; ConflictError for one in any other state."""
    for _ in range(_SWAPS_MAX):
        stored = state.job_run(job_run_id)
        if not stored.value.state.may_run_again:
            raise ConflictError(
                f"job run {job_run_id} is {stored.value.state}: only a failed or cancelled one runs again"
            )
        again = state.reopen(stored, next_life(stored.value, state.now_s()))
        if again is not None:
            return again.value
    raise ConflictError(f"job run {job_run_id} is changed faster than it can be run again: try again")


def submitted_again(
    stored: StoredRecord[JobRun], document: Mapping[str, Any], message: str, sent_s: float, now_s: float
) -> JobRun | None:
    """The next life of a job run, which a new message asks for. None if the message is a duplicate.

    A message that was sent before the job run ended is a duplicate of the one that started it.
    """
    run = stored.value
    ended_s = run.finished_s if run.finished_s is not None else stored.modified_s
    if not run.state.may_run_again or message == run.message or sent_s <= ended_s:
        return None
    again = next_life(run, now_s)
    desired_s = document.get("desired_sla")
    return replace(again, document=dict(document), message=message, desired_sla_s=desired_s, session_ids=())


def next_life(run: JobRun, now_s: float) -> JobRun:
    """The record of a job run's next life. It keeps the list of sessions, because those that succeeded count."""
    return JobRun(
        run.id,
        run.document,
        JobRunState.ACCEPTED,
        now_s,
        message=run.message,
        lease=replace(run.lease, owner=NOBODY) if run.lease else None,
        takeovers=run.takeovers,
        late_heartbeats=run.late_heartbeats,
        desired_sla_s=run.desired_sla_s,
        session_ids=run.session_ids,
        earlier=(*run.earlier, Ending(run.state, run.finished_s, run.error)),
    )
