"""status."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from sessions.base.settings import READ_AT_ONCE
from sessions.cli.options import json_option, state_option

if TYPE_CHECKING:
    from sessions.base.model import Delay, JobRun, JobRunSession
    from sessions.records.state_store import StateStore

_LOGS_NAMED = 5


@click.command()
@state_option
@click.option("--job-run", metavar="NAME", help="Only this job run, with each of its sessions.")
@click.option("--watch", is_flag=True, help="Draw anew every second, until Ctrl-C.")
@json_option
def status(state: str, job_run: str | None, watch: bool, as_json: bool) -> None:
    """Show job runs and their sessions.

    Of each one it shows the state, the expected and the desired SLA, and the error. With --job-run, it names the logs
    of what ran last, and the exit status is 1 if that one has failed or was cancelled.

    \b
    deltacompact-sessions status --state /srv/state --watch
    deltacompact-sessions status --state /srv/state --job-run nightly-2024-01-01 --json
    """
    from deltacompact.cli.answers import say_json
    from sessions.records.state_store import StateStore

    store = StateStore(state)
    if watch:
        if as_json or job_run is not None:
            raise click.UsageError("--watch draws all job runs: leave out --json and --job-run, or --watch.")
        _watch(store)
        return
    runs = sorted(store.job_runs(), key=lambda run: run.accepted_s) if job_run is None else [_named(store, job_run)]
    if as_json:
        say_json(_document(store, runs, in_full=job_run is not None))
    else:
        _print(store, runs, in_full=job_run is not None)
        _print_unreadable(store)
    if job_run is not None:
        from sessions.cli.waiting import check_outcome

        check_outcome(runs[0])  # for schedulers: one that has failed or was cancelled is exit status 1


def _named(store: StateStore, job_run_id: str) -> JobRun:
    from deltacompact.base.errors import NotFoundError

    try:
        return store.job_run(job_run_id).value
    except NotFoundError:
        raise NotFoundError(f"no job run {job_run_id!r} in {store.uri}") from None


def _watch(store: StateStore) -> None:
    from deltacompact.cli.console import out
    from sessions.cli.live import watch_live
    from sessions.overview.overview import OverviewReader, clock_of

    if not out.is_terminal:
        raise click.UsageError("--watch draws on a terminal: take status in a loop, or the page's /api/overview.")
    with contextlib.suppress(KeyboardInterrupt):
        watch_live(OverviewReader(store, clock=clock_of(store)), out)


def _document(store: StateStore, runs: list[JobRun], in_full: bool) -> dict[str, Any]:
    from sessions.records.state_store import as_document

    told = []
    delays = _delays(store, runs)
    for run, sessions in _with_sessions(store, runs):
        document = as_document(run)
        delay = delays.get(run.id)
        document["waits"] = None if delay is None else {"reason": delay.reason, "text": delay.text}
        if in_full:
            document["logs"] = _logs(store, run)
        document["sessions"] = [as_document(session) for session in sessions]
        told.append(document)
    said = [{**as_document(heard.dispatcher), "heard_of_s": heard.modified_s} for heard in store.dispatchers()]
    return {"job_runs": told, "dispatchers": said, "unreadable": store.unreadable.why}


def _print(store: StateStore, runs: list[JobRun], in_full: bool) -> None:
    from deltacompact.cli.console import out
    from sessions.base.clock import lasted_s
    from sessions.cli.printed import no_job_run, plain_table, print_whole, seconds_text, states_of, visible
    from sessions.overview.overview import clock_of

    if not runs:
        out.print(no_job_run(store))
        return
    table = plain_table("job run", "table", "state", "sessions", "took", "expected", "desired", "epoch", "why")
    sessions: list[JobRunSession] = []
    now_s = clock_of(store)()
    delays = _delays(store, runs)
    for run, sessions in _with_sessions(store, runs):
        table.add_row(
            run.id,
            visible(str(run.document.get("source_table_id", ""))),
            run.state.value,
            states_of(sessions),
            seconds_text(lasted_s(run.started_s, run.finished_s or now_s)),
            seconds_text(run.expected.seconds if run.expected else None),
            seconds_text(run.desired_sla_s) + _nearest(run),
            str(run.lease.epoch if run.lease else ""),
            visible(run.error or (f"waits: {delays[run.id].text}" if run.id in delays else "")),
        )
    print_whole(table)
    if in_full:
        if sessions:
            out.print()
            print_whole(_sessions_table(sessions))
        for uri in _logs(store, runs[0])[-_LOGS_NAMED:]:
            out.print(visible(f"printed: {uri}"), soft_wrap=True)


def _with_sessions(store: StateStore, runs: list[JobRun]) -> list[tuple[JobRun, list[JobRunSession]]]:
    """The job runs, each with its sessions, which are read side by side."""
    from deltacompact.base.partitions import side_by_side

    sessions = side_by_side(runs, lambda run: list(store.sessions(run.id)), READ_AT_ONCE)
    return list(zip(runs, sessions, strict=True))


def _logs(store: StateStore, run: JobRun) -> list[str]:
    """Where that lies what its groups printed, the latest last."""
    from sessions.records.kept_logs import kept_logs

    return [store.uri + path for _, path in kept_logs(store.store, run.id)]


def _delays(store: StateStore, runs: list[JobRun]) -> dict[str, Delay]:
    """Why nobody works on job runs, by their ids."""
    from sessions.overview.overview import delays_of

    if all(run.state.ended for run in runs):
        return {}
    from sessions.overview.overview import clock_of

    now_s = clock_of(store)()
    every = runs if len(runs) > 1 else _open_ones(store)
    return delays_of(every, [report.dispatcher for report in store.dispatchers() if report.is_there(now_s)])


def _open_ones(store: StateStore) -> list[JobRun]:
    from deltacompact.base.errors import CorruptionError, NotFoundError
    from deltacompact.base.partitions import side_by_side

    def read(job_run_id: str) -> list[JobRun]:
        with contextlib.suppress(NotFoundError, CorruptionError):
            return [store.job_run(job_run_id).value]
        return []

    marked = [mark.job_run_id for mark in store.open_job_runs()]
    return [run for found in side_by_side(marked, read, READ_AT_ONCE) for run in found]


def _print_unreadable(store: StateStore) -> None:
    from deltacompact.base.wording import counted
    from deltacompact.cli.console import out
    from sessions.cli.printed import visible

    if why := store.unreadable.why:
        path, text = next(iter(why.items()))
        out.print(visible(f"{counted(len(why), 'object')} left out: {path}: {text}"), soft_wrap=True)


def _sessions_table(sessions: list[JobRunSession]) -> Any:
    from sessions.cli.printed import plain_table, seconds_text, visible

    table = plain_table("session", "state", "stage", "tries", "took", "expected", "rows in", "live", "why")
    for session in sessions:
        outcome = session.outcome
        table.add_row(
            session.id,
            session.state.value,
            session.progress.stage if not session.state.ended else "",
            str(session.attempts),
            seconds_text(outcome.seconds if outcome else None),
            seconds_text(session.expected.seconds if session.expected else None),
            f"{outcome.rows_in:,}" if outcome else "",
            f"{outcome.live:,}" if outcome else "",
            visible(session.error or session.nothing_to_do or _waits(session)),
        )
    return table


def _waits(session: JobRunSession) -> str:
    return f"waits: {session.delay.text}" if session.delay else ""


def _nearest(run: JobRun) -> str:
    """The words for a desired SLA that cannot be met."""
    from sessions.cli.printed import seconds_text

    if run.nearest_sla_s is None:
        return ""
    cpus = f", or {run.cpus_needed:,} CPUs" if run.cpus_needed else ""
    return f" (nearest {seconds_text(run.nearest_sla_s)}{cpus})"
