"""The command line. Every command names the catalog first, then the table.

    deltacompact create  ./lake orders --primary-key id --partition-key day
    deltacompact append  ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact plan    ./lake orders
    deltacompact compact ./lake orders

Exit status: 0 success (also when there is nothing to do), 2 bad input, 3 a conflict, 1 anything else.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from deltacompact.cli import append, compaction, demo, history, reading, tables, upkeep
from deltacompact.cli.arguments import err
from deltacompact.errors import DeltaCompactError


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    debug = "--debug" in arguments
    try:
        cli.main([each for each in arguments if each != "--debug"], prog_name="deltacompact", standalone_mode=False)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        err.print("deltacompact: interrupted; the table is as it was, the same command resumes", style="red")
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        known = isinstance(error, DeltaCompactError)
        what = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
        err.print(f"deltacompact: {' '.join(what.split())}", style="red", markup=False)
        return error.exit_status if isinstance(error, DeltaCompactError) else 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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

    Every command takes --debug, which shows the traceback of an error.
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
