"""Compares the seconds that a session or a job run took with those that were desired, expected and promised.

    run-1   accepted 10:00, began 10:00:02, ended 10:06:33     desired 600 s    391 s from its acceptance: kept
                                                               expected 412 s   389 s from its start: kept, error -5.6 %
                                                               promised 520 s   kept, with a slack of 34 %
    run-2   accepted 10:00, began 15:00, ended 15:06           desired 600 s    18,360 s from its acceptance: missed
                                                               expected 412 s   360 s from its start: kept
    run-3   accepted 10:00, has not begun at 10:20             desired 600 s    slack -600 s

*desired* counts from the acceptance, waits included. The others count from the start: *expected* is kept if the run
takes at most 10 % longer (the paper's buffer), *promised* if it takes no longer, the *interval* if its seconds lie
within. Runs that failed keep nothing, and cancelled runs do not count. All times are of the store's clock. A record of
an older version may have its end before its beginning: then the seconds are unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sessions.base.clock import lasted_s
from sessions.base.model import Estimate, JobRun, JobRunSession, JobRunState, SessionState
from sessions.overview.overview import JobRunSeen, Overview
from sessions.planning.expectation import BUFFER

_ENDS = (SessionState.SUCCEEDED, SessionState.NOTHING_TO_DO, SessionState.FAILED)


@dataclass(frozen=True, slots=True)
class Outturn:
    """One job run or session: its SLAs, and the seconds that it took.

    desired_s     the desired SLA
    first, now    the first estimate, and the current one
    actual_s      seconds from the acceptance of its job run
    executed_s    seconds from its own start
    slack_s       for an open job run: the desired SLA minus the expected seconds. Below 0: it will be missed
    """

    job_run_id: str
    session_id: str | None
    table: str
    state: str
    desired_s: int | None
    first: Estimate | None
    now: Estimate | None
    actual_s: float | None
    failed: bool
    executed_s: float | None = None
    slack_s: float | None = None

    @property
    def error(self) -> float | None:
        """The error of the first estimate: 0.1 if it took 10 % longer. None: one of the two is unknown."""
        if self.executed_s is None or self.first is None or self.first.seconds <= 0 or self.failed:
            return None
        return self.executed_s / self.first.seconds - 1.0

    @property
    def width(self) -> float | None:
        """The width of the 90 % interval, as a share of the expected seconds."""
        first = self.first
        return None if first is None or first.seconds <= 0 else (first.high_s - first.low_s) / first.seconds

    @property
    def kept_expected(self) -> bool | None:
        return None if (error := self.error) is None else error <= BUFFER - 1.0

    @property
    def kept_interval(self) -> bool | None:
        if self.executed_s is None or self.first is None or self.failed:
            return None
        return self.first.low_s <= self.executed_s <= self.first.high_s

    @property
    def kept_promise(self) -> bool | None:
        if self.executed_s is None or self.first is None or self.failed:
            return None
        return self.executed_s <= self.first.promise_s

    @property
    def promise_slack(self) -> float | None:
        """The promise minus the seconds that it took, as a share of these. Below 0: it was missed."""
        if not self.executed_s or self.first is None or self.failed:
            return None
        return self.first.promise_s / self.executed_s - 1.0

    @property
    def kept_desired(self) -> bool | None:
        """None: nothing was desired, or it still runs and may keep it."""
        if self.desired_s is None:
            return None
        if self.failed:
            return False
        return None if self.actual_s is None else self.actual_s <= self.desired_s

    @property
    def is_late(self) -> bool:
        """Whether the desired SLA was missed by its seconds, or will be."""
        if self.slack_s is not None:
            return self.slack_s < 0
        return self.desired_s is not None and self.actual_s is not None and self.actual_s > self.desired_s

    def document(self) -> dict[str, Any]:
        first, now = self.first, self.now
        return {
            "job_run_id": self.job_run_id,
            "session_id": self.session_id,
            "table": self.table,
            "state": self.state,
            "desired_s": self.desired_s,
            "expected_first_s": first.seconds if first else None,
            "expected_low_s": first.low_s if first else None,
            "expected_high_s": first.high_s if first else None,
            "promised_s": first.promise_s if first else None,
            "expected_s": now.seconds if now else None,
            "actual_s": self.actual_s,
            "executed_s": self.executed_s,
            "slack_s": self.slack_s,
            "error": self.error,
            "kept_desired": self.kept_desired,
            "kept_expected": self.kept_expected,
            "kept_interval": self.kept_interval,
            "kept_promise": self.kept_promise,
        }


@dataclass(frozen=True, slots=True)
class Adherence:
    """How well SLAs were kept: shares of the ended runs (None: none ended), the median width of intervals and slack of
    promises, and the errors of the runs that succeeded."""

    ended: int
    failed: int
    desired: float | None
    expected: float | None
    interval: float | None
    promise: float | None
    width: float | None
    slack: float | None
    error_median: float | None
    error_p90: float | None


def outturns(overview: Overview) -> tuple[list[Outturn], list[Outturn]]:
    """(outturns of job runs, outturns of sessions)."""
    of_runs = [outturn_of(seen, overview.at_s) for seen in overview.job_runs]
    of_sessions = [
        _of_session(session, seen.run, seen.table) for seen in overview.job_runs for session in seen.sessions
    ]
    return of_runs, of_sessions


def adherence(of: Iterable[Outturn]) -> Adherence:
    """The shares that were kept. A failed run counts as not kept."""
    ended = [outturn for outturn in of if outturn.state in _ENDS]
    errors = sorted(abs(outturn.error) for outturn in ended if outturn.error is not None)
    expecting = [outturn for outturn in ended if outturn.first is not None]
    slacks = [slack for outturn in expecting if (slack := outturn.promise_slack) is not None]
    widths = [width for outturn in expecting if (width := outturn.width) is not None]
    return Adherence(
        ended=len(ended),
        failed=sum(outturn.failed for outturn in ended),
        desired=_share([outturn.kept_desired for outturn in ended if outturn.kept_desired is not None]),
        expected=_share([bool(outturn.kept_expected) for outturn in expecting]),
        interval=_share([bool(outturn.kept_interval) for outturn in expecting]),
        promise=_share([bool(outturn.kept_promise) for outturn in expecting]),
        slack=statistics.median(slacks) if slacks else None,
        width=statistics.median(widths) if widths else None,
        error_median=statistics.median(errors) if errors else None,
        error_p90=errors[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else None,
    )


def _share(kept: list[bool]) -> float | None:
    return sum(kept) / len(kept) if kept else None


def outturn_of(seen: JobRunSeen, now_s: float) -> Outturn:
    run = seen.run
    failed, cancelled = run.state is JobRunState.FAILED, run.state is JobRunState.CANCELLED
    first = run.expected_first
    return Outturn(
        run.id,
        None,
        seen.table,
        run.state,
        run.desired_sla_s,
        first,
        run.expected,
        None if cancelled else lasted_s(run.accepted_s, run.finished_s),
        failed,
        None if cancelled else lasted_s(run.started_s or run.accepted_s, run.finished_s),
        _slack_s(run, now_s),
    )


def _slack_s(run: JobRun, now_s: float) -> float | None:
    """The slack of an open job run. Before it is planned, the time that is left; afterwards, the time that is left
    minus the expected seconds."""
    if run.desired_sla_s is None or run.state.ended:
        return None
    since_s = lasted_s(run.accepted_s, now_s) or 0.0
    if run.expected is None:
        return run.desired_sla_s - since_s
    waited_s = lasted_s(run.accepted_s, run.started_s or now_s) or 0.0
    return run.desired_sla_s - max(since_s, waited_s + run.expected.seconds)


def _of_session(session: JobRunSession, run: JobRun, table: str) -> Outturn:
    """The outturn of a session. If it had nothing to do, its estimate does not count."""
    failed, cancelled = session.state is SessionState.FAILED, session.state is SessionState.CANCELLED
    idle = session.state is SessionState.NOTHING_TO_DO
    return Outturn(
        run.id,
        session.id,
        table,
        session.state,
        run.desired_sla_s,
        None if idle else session.expected_first,
        session.expected,
        None if cancelled else lasted_s(run.accepted_s, session.finished_s),
        failed,
        None if cancelled else lasted_s(session.started_s, session.finished_s),
    )
