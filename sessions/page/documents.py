"""What the page is told, as JSON: few fields for each session, all of a session where it is asked for.

    summary    every job run with its counts of sessions by state, the dispatchers, the queue, what to do next
    row        one session on the time line
    details    one session: its plan, why it was planned so, why it was tried again, its outcome, logs
    triggers   what policies decided, and why

Strings go out as they are; the page sets them as text, never as markup.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sessions.base.model import BOUNDS, Delay, Estimate, JobRun, JobRunSession, SessionState
from sessions.overview.adherence import adherence, outturns
from sessions.overview.next_steps import Places, next_steps
from sessions.overview.overview import JobRunSeen, Overview
from sessions.records.decisions import KeptDecision
from sessions.records.state_store import as_document

JOB_RUNS_MAX = 200
"""Open job runs are all shown, ended ones up to so many in all, the latest first."""
DECISIONS_MAX = 200
LOGS_MAX = 5
_SHOWN_CHARACTERS_MAX = 2000


def summary(overview: Overview, places: Places) -> dict[str, Any]:
    of_runs, of_sessions = outturns(overview)
    kept_runs, kept_sessions = adherence(of_runs), adherence(of_sessions)
    depth, delays = overview.depth, overview.delays
    return {
        "at_s": overview.at_s,
        "job_runs": [job_run(seen, delays.get(seen.run.id)) for seen in listed_job_runs(overview)],
        "job_runs_in_all": len(overview.job_runs),
        "unreadable": len(overview.unreadable),
        "next": [{**asdict(step), "text": _short(step.text)} for step in next_steps(overview, places)],
        "dispatchers": [
            {
                "owner": report.dispatcher.owner,
                "silent_s": max(0.0, overview.at_s - report.modified_s),
                "holds": len(report.dispatcher.job_run_ids),
                "draining": report.dispatcher.draining,
            }
            for report in overview.dispatchers
        ],
        "queue": None
        if depth is None
        else {"ready": depth.ready, "leased": depth.leased, "dead": depth.dead, "oldest_s": depth.oldest_s},
        "kept": {
            "job_runs": {
                "ended": kept_runs.ended,
                "desired": kept_runs.desired,
                "promise": kept_runs.promise,
            },
            "sessions": {
                "ended": kept_sessions.ended,
                "promise": kept_sessions.promise,
                "error_median": kept_sessions.error_median,
            },
        },
    }


def triggers(decisions: Sequence[KeptDecision]) -> dict[str, Any]:
    """Decisions of triggers: how many of each kind and reason, and the first ones, submissions before others."""
    counts = Counter((decision.action, decision.reason) for decision in decisions)
    ordered = sorted(decisions, key=lambda decision: (decision.action != "submit", -decision.at_s))
    return {
        "in_all": len(decisions),
        "counts": [
            {"action": action, "reason": reason, "count": many} for (action, reason), many in counts.most_common()
        ],
        "decisions": [
            {
                "table": _short(decision.table),
                "partition": _short(partition_label(decision.partition)),
                "policy": _short(decision.policy),
                "action": decision.action,
                "reason": decision.reason,
                "text": _short(decision.text),
                "job_run_id": decision.job_run_id,
                "at_s": decision.at_s,
            }
            for decision in ordered[:DECISIONS_MAX]
        ],
    }


def listed_job_runs(overview: Overview) -> list[JobRunSeen]:
    """The job runs that the page lists: open ones first, the latest first among both."""
    open_ones = [seen for seen in overview.job_runs if not seen.run.state.ended]
    ended = [seen for seen in overview.job_runs if seen.run.state.ended]
    return [*open_ones, *ended[: max(0, JOB_RUNS_MAX - len(open_ones))]]


def job_run(seen: JobRunSeen, delay: Delay | None = None) -> dict[str, Any]:
    run = seen.run
    states = Counter(session.state.value for session in seen.sessions)
    ended = sum(session.state.ended for session in seen.sessions)
    share = sum(1.0 if session.state.ended else session.progress.share for session in seen.sessions)
    return {
        "id": run.id,
        "table": _short(seen.table),
        "catalog": _short(str(run.document.get("catalog", ""))),
        "state": run.state.value,
        "accepted_s": run.accepted_s,
        "started_s": run.started_s,
        "finished_s": run.finished_s,
        "desired_s": run.desired_sla_s,
        "nearest_s": run.nearest_sla_s,
        "cpus_needed": run.cpus_needed,
        "first": _estimate(run.expected_first),
        "expected": _estimate(run.expected),
        "owner": run.lease.owner if run.lease else None,
        "epoch": run.lease.epoch if run.lease else 0,
        "takeovers": run.takeovers,
        "error": _short(run.error),
        "waits": _short(delay.text) if delay else None,
        "states": {state.value: states[state.value] for state in SessionState},
        "sessions": len(seen.sessions),
        "ended": ended,
        "share": share / len(seen.sessions) if seen.sessions else 0.0,
    }


def row(session: JobRunSession) -> dict[str, Any]:
    progress = session.progress
    return {
        "id": session.id,
        "label": _short(partition_label(session.partition)),
        "state": session.state.value,
        "started_s": session.started_s,
        "finished_s": session.finished_s,
        "expected": _estimate(session.expected or (session.plan.expected if session.plan else None)),
        "attempts": session.attempts,
        "waits": _short(session.delay.text) if session.delay else None,
        "stage": progress.stage,
        "round": progress.round,
        "rounds": progress.rounds,
        "tasks_done": progress.tasks_done,
        "tasks": progress.tasks,
        "share": progress.share,
    }


def details(session: JobRunSession, run: JobRun, logs: Sequence[str] = ()) -> dict[str, Any]:
    document = as_document(session)
    for choice in (document.get("plan") or {}).get("choices", ()):
        choice["text"] = _short(choice["text"])
    document["error"], document["nothing_to_do"] = _short(session.error), _short(session.nothing_to_do)
    return {
        **row(session),
        **document,
        "expected": row(session)["expected"],
        "table": run.document.get("source_table_id"),
        "logs": logs[-LOGS_MAX:],
    }


def partition_label(partition: dict[str, str | None]) -> str:
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in partition.items()) or "(all)"


def _estimate(estimate: Estimate | None) -> list[float] | None:
    """JSON has no infinity."""
    known = [] if estimate is None else [getattr(estimate, bound) for bound in BOUNDS]
    return known if known and all(map(math.isfinite, known)) else None


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return text[:_SHOWN_CHARACTERS_MAX] + "…"
