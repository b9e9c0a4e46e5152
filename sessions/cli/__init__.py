"""The command line of the control plane.

    deltacompact-sessions submit   nightly.json --queue /srv/queue
    deltacompact-sessions dispatch --queue /srv/queue --state /srv/state
    deltacompact-sessions status   --state /srv/state

Exit status: 0 success, 2 bad input (one line names the field), 3 conflict, 130 interrupted, 1 anything else. Results
go to stdout, with --json as one document; logs and errors go to stderr. Commands import what they need when they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deltacompact.base.missing import not_installed
from deltacompact.base.wording import error_document
from deltacompact.cli.program import Program
from sessions.cli import dead_letters, demo, dispatch, job_runs, page, run_group, sla, status, submit, validate, watch


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    _PROGRAM.main()


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    return _PROGRAM.run(arguments)


class _SessionsCommands(click.Group):
    """Commands that name the extra to install, if a package of it is missing."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "deltacompact", "sessions"):
                raise
            raise not_installed(package, "sessions") from error


@click.group(cls=_SessionsCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="deltacompact")
def cli() -> None:
    """Job runs: a document on a queue asks for a compaction, and a dispatcher runs it within its SLA.

    \b
    A first job run, on this machine alone. job.json holds
        {"version": 1, "catalog": "/srv/lake", "source_table_id": "orders", "desired_sla": 900}
    and then
        deltacompact-sessions validate job.json
        deltacompact-sessions submit   job.json --queue /srv/queue
        deltacompact-sessions dispatch --queue /srv/queue --state /srv/state --drain
        deltacompact-sessions status   --state /srv/state

    QUEUE is a directory (file:///path or a path) or the URL of an SQS queue. STATE is a folder or s3://bucket/prefix,
    which dispatchers share. If a dispatcher dies, nothing is lost: the next one goes on.

    Commands that answer take --json, which prints one JSON document, also for an error ({"error": {...}}). All take
    --debug, which shows the traceback of an error.

    Exit status: 0 success, 1 a job run failed or anything else, 2 bad input, 3 conflict, 130 interrupted.
    """


for _command in (
    validate.validate,
    submit.submit,
    dispatch.dispatch,
    status.status,
    sla.sla,
    job_runs.job_runs,
    dead_letters.dlq,
    watch.watch,
    page.page,
    demo.demo,
    run_group.run_group,
):
    cli.add_command(_command)


def _refusal(error: Exception) -> dict[str, Any]:
    """A refused document names the field."""
    field = getattr(error, "field", None)
    return {**error_document(error), **({} if field is None else {"field": field})}


_PROGRAM = Program("deltacompact-sessions", cli, "what was sent or accepted before stays", _refusal)
