"""Expected against actual: what was said when a session or a job run started, and what it took.

    job run  run-1   desired 600 s   expected 412 s, 371 … 453   took 391 s    kept, error -5.1 %

A run keeps what was expected where it takes no longer than that with the paper's buffer of 10 %. It keeps its interval
where it lies within. Runs that failed keep neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sessions.base.model import Estimate, JobRun, JobRunState, Session, SessionState
from sessions.overview.overview import Overview
from sessions.planning.rates import BUFFER


@dataclass(frozen=True, slots=True)
class Outturn:
    """One job run or session: what was desired and first expected, what is expected now, what it took."""

    job_run_id: str
    session_id: str | None
    table: str
    state: str
    desired_s: int | None
    first: Estimate | None
    now: Estimate | None
    actual_s: float | None
    failed: bool

    @property
    def error(self) -> float | None:
        """What it took against what was expected: 0.1 is 10 % longer. None where either is not known."""
        if self.actual_s is None or self.first is None or self.first.seconds <= 0 or self.failed:
            return None
        return self.actual_s / self.first.seconds - 1.0

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
        if self.actual_s is None or self.first is None or self.failed:
            return None
        return self.first.low_s <= self.actual_s <= self.first.high_s

    @property
    def kept_desired(self) -> bool | None:
        """None where nothing was desired, or it still runs and may make it."""
        if self.desired_s is None:
            return None
        if self.failed:
            return False
        return None if self.actual_s is None else self.actual_s <= self.desired_s

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
            "expected_s": now.seconds if now else None,
            "actual_s": self.actual_s,
            "error": self.error,
            "kept_desired": self.kept_desired,
            "kept_expected": self.kept_expected,
            "kept_interval": self.kept_interval,
        }


@dataclass(frozen=True, slots=True)
class Adherence:
    """Shares of those that ended (None: none did), median width of intervals, errors of those that succeeded."""

    ended: int
    failed: int
    desired: float | None
    expected: float | None
    interval: float | None
    width: float | None
    error_median: float | None
    error_p90: float | None


def outturns(overview: Overview) -> tuple[list[Outturn], list[Outturn]]:
    """Job runs, and sessions."""
    of_runs = [_of_job_run(seen.run, seen.table) for seen in overview.job_runs]
    of_sessions = [_of_session(made, seen.run, seen.table) for seen in overview.job_runs for made in seen.sessions]
    return of_runs, of_sessions


def adherence(of: Iterable[Outturn]) -> Adherence:
    """The shares that were kept. A run that failed did not keep what was expected of it."""
    ended = [outturn for outturn in of if outturn.actual_s is not None or outturn.failed]
    errors = sorted(abs(outturn.error) for outturn in ended if outturn.error is not None)
    expecting = [outturn for outturn in ended if outturn.first is not None]
    widths = [width for outturn in expecting if (width := outturn.width) is not None]
    return Adherence(
        ended=len(ended),
        failed=sum(outturn.failed for outturn in ended),
        desired=_share([outturn.kept_desired for outturn in ended if outturn.kept_desired is not None]),
        expected=_share([bool(outturn.kept_expected) for outturn in expecting]),
        interval=_share([bool(outturn.kept_interval) for outturn in expecting]),
        width=statistics.median(widths) if widths else None,
        error_median=statistics.median(errors) if errors else None,
        error_p90=errors[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else None,
    )


def _share(kept: list[bool]) -> float | None:
    return sum(kept) / len(kept) if kept else None


def _of_job_run(run: JobRun, table: str) -> Outturn:
    failed = run.state is JobRunState.FAILED
    began_s = run.accepted_s if run.started_s is None else run.started_s
    actual_s = run.finished_s - began_s if run.finished_s is not None else None
    return Outturn(
        run.id, None, table, run.state, run.desired_sla_s, run.expected_first, run.expected, actual_s, failed
    )


def _of_session(session: Session, run: JobRun, table: str) -> Outturn:
    """The outturn of a session. One that had nothing to do was expected to do something, so it does not count."""
    failed = session.state is SessionState.FAILED
    idle = session.state is SessionState.NOTHING_TO_DO
    first = None if idle else session.expected_first
    actual_s = None
    if session.finished_s is not None and session.started_s is not None:
        actual_s = session.finished_s - session.started_s
    return Outturn(
        run.id, session.id, table, session.state, run.desired_sla_s, first, session.expected, actual_s, failed
    )
