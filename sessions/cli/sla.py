"""sla: desired and expected SLAs against actual durations."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sessions.cli.options import json_option, state_option
from sessions.cli.printed import seconds_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sessions.overview.adherence import Adherence, Outturn
    from sessions.overview.overview import Overview


@click.command()
@state_option
@click.option("--sessions", "with_sessions", is_flag=True, help="List each session, too.")
@json_option
def sla(state: str, with_sessions: bool, as_json: bool) -> None:
    """Compare desired and expected SLAs with what was taken.

    A run keeps its desired SLA if it ends at most so many seconds after its acceptance ("took"). The others count from
    its start ("at work"). The expected SLA is kept if the run takes at most 10 % longer, the interval if it ends within
    it, and the promise, which 99.3 % should keep, if it ends by then. An error of +10 % means that it was at work 10 %
    longer than expected.

    \b
    deltacompact-sessions sla --state /srv/state
    deltacompact-sessions sla --state s3://lake/job-runs --json
    """
    from deltacompact.cli.answers import say_json
    from sessions.cli.printed import no_job_run, print_whole
    from sessions.overview.adherence import adherence, outturns
    from sessions.overview.overview import OverviewReader, clock_of
    from sessions.records.state_store import StateStore

    store = StateStore(state)
    overview = OverviewReader(store, clock=clock_of(store), ended_max=None).read()
    of_runs, of_sessions = outturns(overview)
    if as_json:
        say_json(
            {
                "job_runs": {**asdict(adherence(of_runs)), "each": [outturn.document() for outturn in of_runs]},
                "sessions": {**asdict(adherence(of_sessions)), "each": [outturn.document() for outturn in of_sessions]},
            }
        )
        return
    for part in report(overview, with_sessions) or [no_job_run(store)]:
        print_whole(part)


def report(overview: Overview, with_sessions: bool = False) -> list[RenderableType]:
    """The report, for people; empty where there is no job run."""
    from sessions.overview.adherence import adherence, outturns

    of_runs, of_sessions = outturns(overview)
    if not of_runs:
        return []
    listed = of_runs
    if with_sessions:
        listed = [
            outturn
            for run in of_runs
            for outturn in (run, *(session for session in of_sessions if session.job_run_id == run.job_run_id))
        ]
    return [
        _table(listed),
        "",
        _promises_line("job runs", adherence(of_runs)),
        _promises_line("sessions", adherence(of_sessions)),
    ]


def _table(listed: list[Outturn]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("job run, session", min_width=16, overflow="fold")
    for name in ("state", "desired", "expected", "promised", "took", "at work", "error"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("state", "expected") else "right")
    table.add_column("kept", min_width=8, overflow="fold")
    for outturn in listed:
        first = outturn.first
        table.add_row(
            f"  {outturn.session_id}" if outturn.session_id else outturn.job_run_id,
            outturn.state.replace("_", " "),
            seconds_text(outturn.desired_s, unit=""),
            f"{first.seconds:,.1f} ({first.low_s:,.1f} .. {first.high_s:,.1f})" if first else "",
            seconds_text(first.promise_s if first else None, unit=""),
            seconds_text(outturn.actual_s, unit=""),
            seconds_text(outturn.executed_s, unit=""),
            "" if outturn.error is None else f"{outturn.error:+.0%}",
            _verdict(outturn),
        )
    return table


def _verdict(outturn: Outturn) -> str:
    """What was kept of what is known: "all", "missed desired and promise"."""
    said = {
        "desired": outturn.kept_desired,
        "expected": outturn.kept_expected,
        "interval": outturn.kept_interval,
        "promise": outturn.kept_promise,
    }
    known = {name: kept for name, kept in said.items() if kept is not None}
    missed = [name for name, kept in known.items() if not kept]
    if missed:
        return f"missed {' and '.join(missed)}"
    return "all" if known else ""


def _promises_line(name: str, kept: Adherence) -> str:
    """ "sessions: 14 ended, 1 failed; kept: desired 100.0%, promise 100.0%; the promise is 31% after the end; …" """
    if not kept.ended:
        return f"{name}: none ended yet"
    shares = {
        "desired": kept.desired,
        "promise": kept.promise,
        "expected within a tenth": kept.expected,
        "interval": kept.interval,
    }
    told = ", ".join(f"{what} {share:.1%}" for what, share in shares.items() if share is not None)
    facts = [f"{name}: {kept.ended} ended, {kept.failed} failed"]
    facts += [f"kept: {told}"] if told else []
    facts += [f"the interval is {kept.width:.0%} wide"] if kept.width is not None else []
    if kept.slack is not None:
        facts.append(f"the promise is {abs(kept.slack):.0%} {'before' if kept.slack < 0 else 'after'} the end")
    if kept.error_median is not None:
        facts.append(f"expected seconds are off by {kept.error_median:.1%} (median), {kept.error_p90:.1%} (p90)")
    return "; ".join(facts)
