"""python -m benchmarks iceberg: deletes of Iceberg tables, applied by deltacompact and by Spark."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console

from benchmarks import formats
from benchmarks.console import made, teller
from benchmarks.grids import Grid, markdown_table, print_grid
from benchmarks.iceberg.shapes import SHAPES

_NAMES = ("convert local", "convert ray", "rewrite local", "rewrite ray", "spark")


def _several(known: tuple[str, ...]) -> Any:
    """A callback for comma-separated names."""

    def parse(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise click.BadParameter(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return names

    return parse


@click.command()
@click.option("--shape", "shapes", default=",".join(SHAPES), callback=_several(tuple(SHAPES)), show_default=True)
@click.option("--only", "cleaners", default=",".join(_NAMES), callback=_several(_NAMES), show_default=True)
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Of the rows and files.")
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where tables are made once and kept.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the report goes.")
@click.option("--timeout", "timeout_s", default=3600.0, show_default=True, help="Seconds for one process.")
def iceberg(
    shapes: tuple[str, ...],
    cleaners: tuple[str, ...],
    repeats: int,
    scale: float,
    seed: int,
    data: Path | None,
    out: Path | None,
    timeout_s: float,
) -> None:
    """Iceberg tables with many equality deletes. Exit status 1 where a cleaner failed or a reader found other rows."""
    from benchmarks.environment import environment
    from benchmarks.iceberg.runs import RunPlan, run

    console, out = Console(width=None if sys.stdout.isatty() else 160), made(out, "iceberg")
    chosen = tuple(SHAPES[name].scaled(scale) for name in shapes)
    measured = run(RunPlan(chosen, cleaners, repeats, seed, made(data, "data"), out, timeout_s), teller())
    grid = _grid([asdict(one) for one in measured])
    print_grid(console, "Iceberg tables with equality deletes", grid)
    document = {"environment": environment(), "scale": scale, "measured": [asdict(one) for one in measured]}
    (out / "iceberg.json").write_text(json.dumps(document, indent=1))
    (out / "iceberg.md").write_text(markdown_table(*grid))
    console.print(f"iceberg.md and iceberg.json are in {out}", soft_wrap=True)
    if any(one.error for one in measured):
        raise SystemExit(1)


def _grid(measured: list[dict[str, Any]]) -> Grid:
    """Medians of the runs that were right."""
    names = ["shape", "cleaner", "s", "CPU s", "largest process, MB", "all processes, MB"]
    rows = []
    for shape, cleaner in dict.fromkeys((one["shape"], one["cleaner"]) for one in measured):
        ours = [one for one in measured if (one["shape"], one["cleaner"]) == (shape, cleaner)]
        right = [one for one in ours if not one["error"]]
        if not right:
            rows.append([shape, cleaner, ours[0]["error"], "", "", ""])
            continue
        middle = {key: median(one[key] for one in right) for key in ("seconds", "cpu_s")}
        peaks = [max(one[key] for one in right) for key in ("peak_process_bytes", "peak_tree_bytes")]
        times = [formats.seconds(middle["seconds"]), formats.seconds(middle["cpu_s"])]
        rows.append([shape, cleaner, *times, *(formats.megabytes(peak) for peak in peaks)])
    return names, rows
