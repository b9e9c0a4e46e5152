"""demo: the main job on this machine."""

from __future__ import annotations

import click

from deltacompact.cli.arguments import err, out
from deltacompact.settings import EXECUTORS


@click.command()
@click.option("--catalog", metavar="CATALOG", help="Where to put the demo's tables; default: a temporary folder.")
@click.option("--rows", type=click.IntRange(min=100), default=50_000, show_default=True, help="Rows a delta.")
@click.option("--executor", type=click.Choice(EXECUTORS), default="ray", show_default=True)
def demo(catalog: str | None, rows: int, executor: str) -> None:
    """The main job on this machine: Spark writes deltas, Ray compacts them, Spark proves the result."""
    from deltacompact.demo import run_demo

    run_demo(catalog, rows, executor, out, err)
