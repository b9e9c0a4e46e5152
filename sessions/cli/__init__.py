"""The command line of the control plane.

    deltacompact-sessions submit   nightly.json --queue /srv/queue
    deltacompact-sessions dispatch --queue /srv/queue --state /srv/state
    deltacompact-sessions status   --state /srv/state

Exit status: 0 success, 2 bad input (one line names the field), 1 anything else. Results go to stdout, with --json as
one document; logs and errors go to stderr. Commands import what they need when they run.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.wording import error_document, one_line
from deltacompact.cli.answers import say_json
from deltacompact.cli.console import warnings_on_stderr, write_ascii_where_utf8_is_not_read
from sessions.cli import dead_letters, demo, dispatch, run_group, sla, status, submit, validate, watch

PROGRAM = "deltacompact-sessions"


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    write_ascii_where_utf8_is_not_read()
    try:
        exit_status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        exit_status = 0
    sys.exit(exit_status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        with warnings_on_stderr(debug):
            done = cli.main([word for word in arguments if word != "--debug"], prog_name=PROGRAM, standalone_mode=False)
        return done if isinstance(done, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as usage:
        if as_json:
            say_json({"error": {"kind": "UsageError", "message": usage.format_message(), "exit_status": 2}})
        usage.show(file=sys.stderr)
        return 2
    except (KeyboardInterrupt, click.Abort):
        _say_error("interrupted")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        if as_json:
            say_json({"error": {**error_document(error), **_field(error)}})
        known = isinstance(error, DeltaCompactError)
        _say_error(one_line(error) + ("" if known or debug else " (--debug shows where)"))
        return error.exit_status if isinstance(error, DeltaCompactError) else 1


def _field(error: Exception) -> dict[str, str]:
    field = getattr(error, "field", None)
    return {} if field is None else {"field": field}


def _say_error(text: str) -> None:
    click.secho(f"{PROGRAM}: {text}", file=sys.stderr, fg="red")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="deltacompact")
def cli() -> None:
    """Job runs: from an instruction document on a queue to tables that are compacted within their SLA.

    \b
    A first job run, on this machine alone. job.json holds
        {"version": 1, "catalog": "/srv/lake", "source_table_id": "orders", "desired_sla": 900}
    and then
        deltacompact-sessions validate job.json
        deltacompact-sessions submit   job.json --queue /srv/queue
        deltacompact-sessions dispatch --queue /srv/queue --state /srv/state --drain
        deltacompact-sessions status   --state /srv/state

    QUEUE is a directory (file:///path or a path) or the URL of an SQS queue. STATE is a folder or s3://bucket/prefix,
    which dispatchers share; a dispatcher that dies loses nothing, the next one goes on.

    Every command takes --json, which prints one JSON document, of an error as well ({"error": {...}}), and --debug,
    which shows the traceback of an error. Exit status: 0 success, 2 bad input, 1 anything else.
    """


for _command in (
    validate.validate,
    submit.submit,
    dispatch.dispatch,
    status.status,
    sla.sla,
    dead_letters.dlq,
    watch.watch,
    demo.demo,
    run_group.run_group,
):
    cli.add_command(_command)
