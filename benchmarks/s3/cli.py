"""python -m benchmarks s3"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from signal import SIGTERM
from typing import Any

import click
from rich.console import Console

from benchmarks.competitors import CORES
from benchmarks.configurations import NARROW, WIDE, Configuration
from benchmarks.console import made, teller
from benchmarks.grids import Grid
from benchmarks.s3.scenarios import NAMES
from sessions.planning.prices import Prices

_EXECUTORS = ("local", "ray")
_ROW_BYTES = {NARROW.name: 60, WIDE.name: 1_100}
_MOTO = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def _several(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    def parse(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(filter(None, (name.strip() for name in text.split(","))))
        if not names or (unknown := [name for name in names if name not in known]):
            raise click.BadParameter(f"{', '.join(unknown) if names else text!r}: not among {', '.join(known)}")
        return names

    return parse


def _several_option(name: str, plural: str, known: tuple[str, ...], default: tuple[str, ...]) -> Any:
    return click.option(name, plural, default=",".join(default), callback=_several(known), show_default=True)


@click.command("s3")
@click.option("--endpoint", help="An S3 server; credentials are those of the environment. [default: moto's]")
@click.option("--latency-ms", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Of each answer.")
@click.option(
    "--mb-per-s", type=click.FloatRange(min=0), default=90.0, show_default=True, help="Of a connection; 0: no limit."
)
@click.option("--tls", is_flag=True, help="deltacompact speaks TLS to the proxies.")
@_several_option("--scenarios", "names", NAMES, NAMES)
@_several_option("--executor", "executors", _EXECUTORS, ("local",))
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Of the rows.")
@click.option("--partitions", type=click.IntRange(min=1), default=1_000, show_default=True)
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where tables are made once and kept.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the report goes.")
@click.option("--timeout", "timeout_s", default=3600.0, show_default=True, help="Seconds for one process.")
@click.option("--readme", is_flag=True, help="Write the tables into benchmarks/README.md.")
def s3(
    endpoint: str | None,
    latency_ms: float,
    mb_per_s: float,
    tls: bool,
    names: tuple[str, ...],
    executors: tuple[str, ...],
    scale: float,
    partitions: int,
    repeats: int,
    seed: int,
    data: Path | None,
    out: Path | None,
    timeout_s: float,
    readme: bool,
) -> None:
    """deltacompact on S3 beside local files: time, CPU, requests, bytes, dollars. Exit status 1 where one failed.

    Without an endpoint moto stands in for S3: requests are the same, times are not.
    """
    from benchmarks import environment, prediction
    from benchmarks.grids import print_grid, write_between
    from benchmarks.s3 import goals, measuring, report
    from benchmarks.s3.places import places
    from benchmarks.s3.proxy import Conditions
    from benchmarks.s3.scenarios import scenarios
    from sessions.base.signals import handled
    from sessions.planning.prices import read_prices

    console, out, data = Console(width=None if sys.stdout.isatty() else 200), made(out, "report"), made(data, "data")
    narrow, wide = NARROW.scaled(scale), WIDE.scaled(scale)
    conditions = Conditions(latency_ms / 1e3, mb_per_s * 1e6 or None)
    chosen = scenarios(names, narrow, wide, partitions, data, seed)
    with (
        handled(lambda: sys.exit(143), (SIGTERM,)),  # the bucket is removed then too
        _server(endpoint) as (url, credentials),
        places(url, credentials, conditions, tls) as there,
    ):
        plan = measuring.Plan(chosen, there, executors, repeats, data, out, timeout_s)
        measurements = list(measuring.run(plan, teller()))
        titles = [place.name for place in there]
    lines, prices = report.lines_of(measurements, titles), read_prices()
    described = {
        "environment": environment.environment(),
        "conditions": {"latency_s": conditions.latency_s, "bytes_per_s": conditions.bytes_per_s},
        "places": titles,
        "tls": tls,
        "executors": executors,
        "tables": {f"{table.name} full": _described(table) for table in (narrow, wide)},
        "scale": scale,
        "partitions": partitions,
        "repeats": repeats,
        "seed": seed,
    }
    facts = _facts(endpoint, scale, partitions, repeats)
    tables = report.grids(lines, prices.requests)
    tables.append(("Goals", goals.goals_grid(lines, titles[-1], executors[0], scale, partitions)))
    measured = report.markdown(facts, tables, lines)
    document = report.document_of(described, measurements, lines)
    models = _models(document, prices)
    report.write_report(out, document, measured + report.markdown(prediction.CAVEAT, models, ()))
    if readme:
        shown = report.markdown(facts, [("By scenario and place", report.summary(lines, titles)), tables[-1]], lines)
        write_between(report.BEGIN, shown, report.END, Path(__file__).parent.parent / "README.md")
    console.print(facts)
    for title, grid in [*tables, *models]:
        print_grid(console, title, grid)
    console.print(f"report.md and report.json are in {out}", soft_wrap=True)
    if any(line.error for line in lines):
        raise SystemExit(1)


def _models(document: dict[str, Any], prices: Prices) -> list[tuple[str, Grid]]:
    """The model's tables. None without full runs of both widths."""
    from benchmarks.prediction import model_grids, network_runs_of, runs_of_report

    try:
        return model_grids(runs_of_report(document), prices, network_runs_of(document))
    except ValueError:
        return []


@contextlib.contextmanager
def _server(endpoint: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    """A URL of S3 and credentials for it."""
    from benchmarks.s3.places import moto

    if endpoint is None:
        if not find_spec("moto"):
            raise click.UsageError("without --endpoint moto is needed: pip install 'deltacompact[bench]'")
        with moto() as url:
            yield url, _MOTO
        return
    try:
        yield endpoint, {name: os.environ[name] for name in _MOTO}
    except KeyError as error:
        raise click.UsageError(f"{error.args[0]} is not set: an endpoint needs credentials") from None


def _described(table: Configuration) -> dict[str, float]:
    return {"rows": table.rows, "row_bytes": _ROW_BYTES[table.name]}


def _facts(endpoint: str | None, scale: float, partitions: int, repeats: int) -> str:
    server = "moto, which stands in for S3: its times are its own" if endpoint is None else "an S3 server"
    scaled = "" if scale == 1 else f" Rows are scaled to {scale:g}: fixed costs weigh more than they do at full size."
    return (
        f"Measured on {server}, on the same {CORES} cores as the proxy and deltacompact; {partitions:,} partitions, "
        f"median of {repeats} interleaved repeats.{scaled}"
    )
