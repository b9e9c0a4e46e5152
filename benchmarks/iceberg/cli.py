"""python -m benchmarks iceberg | following"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.console import made, names_among, teller

BEGIN, END = "<!-- iceberg: written by `python -m benchmarks iceberg --readme` -->", "<!-- /iceberg -->"
_SHAPES = ("many", "few", "fifth", "clean", "binpack", "mixed", "cdc")
_CONTENDERS = ("rewrite", "convert", "spark", "zamboni")


@click.command()
@click.option("--shape", "shapes", default=",".join(_SHAPES), callback=names_among(_SHAPES), show_default=True)
@click.option("--only", default=",".join(_CONTENDERS), callback=names_among(_CONTENDERS), show_default=True)
@click.option("--executor", type=click.Choice(["local", "ray", "auto"]), default="local", show_default=True)
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Of the rows.")
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where tables are made once and kept.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the report goes.")
@click.option("--timeout", "timeout_s", default=3600.0, show_default=True, help="Seconds for one process.")
@click.option("--readme", is_flag=True, help="Write the tables into README.md.")
def iceberg(
    shapes: tuple[str, ...],
    only: tuple[str, ...],
    executor: str,
    scale: float,
    repeats: int,
    data: Path | None,
    out: Path | None,
    timeout_s: float,
    readme: bool,
) -> None:
    """Tables with equality deletes: deltacompact beside Spark and iceberg-zamboni. Exit status 1 where one failed."""
    from benchmarks.environment import environment
    from benchmarks.grids import markdown_table, print_grid, write_between
    from benchmarks.iceberg import measuring, report
    from benchmarks.iceberg.cdc import ChangeEvents
    from benchmarks.iceberg.contenders import entrants
    from benchmarks.iceberg.shapes import SHAPES

    console, out, data = Console(width=None if sys.stdout.isatty() else 200), made(out, "report"), made(data, "data")
    chosen = tuple(entrant for entrant in entrants(executor) if entrant.name in only)
    known = {**SHAPES, "cdc": ChangeEvents("cdc", 10.0)}
    tables = tuple(known[name] if scale == 1 else known[name].scaled(scale) for name in shapes)
    plan = measuring.Plan(tables, chosen, executor, repeats, data.absolute(), out.absolute(), timeout_s)
    measurements = list(measuring.run(plan, teller()))
    facts = f"{os.cpu_count()} cores, executor {executor}, median of {repeats}." + (
        "" if scale == 1 else f" Rows are scaled to {scale:g}."
    )
    grid = report.grid_of(measurements)
    print_grid(console, "Iceberg", grid)
    text = f"{facts}\n\n{markdown_table(*grid)}"
    (out / "report.md").write_text(text)
    document = {"environment": environment(), "measurements": report.document_of(measurements)}
    (out / "report.json").write_text(json.dumps(document, indent=1))
    if readme:
        write_between(BEGIN, text, END, Path(__file__).parent.parent / "README.md")
    console.print(f"report.md and report.json are in {out}", soft_wrap=True)
    if any(measured.error for measured in measurements):
        raise SystemExit(1)


@click.command()
@click.option("--files", "count", type=click.IntRange(1), default=10_000, show_default=True, help="Data files.")
@click.option("--file-rows", type=click.IntRange(1), default=1_000, show_default=True, help="Of each of them.")
@click.option(
    "--deletes", type=click.IntRange(1), default=1_000_000, show_default=True, help="In one commit of others."
)
@click.option("--commits", type=click.IntRange(1), default=50, show_default=True, help="Of others, one after another.")
def following(count: int, file_rows: int, deletes: int, commits: int) -> None:
    """Others delete rows during a rewrite: seconds to follow them. Exit status 1 where a group was written again."""
    from benchmarks.iceberg.following import Files, lines_of

    console, few = Console(width=None if sys.stdout.isatty() else 200), Files(10, max(commits, file_rows), 0)
    for line in lines_of(Files(count, file_rows, deletes), few, commits):
        console.print(line)
