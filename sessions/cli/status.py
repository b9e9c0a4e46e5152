"""status."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.printable import printable
from sessions.base.settings import READ_AT_ONCE
from sessions.cli.options import json_option, state_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.base.model import Delay, JobRun, JobRunSession
    from sessions.overview.overview import JobRunSeen
    from sessions.records.state_store import StateStore

_LOGS_NAMED = 5


@click.command()
@state_option
@click.option("--job-run", metavar="NAME", help="Only this job run, with each of its sessions.")
@click.option("--watch", is_flag=True, help="Draw anew every second, until Ctrl-C.")
@json_option
def status(state: str, job_run: str | None, watch: bool, as_json: bool) -> None:
    """Show job runs and their sessions: those that have not ended, and the latest 1,000 that have.

    Of each one it shows the state, what it took since its acceptance, as the desired SLA counts, how long it was at
    work, as the expected one counts, and the error. With --job-run, it names the logs of what ran last, and the exit
    status is 1 if that one has failed or was cancelled.

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
    shown, delays = _every(store) if job_run is None else _named(store, job_run)
    if as_json:
        say_json(_document(store, shown, delays, in_full=job_run is not None))
    else:
        _print(store, shown, delays, in_full=job_run is not None)
        _print_unreadable(store)
    if job_run is not None:
        from sessions.cli.waiting import check_outcome

        check_outcome(shown[0].run)  # for schedulers: one that has failed or was cancelled is exit status 1


def _every(store: StateStore) -> tuple[list[JobRunSeen], dict[str, Delay]]:
    """The job runs, the latest accepted last, and why nobody works on some, by their ids."""
    from sessions.overview.overview import OverviewReader, clock_of

    overview = OverviewReader(store, clock=clock_of(store)).read()
    return list(reversed(overview.job_runs)), overview.delays


def _named(store: StateStore, job_run_id: str) -> tuple[list[JobRunSeen], dict[str, Delay]]:
    """The same of one job run. Raises NotFoundError."""
    from deltacompact.base.errors import NotFoundError
    from sessions.overview.overview import JobRunSeen, clock_of, delays_of

    try:
        run = store.job_run(job_run_id).value
    except NotFoundError:
        raise NotFoundError(f"no job run {job_run_id!r} in {store.uri}") from None
    shown = [JobRunSeen(run, tuple(store.sessions(run.id)))]
    if run.state.ended:
        return shown, {}
    now_s = clock_of(store)()
    there = [report.dispatcher for report in store.dispatchers() if report.is_there(now_s)]
    return shown, delays_of(_open_ones(store), there)


def _watch(store: StateStore) -> None:
    from deltacompact.cli.console import out
    from sessions.cli.live import watch_live
    from sessions.overview.overview import OverviewReader, clock_of

    if not out.is_terminal:
        raise click.UsageError("--watch draws on a terminal: take status in a loop, or the page's /api/overview.")
    with contextlib.suppress(KeyboardInterrupt):
        watch_live(OverviewReader(store, clock=clock_of(store)), out)


def _document(store: StateStore, shown: list[JobRunSeen], delays: dict[str, Delay], in_full: bool) -> dict[str, Any]:
    from sessions.records.state_store import as_document

    told = []
    for seen in shown:
        run, document = seen.run, as_document(seen.run)
        delay = delays.get(run.id)
        document["waits"] = None if delay is None else {"reason": delay.reason, "text": delay.text}
        if in_full:
            document["logs"] = _logs(store, run)
        document["sessions"] = [as_document(session) for session in seen.sessions]
        told.append(document)
    said = [{**as_document(heard.dispatcher), "heard_of_s": heard.modified_s} for heard in store.dispatchers()]
    return {"job_runs": told, "dispatchers": said, "unreadable": store.unreadable.why}


def _print(store: StateStore, shown: list[JobRunSeen], delays: dict[str, Delay], in_full: bool) -> None:
    from deltacompact.cli.console import out
    from sessions.base.clock import lasted_s
    from sessions.cli.printed import no_job_run, plain_table, print_whole, seconds_text, states_of
    from sessions.overview.overview import clock_of

    if not shown:
        out.print(no_job_run(store))
        return
    table = plain_table(
        "job run", "table", "state", "sessions", "took", "desired", "at work", "expected", "epoch", "why"
    )
    now_s = clock_of(store)()
    for seen in shown:
        run = seen.run
        until_s = run.finished_s or now_s
        table.add_row(
            run.id,
            printable(seen.table),
            run.state.value,
            states_of(seen.sessions),
            seconds_text(lasted_s(run.accepted_s, until_s)),
            seconds_text(run.desired_sla_s) + _nearest(run),
            seconds_text(lasted_s(run.started_s, until_s)),
            seconds_text(run.expected.seconds if run.expected else None),
            str(run.lease.epoch if run.lease else ""),
            printable(run.error or (f"waits: {delays[run.id].text}" if run.id in delays else "")),
        )
    print_whole(table)
    if in_full:
        if shown[0].sessions:
            out.print()
            print_whole(_sessions_table(shown[0].sessions))
        for uri in _logs(store, shown[0].run)[-_LOGS_NAMED:]:
            out.print(printable(f"printed: {uri}"), soft_wrap=True)


def _logs(store: StateStore, run: JobRun) -> list[str]:
    """Where that lies what its groups printed, the latest last."""
    from sessions.records.kept_logs import kept_logs

    return [store.uri + path for _, path in kept_logs(store.store, run.id)]


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

    if why := store.unreadable.why:
        path, text = next(iter(why.items()))
        out.print(printable(f"{counted(len(why), 'object')} left out: {path}: {text}"), soft_wrap=True)


def _sessions_table(sessions: Sequence[JobRunSession]) -> Any:
    from sessions.cli.printed import plain_table, seconds_text

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
            printable(session.error or session.nothing_to_do or _waits(session)),
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
