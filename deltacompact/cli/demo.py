"""demo: runs the main job on this machine."""

from __future__ import annotations

import click

from deltacompact.base.settings import EXECUTORS
from deltacompact.cli.answers import say_json
from deltacompact.cli.arguments import json_option


@click.command()
@click.option("--catalog", metavar="CATALOG", help="Where the tables go. Default: a temporary folder.")
@click.option(
    "--rows", type=click.IntRange(min=100), default=50_000, show_default=True, metavar="N", help="Rows a delta."
)
@click.option(
    "--executor", type=click.Choice(EXECUTORS), default="ray", show_default=True, help="What the compaction runs on."
)
@json_option
def demo(catalog: str | None, rows: int, executor: str, as_json: bool) -> None:
    """Show the whole way on this machine.

    Spark writes deltas, Ray compacts them, and Spark recomputes the result and compares. It takes a minute or two, and
    needs Java 17 or newer.

    \b
    deltacompact demo --rows 100000 --catalog ./demo
    """
    from deltacompact.cli.console import err, out
    from deltacompact.cli.demonstration import run_demo
    from deltacompact.cli.result_report import result_document

    result = run_demo(catalog, rows, executor, err if as_json else out, err)
    if as_json:
        say_json(result_document(result))
