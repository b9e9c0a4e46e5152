"""The command line. Every command names the catalog first, then the table.

    deltacompact create  ./lake orders --primary-key id --partition-key day
    deltacompact append  ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact plan    ./lake orders
    deltacompact compact ./lake orders

Exit status: 0 success (also when there is nothing to do), 2 bad input, 3 a conflict, 1 anything else.

Results go to stdout, with --json as one document. Progress, warnings and errors go to stderr. Commands import their
modules when they run, so --help loads neither numpy nor pyarrow.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from deltacompact.base.errors import DeltaCompactError, Interrupted
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.wording import error_document, one_line
from deltacompact.catalog.delta_stream.certain_put import telling_interrupts
from deltacompact.cli import append, compaction, demo, history, reading, tables, upkeep
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.console import warnings_on_stderr, write_ascii_where_utf8_is_not_read

_AS_IT_WAS = "the table is as it was, the same command resumes"


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    write_ascii_where_utf8_is_not_read()
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # `| head` closed the pipe; click and rich turn that into SystemExit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status)


def run(arguments: Sequence[str], limits: Limits = LIMITS) -> int:
    """Run one command line and return its exit status. `limits` apply to commands that compact."""
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        with warnings_on_stderr(debug):
            words = [word for word in arguments if word != "--debug"]
            cli.main(words, prog_name="deltacompact", standalone_mode=False, obj=limits)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as usage:
        if as_json:
            say_json({"error": {"kind": "UsageError", "message": usage.format_message(), "exit_status": 2}})
        usage.show(file=sys.stderr)
        return 2
    except (KeyboardInterrupt, click.Abort) as stop:
        cause = stop.__cause__ if isinstance(stop, click.Abort) else stop  # click turns KeyboardInterrupt into Abort
        message = f"interrupted; {cause if isinstance(cause, Interrupted) else _AS_IT_WAS}"
        if as_json:
            say_json({"error": {"kind": "Interrupted", "message": message, "exit_status": 130}})
        _say_error(message)
        return 130
    except BrokenPipeError:
        raise
    except Failed as failed:  # the JSON answer has the error already
        return _failed(failed.error, debug)
    except Exception as error:
        if as_json:
            say_json({"error": error_document(error)})
        return _failed(error, debug)


def _failed(error: Exception, debug: bool) -> int:
    """Print the error in one line and return its exit status."""
    if debug:
        traceback.print_exception(error)
    known = isinstance(error, DeltaCompactError)
    _say_error(one_line(error) + ("" if known or debug else " (--debug shows where)"))
    return error.exit_status if isinstance(error, DeltaCompactError) else 1


def _say_error(text: str) -> None:
    click.secho(f"deltacompact: {text}", file=sys.stderr, fg="red")


class _Commands(click.Group):
    """Commands that report, if they are interrupted, what they have put so far."""

    def invoke(self, context: click.Context) -> Any:
        with telling_interrupts():
            return super().invoke(context)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="deltacompact")
def cli() -> None:
    """Fold the deltas of merge-on-read tables into few large files, one live row per primary key.

    \b
    CATALOG is a local path, file:///path or s3://bucket/prefix. A first table:
        deltacompact create  ./lake orders --primary-key id
        deltacompact append  ./lake orders monday.parquet tuesday.csv
        deltacompact append  ./lake orders gone.parquet --operation delete
        deltacompact compact ./lake orders
        deltacompact export  ./lake orders now.parquet

    Every command takes --json, which prints one JSON document, also for an error ({"error": {...}}), and --debug,
    which shows the traceback of an error.
    Exit status: 0 success or nothing to do, 2 bad input, 3 a conflict, 1 anything else.
    """


for _command in (
    tables.create,
    append.append,
    compaction.plan,
    compaction.compact,
    reading.export,
    reading.read,
    tables.show,
    history.rollback,
    history.retract,
    reading.publish,
    upkeep.check,
    upkeep.rehash,
    upkeep.vacuum,
    upkeep.validate,
    demo.demo,
):
    cli.add_command(_command)
