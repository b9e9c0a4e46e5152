"""Derives events from a record: pure. If a crash kept an event from being recorded, it is derived again later.

    Session  RUNNING    attempt 2, 2 of 5 rounds    started~2, round_completed~1, round_completed~2
    Session  SUCCEEDED  after 5 rounds              … round_completed~5, succeeded
    JobRun   ACCEPTED                               accepted

An estimate changes with every task. It becomes an event when it leaves its step of 5 %, and when it or its promise
crosses the desired SLA.
"""

from __future__ import annotations

import math
import re
from typing import Any

from sessions.base.model import Estimate, JobRun, JobRunSession, JobRunState, Outcome, SessionState, Trouble
from sessions.events.event import EventType, JobRunEvent

_STEP = math.log(1.05)
_ENDS = {
    JobRunState.SUCCEEDED: EventType.JOB_RUN_SUCCEEDED,
    JobRunState.FAILED: EventType.JOB_RUN_FAILED,
    JobRunState.CANCELLED: EventType.JOB_RUN_CANCELLED,
}
_KIND_OF_ERROR = re.compile(r"[A-Z]\w*(?:Error|Exception|Interrupted)\b")


def events_of_job_run(run: JobRun) -> list[JobRunEvent]:
    """All events of a job run's record, without estimates."""
    common = _of_job_run(run)
    partitions = len(run.document.get("partitions") or ())
    said: list[tuple[EventType, float, dict[str, Any]]] = [
        (EventType.JOB_RUN_ACCEPTED, run.accepted_s, {"partitions": partitions})
    ]
    if run.nearest_sla_s is not None:
        said.append((EventType.SLA_NOT_PROMISED, run.started_s or run.accepted_s, _not_promised(run)))
    if run.state.ended:
        ended = _ENDS[run.state]
        finished_s = run.finished_s or run.accepted_s
        outcome: dict[str, Any] = {
            "seconds": round(max(0.0, finished_s - (run.started_s or run.accepted_s)), 3),
            "expected_s": run.expected_first.seconds if run.expected_first else None,
            "sessions": len(run.session_ids),
            "takeovers": run.takeovers,
        }
        if ended is EventType.JOB_RUN_FAILED:
            outcome["error"] = error_kind(run.error)
        if run.unshown:
            outcome["unshown"] = True
        said.append((ended, finished_s, outcome))
    events = [JobRunEvent(kind, run.id, "", run.life, time_s, {**common, **data}) for kind, time_s, data in said]
    if run.trouble is not None:
        events.append(_delayed(EventType.JOB_RUN_DELAYED, run.id, "", run.trouble, common))
    return events


def _not_promised(run: JobRun) -> dict[str, Any]:
    """The data of the event that the desired SLA cannot be promised: the promise, and what would keep the SLA."""
    promise_s = round(run.expected_first.promise_s, 3) if run.expected_first else None
    return {"promise_s": promise_s, "nearest_sla_s": run.nearest_sla_s, "cpus_needed": run.cpus_needed}


def events_of_session(session: JobRunSession, run: JobRun | None) -> list[JobRunEvent]:
    """All events of a session's record, without estimates."""
    common = _of_session(session, run)
    said: list[tuple[EventType, int, float, dict[str, Any]]] = []
    plan, progress, outcome = session.plan, session.progress, session.outcome
    now_s = session.finished_s or progress.updated_s or session.started_s or 0.0
    if session.started_s is not None and session.attempts:
        planned: dict[str, Any] = {"attempt": session.attempts, "epoch": session.epoch}
        if plan is not None:
            planned |= {
                "rounds": plan.rounds,
                "delta_rows": plan.delta_rows,
                "bytes": plan.bytes,
                "rehash": plan.rehash,
                "reasons": sorted({choice.reason for choice in plan.choices}),
                **_bounds(plan.expected),
            }
        said.append((EventType.SESSION_STARTED, session.attempts, session.started_s, planned))
    if plan is not None and plan.rehash and progress.stage:
        buckets = {"hash_bucket_count": plan.hash_bucket_count}
        said.append((EventType.REHASH_STARTED, 0, session.started_s or now_s, buckets))
        if progress.stage != "rehash":
            said.append((EventType.REHASH_COMPLETED, 0, now_s, buckets))
    rounds = outcome.rounds if outcome else progress.rounds
    completed = outcome.rounds if outcome else progress.round
    for number in range(1, completed + 1):
        said.append((EventType.ROUND_COMPLETED, number, now_s, {"round": number, "rounds": rounds}))
    if session.state is SessionState.FAILED:
        error = session.error_named or error_kind(session.error)
        said.append((EventType.SESSION_FAILED, session.life, now_s, {"error": error, "attempts": session.attempts}))
    elif session.state is SessionState.CANCELLED:
        said.append((EventType.SESSION_CANCELLED, session.life, now_s, {"attempts": session.attempts}))
    elif session.state.ended:
        did = _outcome(session)
        said.append((EventType.SESSION_SUCCEEDED, session.life, now_s, did))
    events = [
        JobRunEvent(kind, session.job_run_id, session.id, ordinal, time_s, {**common, **data})
        for kind, ordinal, time_s, data in said
    ]
    if session.trouble is not None:
        events.append(_delayed(EventType.SESSION_DELAYED, session.job_run_id, session.id, session.trouble, common))
    return events


