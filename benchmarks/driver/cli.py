"""python -m benchmarks driver: sessions of the real driver on simulated clusters, one after another."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.console import made, teller


def _numbers(_context: click.Context, parameter: click.Parameter, text: str) -> tuple[tuple[int, ...], ...]:
    """FILES:BUCKETS:SLOTS,… as numbers."""
    try:
        shapes = tuple(tuple(map(int, shape.split(":"))) for shape in text.split(","))
    except ValueError:
        shapes = ()
    if not shapes or any(len(shape) != 3 or min(shape) < 1 for shape in shapes):
        raise click.BadParameter(f"{text!r} is not like 10000:400:100,100000:4000:1000", param=parameter)
    return shapes


@click.command()
@click.option(
    "--shapes",
    callback=_numbers,
    default="1000:40:10,10000:400:100,100000:4000:1000",
    show_default=True,
    help="FILES:BUCKETS:SLOTS of each session.",
)
@click.option("--file-rows", type=click.IntRange(1), default=6_000_000, show_default=True, help="Of each file.")
@click.option("--file-mib", type=click.IntRange(1), default=1024, show_default=True, help="Of each file, at rest.")
@click.option("--spread", type=click.FloatRange(0), default=0.1, show_default=True, help="Of alike tasks' seconds.")
@click.option("--stragglers", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share, 8 x as long.")
@click.option("--lost-every-s", type=click.FloatRange(0), default=0.0, show_default=True, help="A node. 0: never.")
@click.option("--back-after-s", type=click.FloatRange(0), default=120.0, show_default=True, help="0: never replaced.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the report goes.")
def driver(
    shapes: tuple[tuple[int, int, int], ...],
    file_rows: int,
    file_mib: int,
    spread: float,
    stragglers: float,
    lost_every_s: float,
    back_after_s: float,
    seed: int,
    out: Path | None,
) -> None:
    """The real driver on a simulated cluster: its CPU, memory, objects and records. No data, virtual time.

    Spot interruptions: --lost-every-s 60. Exit status 1 where a session failed.
    """
    from benchmarks.driver import report
    from benchmarks.driver.cluster import Trouble
    from benchmarks.driver.measuring import measure
    from benchmarks.driver.table import Shape

    console, tell, out = Console(width=None if sys.stdout.isatty() else 240), teller(), made(out, "report")
    trouble = Trouble(spread, stragglers, lost_every_s=lost_every_s, back_after_s=back_after_s)
    sessions = []
    for shape in shapes:
        tell(f"{shape[0]:,} files, {shape[1]:,} buckets, {shape[2]:,} slots")
        sessions.append(measure(Shape(*shape, file_rows, file_mib << 20), trouble, seed))
    console.print(report.write(sessions, out), soft_wrap=True)
    console.print(f"driver.md, driver.json and efficiency.svg are in {out}", soft_wrap=True)
    if any(session.error for session in sessions):
        raise SystemExit(1)
