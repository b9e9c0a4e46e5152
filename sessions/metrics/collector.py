"""Metrics of job runs and dispatchers, from the records.

    deltacompact_job_runs{state="running"} 3
    deltacompact_session_rows_total{kind="live"} 9.1e+08
    deltacompact_sla_slack_seconds{job_run="run-1"} 188
    deltacompact_last_success_timestamp_seconds 1.7953e+09

An overview has only the job runs that ended last. When a job run leaves the overview, its part of each counter is kept,
and so are the last success and the last failure: counters never fall while this process lives. A restarted one counts
what its overview has, so alerts on ends go by their times. A job run that runs again loses its end, and then those of
the sessions that had failed: what its records no longer have is kept as well.

Labels are states, stages and kinds, of which there are few. Of job runs, only the 50 open ones with the least slack
have a label of their own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from sessions.base.model import Ending, JobRun, JobRunSession, JobRunState, SessionState
from sessions.metrics.families import counter, counters, gauge
from sessions.overview.adherence import adherence, outturns
from sessions.overview.overview import JobRunSeen, Overview

SLACKS_MAX = 50
_STAGES_MAX = 30
_LAST = (
    ("success", "When a job run ended well last", JobRunState.SUCCEEDED),
    ("failure", "When a job run failed last", JobRunState.FAILED),
)
_ROWS = ("rows_in", "live", "superseded", "deleted")


class RecordsCollector(Collector):
    """Makes metrics of an overview, which is read at each scrape. Safe to use from several threads."""

    def __init__(self, read: Callable[[], Overview]) -> None:
        self._read = read
        self._seen: dict[str, JobRunSeen] = {}
        self._gone: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._ends_s: dict[JobRunState, float] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        overview = self._read()
        with self._lock:
            now = {seen.run.id: seen for seen in overview.job_runs}
            gone = Overview(overview.at_s, tuple(seen for name, seen in self._seen.items() if name not in now))
            if gone.job_runs:
                self._gone.update(_counts(gone))
            for name, seen in now.items():
                before = self._seen.get(name, seen)
                if seen.run.life and seen != before:
                    at_s = overview.at_s
                    self._gone += _counts(Overview(at_s, (before,))) - _counts(Overview(at_s, (seen,)))
            self._seen = now
            added = dict(self._gone)
            for state, at_s in _ends(overview):
                self._ends_s[state] = max(at_s, self._ends_s.get(state, at_s))
            ends_s = dict(self._ends_s)
        for name, text, state in _LAST:
            last = {(): ends_s[state]} if state in ends_s else {}
            yield gauge(f"last_{name}_timestamp_seconds", text, [], last)
        for metric in metrics_of(overview):
            counted = {_name_and_labels(sample): sample for sample in _counted(metric)}
            if counted:
                metric.samples = [
                    sample._replace(value=sample.value + added.get(name, 0.0)) for name, sample in counted.items()
                ]
            yield metric

    def describe(self) -> Iterable[Metric]:
        """Describe nothing, so that registering the collector reads nothing."""
        return ()


def metrics_of(overview: Overview) -> Iterator[Metric]:
    yield from _of_the_queue(overview)
    yield from _of_dispatchers(overview)
    unreadable = len(overview.unreadable) + (overview.depth.unreadable if overview.depth else 0)
    yield gauge("unreadable_objects", "Damaged or foreign objects that are left out", [], {(): unreadable})
    runs, sessions = [seen.run for seen in overview.job_runs], overview.sessions
    yield gauge("job_runs", "Job runs by state", ["state"], _states(JobRunState, [run.state for run in runs]))
    yield gauge(
        "sessions", "Sessions by state", ["state"], _states(SessionState, [session.state for session in sessions])
    )
    yield from _of_work(sessions)
    yield from _of_slas(overview)


def _ends(overview: Overview) -> Iterator[tuple[JobRunState, float]]:
    """The ends of all lives of job runs, in an overview: how, and when."""
    for run in (seen.run for seen in overview.job_runs):
        ends: list[Ending | JobRun] = [*run.earlier, run]
        for end in ends:
            if end.finished_s is not None:
                yield end.state, end.finished_s


def _of_the_queue(overview: Overview) -> Iterator[Metric]:
    depth = overview.depth
    if depth is None:
        return
    yield gauge(
        "queue_messages", "Messages of the queue", ["state"], {("ready",): depth.ready, ("leased",): depth.leased}
    )
    yield gauge("dead_letters", "Messages that can never be served", [], {(): depth.dead})
    if depth.oldest_s is not None or depth.is_empty:
        yield gauge(
            "queue_oldest_message_age_seconds", "Since the oldest message was sent", [], {(): depth.oldest_s or 0.0}
        )


def _of_dispatchers(overview: Overview) -> Iterator[Metric]:
    runs = [seen.run for seen in overview.job_runs]
    there, lost = overview.dispatchers_there, len(overview.dispatchers) - len(overview.dispatchers_there)
    yield gauge("dispatchers", "Dispatchers that said something within the time of a lease", [], {(): len(there)})
    yield gauge("dispatchers_lost", "Dispatchers of the last day that fell silent without ending", [], {(): lost})
    silent_s = max((report.silent_s(overview.at_s) for report in there), default=0.0)
    yield gauge("dispatcher_silence_seconds", "Since the most silent dispatcher was heard of", [], {(): silent_s})
    yield counter(
        "takeovers", "Job runs taken over from a dispatcher that fell silent", sum(run.takeovers for run in runs)
    )
    yield counter("late_heartbeats", "Renewals of leases that came late", sum(run.late_heartbeats for run in runs))


def _of_work(sessions: tuple[JobRunSession, ...]) -> Iterator[Metric]:
    outcomes = [session.outcome for session in sessions if session.outcome is not None]
    rows = {(kind,): sum(getattr(outcome, kind) for outcome in outcomes) for kind in _ROWS}
    yield counters("session_rows", "Rows of sessions that ended", ["kind"], rows)
    moved = {
        ("in",): sum(outcome.bytes_in for outcome in outcomes),
        ("out",): sum(outcome.bytes_out for outcome in outcomes),
    }
    yield counters("session_bytes", "Bytes at rest that sessions read and wrote", ["direction"], moved)
    seconds: Counter[str] = Counter()
    for outcome in outcomes:
        seconds.update(outcome.stage_seconds)
    stages = {(stage,): spent for stage, spent in sorted(seconds.items())[:_STAGES_MAX]}
    yield counters("stage_seconds", "Seconds of sessions by stage", ["stage"], stages)
    yield counter("session_seconds", "Seconds of sessions that ended", sum(outcome.seconds for outcome in outcomes))
    yield counter(
        "rounds_resumed",
        "Rounds that an earlier attempt had completed",
        sum(outcome.rounds_resumed for outcome in outcomes),
    )
    yield counter("session_attempts", "Tries at sessions", sum(session.attempts for session in sessions))


def _of_slas(overview: Overview) -> Iterator[Metric]:
    of_runs, of_sessions = outturns(overview)
    slacks = sorted((each.slack_s, each.job_run_id) for each in of_runs if each.slack_s is not None)
    yield gauge(
        "sla_slack_seconds",
        "Desired seconds from the acceptance of open job runs, less those that they are expected to take; below 0 the "
        "SLA will be missed, or is",
        ["job_run"],
        {(name,): slack for slack, name in slacks[:SLACKS_MAX]},
    )
    for what, of in (("job_run", of_runs), ("session", of_sessions)):
        kept = adherence(of)
        shares = {
            "desired": kept.desired,
            "expected": kept.expected,
            "interval": kept.interval,
            "promise": kept.promise,
        }
        known = {(name,): share for name, share in shares.items() if share is not None}
        yield gauge(f"{what}_sla_kept_ratio", f"Share of ended {what}s that kept it", ["sla"], known)
        yield counters(
            f"{what}_ends", f"Ended {what}s", ["failed"], {("false",): kept.ended - kept.failed, ("true",): kept.failed}
        )


def _states(kind: type[JobRunState] | type[SessionState], states: Iterable[str]) -> dict[tuple[str, ...], float]:
    """The number of records in each state, with 0 for states that have none."""
    counted = Counter(states)
    return {(state.value,): counted[state] for state in kind}


def _counts(overview: Overview) -> Counter[tuple[str, tuple[str, ...]]]:
    """The counters of an overview, by name and labels."""
    return Counter(
        {_name_and_labels(sample): sample.value for metric in metrics_of(overview) for sample in _counted(metric)}
    )


def _counted(metric: Metric) -> list[Sample]:
    return metric.samples if isinstance(metric, CounterMetricFamily) else []


def _name_and_labels(sample: Sample) -> tuple[str, tuple[str, ...]]:
    return sample.name, tuple(sample.labels.values())
