"""python -m benchmarks layout | layouts | appends: what readers open, and what laying rows out costs.

layout     split trees beside curves, in memory
layouts    Iceberg tables laid out by us, Spark and DuckDB
appends    clustered tables of both kinds to which rows are appended
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.appends import DATA, lines
from benchmarks.iceberg import layouts as of_iceberg
from benchmarks.layout import measured, tables

_ROWS = click.IntRange(min=1_000)
_TABLES = click.Choice([*tables(1, rows=1)])


@click.command()
@click.option("--seed", default=1, show_default=True, help="Of the rows.")
def layout(seed: int) -> None:
    """Shares of files that readers open: split trees beside Hilbert's curve and Z-order on ranks."""
    for line in measured(seed):
        click.echo(line)


@click.command()
@click.option("--rows", type=_ROWS, default=1_000_000, show_default=True)
@click.option("--table", "chosen", type=_TABLES, multiple=True, help="[default: all]")
@click.option("--only", default="", help='Contenders whose names begin so: "deltacompact". [default: all]')
def layouts(rows: int, chosen: tuple[str, ...], only: str) -> None:
    """Seconds to lay out an Iceberg table beside Spark and DuckDB, and what readers open."""
    with tempfile.TemporaryDirectory() as folder:
        for line in of_iceberg.measured(rows, Path(folder), chosen, only):
            click.echo(line)


@click.command()
@click.option(
    "--rows", type=_ROWS, default=100_000, show_default=True, help="Of the table; 1 % comes with each append."
)
@click.option("--data", "arrivals", type=click.Choice([*DATA]), multiple=True, help="[default: all]")
def appends(rows: int, arrivals: tuple[str, ...]) -> None:
    """100 appends to a clustered table, a compaction after each: rows written, and what readers open."""
    for line in lines(rows, arrivals):
        click.echo(line)
