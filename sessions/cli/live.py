"""status --watch: job runs and the sessions that run, drawn anew every second until all have ended or Ctrl-C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deltacompact.base.printable import printable
from sessions.base.clock import lasted_s
from sessions.base.model import Delay, JobRunSession, SessionState
from sessions.cli.printed import seconds_text, states_of
from sessions.overview.adherence import outturn_of
from sessions.page.documents import listed_job_runs, partition_label

if TYPE_CHECKING:
    from rich.console import Console

    from sessions.overview.overview import JobRunSeen, Overview, OverviewReader

_EVERY_S = 1.0
_RUNS_SHOWN, _SESSIONS_SHOWN = 15, 20
_LOOKS = {
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "accepted": "dim",
    "planned": "dim",
    "cancelled": "yellow",
}
_SIGNS = {
    "running": ">",
    "succeeded": "+",
    "failed": "x",
    "accepted": "o",
    "planned": "o",
    "nothing_to_do": "-",
    "cancelled": "/",
}
"""Each state has a sign, so that none depends on colour."""


def watch_live(reader: OverviewReader, console: Console, until_all_ended: bool = False) -> None:
    """Draw until interrupted, or until every job run has ended."""
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            overview = reader.read()
            live.update(drawn(overview), refresh=True)
            if until_all_ended and all(seen.run.state.ended for seen in overview.job_runs):
                return
            time.sleep(_EVERY_S)


def drawn(overview: Overview) -> RenderableType:
    """One picture: job runs, then the sessions that run or failed."""
    if not overview.job_runs:
        return Text("no job run yet", style="dim")
    runs = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, ratio in (
        ("", 1),
        ("table", 5),
        ("job run", 5),
        ("done", 6),
        ("sessions", 8),
        ("took", 3),
        ("desired", 3),
        ("expected", 4),
    ):
        runs.add_column(name, ratio=ratio, overflow="ellipsis", no_wrap=True)
    delays = overview.delays
    for seen in listed_job_runs(overview)[:_RUNS_SHOWN]:
        runs.add_row(*_of_job_run(seen, overview.at_s, delays.get(seen.run.id)))
    active = [
        (seen, session)
        for seen in overview.job_runs
        if not seen.run.state.ended
        for session in seen.sessions
        if session.state in (SessionState.RUNNING, SessionState.FAILED)
    ]
    sessions = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, ratio in (("", 1), ("session", 8), ("stage", 9), ("tasks", 6), ("took", 3), ("expected", 4)):
        sessions.add_column(name, ratio=ratio, overflow="ellipsis", no_wrap=True)
    for seen, session in active[:_SESSIONS_SHOWN]:
        sessions.add_row(*_of_session(seen, session, overview.at_s))
    parts: list[RenderableType] = [runs, *_more(len(overview.job_runs) - _RUNS_SHOWN)]
    if active:
        parts += ["", sessions, *_more(len(active) - _SESSIONS_SHOWN)]
    return Group(*parts)


def _more(left: int) -> list[Text]:
    """The words for rows that are not shown."""
    return [Text(f"and {left:,} more", style="dim")] if left > 0 else []


def _of_job_run(seen: JobRunSeen, now_s: float, delay: Delay | None) -> list[RenderableType]:
    run = seen.run
    ended = sum(session.state.ended for session in seen.sessions)
    share = sum(1.0 if session.state.ended else session.progress.share for session in seen.sessions)
    took_s = lasted_s(run.accepted_s, run.finished_s or now_s)  # as the desired SLA counts
    return [
        _sign(run.state.value),
        Text(printable(seen.table)),
        Text(run.id, style="dim"),
        ProgressBar(total=max(1, len(seen.sessions)), completed=max(ended, share)),
        Text(f"waits: {delay.text}" if delay else states_of(seen.sessions) or "not planned yet"),
        seconds_text(took_s),
        seconds_text(run.desired_sla_s),
        _expected(seen, now_s),
    ]


def _of_session(seen: JobRunSeen, session: JobRunSession, now_s: float) -> list[RenderableType]:
    progress = session.progress
    round_ = f", round {min(progress.round + 1, progress.rounds)} of {progress.rounds}" if progress.rounds > 1 else ""
    failed = session.state is SessionState.FAILED
    said = (
        Text(printable(session.error or ""), style="red")
        if failed
        else Text((progress.stage or "starting").replace("_", " ") + round_)
    )
    took_s = lasted_s(session.started_s, session.finished_s or now_s)
    return [
        _sign(session.state.value),
        Text(printable(f"{seen.table}  {partition_label(session.partition)}")),
        said,
        "" if failed or not progress.tasks else ProgressBar(total=progress.tasks, completed=progress.tasks_done),
        seconds_text(took_s),
        seconds_text(session.expected.seconds if session.expected else None),
    ]


def _expected(seen: JobRunSeen, now_s: float) -> Text:
    """Red where the desired SLA, which counts from the acceptance, is or will be missed."""
    said = Text(seconds_text(seen.run.expected.seconds if seen.run.expected else None))
    if outturn_of(seen, now_s).is_late:
        said.append(" late")
        said.stylize("red")
    return said


def _sign(state: str) -> Text:
    return Text(_SIGNS.get(state, "?"), style=_LOOKS.get(state, ""))
