"""The command line. Every command names the catalog first, then the table.

    deltacompact create  ./lake orders --primary-key id --partition-key day
    deltacompact append  ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact plan    ./lake orders
    deltacompact compact ./lake orders

Exit status: 0 success (also when there is nothing to do), 2 bad input, 3 a conflict, 130 interrupted, 1 anything else.

Results go to stdout, with --json as one document. Progress, warnings and errors go to stderr. Commands import their
modules when they run, so --help loads neither numpy nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deltacompact import __version__
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.cli import append, compaction, demo, history, iceberg, reading, tables, upkeep
from deltacompact.cli.program import Program
from deltacompact.storage.certain_put import telling_interrupts


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    _PROGRAM.main(LIMITS)


def run(arguments: Sequence[str], limits: Limits = LIMITS) -> int:
    """Run one command line and return its exit status. `limits` apply to commands that compact."""
    return _PROGRAM.run(arguments, limits)


class _Commands(click.Group):
    """Commands that report, if they are interrupted, what they have put so far."""

    def invoke(self, context: click.Context) -> Any:
        with telling_interrupts():
            return super().invoke(context)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """Compact data-lake tables: fold delta streams into one live row per key, and compact Iceberg tables.

    \b
    CATALOG is a local path, file:///path or s3://bucket/prefix. A first table:
        deltacompact create  ./lake orders --primary-key id
        deltacompact append  ./lake orders monday.parquet tuesday.csv
        deltacompact append  ./lake orders gone.parquet --operation delete
        deltacompact compact ./lake orders
        deltacompact export  ./lake orders now.parquet

    show, plan, compact, maintain and validate also take an Iceberg catalog that PyIceberg's configuration describes
    (.pyiceberg.yaml, PYICEBERG_CATALOG__PROD__URI):

    \b
        deltacompact compact iceberg://prod db.orders

    Every command takes --json, which prints one JSON document, also for an error ({"error": {...}}), and --debug,
    which shows the traceback of an error. Results go to stdout, progress and errors to stderr.

    Exit status: 0 success or nothing to do, 2 bad input, 3 a conflict (run it again), 130 interrupted, 1 anything else.
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
    iceberg.maintain,
    demo.demo,
):
    cli.add_command(_command)

_PROGRAM = Program("deltacompact", cli, "the table is as it was, the same command resumes")
