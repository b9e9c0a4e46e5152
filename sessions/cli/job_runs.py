"""job-runs expire, retry, cancel."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.spans import span_s
from sessions.cli.options import json_option, state_option

if TYPE_CHECKING:
    from sessions.base.model import JobRun
    from sessions.dispatch.expiry import Expired


def _span_s(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """A span of time, such as 30d, as seconds."""
    seconds = span_s(value)
    if seconds is None or value.endswith("ms"):  # 30ms is a slip for 30m, and records that are removed are gone
        raise click.BadParameter(f"{value!r} is no span of time: name a number with s, m, h, d or w, such as 30d.")
    return seconds


@click.group("job-runs")
def job_runs() -> None:
    """Look after the records of job runs.

    \b
    deltacompact-sessions job-runs expire --state /srv/state --older-than 30d
    deltacompact-sessions job-runs retry  --state /srv/state nightly
    deltacompact-sessions job-runs cancel --state /srv/state nightly
    """


@job_runs.command()
@state_option
@click.argument("job_run", metavar="NAME")
@json_option
def retry(state: str, job_run: str, as_json: bool) -> None:
    """Run a job run again that has failed or was cancelled.

    Its sessions that have succeeded stay as they are; the others are planned anew. Attempts that may still be under way
    are fenced off first. How it ended before is kept in its record. Any other job run is a conflict: exit status 3.
    """
    from deltacompact.cli.answers import answer
    from sessions.records.lives import retry
    from sessions.records.state_store import StateStore

    run = retry(StateStore(state), _existing_id(state, job_run))
    answer(as_json, changed_document(run), f"job run {run.id}: accepted again, the next dispatcher runs it")


@job_runs.command()
@state_option
@click.argument("job_run", metavar="NAME")
@json_option
def cancel(state: str, job_run: str, as_json: bool) -> None:
    """Cancel a job run that has not ended.

    If no dispatcher holds it, it is cancelled at once. Otherwise its dispatcher sees that within a third of the lease,
    ends its sessions, and makes sure that they publish nothing any more. What they had published before stays. One that
    has ended already is a conflict: exit status 3.
    """
    from deltacompact.base.errors import ConflictError
    from deltacompact.cli.answers import answer
    from sessions.base.model import JobRunState
    from sessions.records.lives import cancel
    from sessions.records.state_store import StateStore

    run = cancel(StateStore(state), _existing_id(state, job_run))
    if run.state.ended and run.state is not JobRunState.CANCELLED:
        raise ConflictError(f"job run {run.id} has ended before: {run.state}")
    said = "cancelled" if run.state.ended else "its dispatcher is told to cancel it"
    answer(as_json, changed_document(run), f"job run {run.id}: {said}")


@job_runs.command()
@state_option
@click.option(
    "--older-than",
    "older_than_s",
    callback=_span_s,
    required=True,
    metavar="SPAN",
    help="Job runs that ended longer ago than this, by the store's clock: 12h, 30d, 8w.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@json_option
def expire(state: str, older_than_s: float, dry_run: bool, as_json: bool) -> None:
    """Remove what is left of job runs that ended long ago.

    It removes their records, sessions, events and logs. Job runs that have not ended stay, and so do those whose events
    are still to be sent. What triggers have submitted is remembered, so no watcher submits it again. Dispatchers,
    watchers and the page may go on meanwhile; if the command is interrupted, run it again. The ids of removed job runs
    are free again.

    \b
    deltacompact-sessions job-runs expire --state s3://lake/job-runs --older-than 30d --dry-run
    """
    from deltacompact.cli.answers import answer
    from sessions.cli.printed import no_job_run
    from sessions.dispatch.expiry import Expired, expire
    from sessions.records.state_store import StateStore

    store = StateStore(state)
    is_missing = store.is_missing  # asking for the store's time would make it
    done = Expired() if is_missing else expire(store, older_than_s, dry_run)
    lines = [no_job_run(store)] if is_missing else _lines(done, dry_run)
    answer(as_json, {"dry_run": dry_run, **asdict(done)}, *lines)


def changed_document(run: JobRun) -> dict[str, Any]:
    """What --json says of a job run that was changed."""
    return {"job_run_id": run.id, "state": run.state, "cancelling": run.cancelling, "earlier_ends": len(run.earlier)}


def _existing_id(state: str, job_run_id: str) -> str:
    """The id of a job run that is there. Raises NotFoundError."""
    from deltacompact.base.errors import NotFoundError
    from sessions.records.state_store import StateStore

    try:
        return StateStore(state).job_run(job_run_id).value.id
    except NotFoundError:
        raise NotFoundError(f"no job run {job_run_id!r} in {state}") from None


def _lines(done: Expired, dry_run: bool) -> list[str]:
    from deltacompact.base.wording import counted

    verb = "would be removed" if dry_run else "removed"
    lines = [f"{counted(len(done.job_run_ids), 'job run')} {verb}, {counted(done.objects, 'object')}"]
    if done.unsent:
        lines.append(f"{counted(len(done.unsent), 'job run')} kept: events of them are still to be sent")
    if done.unreadable:
        first = done.unreadable[0]
        lines.append(f"{counted(len(done.unreadable), 'job run')} kept: the record of {first} cannot be read")
    if done.unwatched:
        lines.append(f"{counted(done.unwatched, 'table')} without a watcher {'would be ' * dry_run}forgotten")
    return lines
