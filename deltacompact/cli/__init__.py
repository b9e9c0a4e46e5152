"""The command line. Every command names the catalog first, then the table.

    deltacompact create  ./lake orders --primary-key id --partition-key day
    deltacompact append  ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact plan    ./lake orders
    deltacompact compact ./lake orders

Exit status: 0 success (also when there is nothing to do), 2 bad input, 3 a conflict, 4 a table beyond
a threshold of `check --health` or unread by an engine of `check --readable-by`, 130 interrupted, 1 anything else.

Results go to stdout, with --json as one document. Progress, warnings and errors go to stderr. Only the module of the
command that is called is imported, and it imports what it needs when it runs: --help loads neither numpy nor pyarrow.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Sequence
from typing import Any

import click

from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.model import CATALOG_VARIABLE
from deltacompact.cli.program import Program
from deltacompact.storage.certain_put import telling_interrupts


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: unfinished files would stay
    _PROGRAM.main(LIMITS)


def run(arguments: Sequence[str], limits: Limits = LIMITS) -> int:
    """Run one command line and return its exit status. `limits` apply to commands that compact."""
    return _PROGRAM.run(arguments, limits)


_MODULES = {
    "advise": ("advise",),
    "append": ("append",),
    "changes": ("bookmarks", "changes", "diff"),
    "check": ("check",),
    "compaction": ("plan", "compact"),
    "demo": ("demo",),
    "drop": ("drop",),
    "heat": ("heat",),
    "history": ("history", "rollback", "retract"),
    "iceberg": ("maintain",),
    "reading": ("export", "read", "publish"),
    "rehash": ("rehash",),
    "simulate": ("simulate",),
    "tables": ("create", "show"),
    "vacuum": ("vacuum",),
    "validate": ("validate",),
}
"""The commands of each module."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class _Commands(click.Group):
    """Imports a command when it is called. If it is interrupted, its error says what it has put so far."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULE_OF:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[cmd_name]}"), cmd_name)
        return command

    def invoke(self, context: click.Context) -> Any:
        given = list(context.args)
        try:
            with telling_interrupts():
                return super().invoke(context)
        except click.MissingParameter as missing:
            # A user who left out the catalog lacks the last argument.
            if CATALOG_VARIABLE in os.environ and isinstance(missing.param, click.Argument) and "-" not in given:
                text = f"Write - as CATALOG for the one at ${CATALOG_VARIABLE}"
                raise click.MissingParameter(text, missing.ctx, missing.param) from None
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="deltacompact")
def cli() -> None:
    """Compact data-lake tables: fold delta streams into one live row per key, and compact Iceberg tables.

    \b
    CATALOG is a local path, file:///path or s3://bucket/prefix, or - for $DELTACOMPACT_CATALOG. A first table:
        deltacompact create  ./lake orders --primary-key id
        deltacompact append  ./lake orders monday.parquet tuesday.csv
        deltacompact append  ./lake orders gone.parquet --operation delete
        deltacompact compact ./lake orders
        deltacompact export  ./lake orders now.parquet

    advise, bookmarks, changes, check, compact, diff, export, heat, history, maintain, plan, read, rollback, show,
    simulate and validate also take an Iceberg catalog that PyIceberg's configuration describes (.pyiceberg.yaml,
    PYICEBERG_CATALOG__PROD__URI):

    \b
        deltacompact compact iceberg://prod db.orders

    Every command takes --json, which prints one JSON document, also for an error ({"error": {...}}), and --debug,
    which shows the traceback of an error. Results go to stdout, progress and errors to stderr.

    Exit status: 0 success or nothing to do, 2 bad input, 3 a conflict (run it again), 4 a table beyond a
    threshold of check --health or unread by an engine of check --readable-by, 130 interrupted, 1 anything else.
    """


_PROGRAM = Program("deltacompact", cli, "the table is as it was: repeat the command, a compaction resumes")