def _delayed(kind: EventType, job_run_id: str, subject: str, trouble: Trouble, common: dict[str, Any]) -> JobRunEvent:
    """The event of a trouble. A trouble that lasts is one event: `since_s` is part of its name."""
    data = {**common, "cause": trouble.cause, "error": error_kind(trouble.text)}
    return JobRunEvent(kind, job_run_id, subject, round(trouble.since_s * 1000), trouble.since_s, data)


def estimate_told(record: JobRun | JobRunSession, run: JobRun | None) -> JobRunEvent | None:
    """The event of a record's estimate. None: it has no estimate."""
    expected = record.expected
    if expected is None:
        return None
    if isinstance(record, JobRunSession):
        job_run_id, subject, common = record.job_run_id, record.id, _of_session(record, run)
        share = record.progress.share
    else:
        job_run_id, subject, common, share = record.id, "", _of_job_run(record), None
        common |= {"nearest_sla_s": record.nearest_sla_s} if record.nearest_sla_s else {}
    data = {
        **common,
        **_bounds(expected),
        "share": share,
    }
    return JobRunEvent(EventType.SLA_UPDATED, job_run_id, subject, round(expected.at_s * 1000), expected.at_s, data)


def _bounds(expected: Estimate) -> dict[str, float]:
    return {
        "expected_s": round(expected.seconds, 3),
        "low_s": round(expected.low_s, 3),
        "high_s": round(expected.high_s, 3),
        "promise_s": round(expected.promise_s, 3),
    }


def is_news(before: Estimate | None, after: Estimate | None, desired_sla_s: int | None) -> bool:
    """Whether an estimate becomes an event: it is the first, in another step of 5 %, or across the desired SLA."""
    if after is None or before is None:
        return after is not None
    if desired_sla_s and _within(before, desired_sla_s) != _within(after, desired_sla_s):
        return True
    return _step(before.seconds) != _step(after.seconds)


def _within(expected: Estimate, seconds: float) -> tuple[bool, bool]:
    return expected.seconds <= seconds, expected.promise_s <= seconds


def error_kind(error: str | None) -> str:
    """The class of an error. Its text may quote a value of a row, so the text stays in the record."""
    found = _KIND_OF_ERROR.match(error or "")
    return found[0] if found else "Error"


def _step(seconds: float) -> int:
    return math.floor(math.log(max(seconds, 0.001)) / _STEP)


def _of_job_run(run: JobRun) -> dict[str, Any]:
    return {"table": run.document.get("source_table_id"), "desired_sla_s": run.desired_sla_s}


def _of_session(session: JobRunSession, run: JobRun | None) -> dict[str, Any]:
    return {**(_of_job_run(run) if run else {}), "session_id": session.id, "partition": session.partition}


def _outcome(session: JobRunSession) -> dict[str, Any]:
    outcome = session.outcome
    return {
        "nothing_to_do": session.state is SessionState.NOTHING_TO_DO,
        "seconds": round(outcome.seconds, 3) if outcome else 0.0,
        "expected_s": session.expected_first.seconds if session.expected_first else None,
        **(
            {
                name: getattr(outcome, name)
                for name in ("rows_in", "live", "superseded", "deleted", "bytes_in", "bytes_out", "rounds")
            }
            if outcome
            else {}
        ),
        **(_of_iceberg(outcome) if outcome and session.plan and session.plan.mode else {}),
    }


def _of_iceberg(outcome: Outcome) -> dict[str, Any]:
    return {
        "snapshots": list(outcome.snapshots),
        "files_in": outcome.files_in,
        "files_out": outcome.files_out,
        "delete_files_added": outcome.delete_files_added,
        "delete_files_removed": outcome.delete_files_removed,
    }
