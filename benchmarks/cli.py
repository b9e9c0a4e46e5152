"""python -m benchmarks run | tpch | lhbench | duckrun | memory | sla | s3 | iceberg | driver | local | ec2 | job

`layout`, `layouts` and `appends` say what readers open. `following` lets others delete rows during a rewrite, `model`
predicts, `kernels` measures the Rust kernels' rates.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from benchmarks import data as synthetic
from benchmarks import tpch as tpc_h
from benchmarks.changes import changes
from benchmarks.competitors import GROUPS, entrants
from benchmarks.configurations import CONFIGURATIONS, DUCKRUN, LHBENCH, OURS, Case
from benchmarks.console import made, names_among, teller
from benchmarks.driver.cli import driver
from benchmarks.iceberg.cli import following, iceberg
from benchmarks.layout_cli import appends, layout, layouts
from benchmarks.matrix import cli as matrix_cli
from benchmarks.s3.cli import s3

if TYPE_CHECKING:
    from benchmarks.summary import Line

EXECUTORS = ("ray", "local", "auto")
README = Path(__file__).parent / "README.md"


def _common(command: Any) -> Any:
    """Options of everything that makes files."""
    folder = click.Path(file_okay=False, path_type=Path)
    for option in (
        click.option("--seed", default=1, show_default=True, help="Of the data."),
        click.option("--data", type=folder, help="Where files are made once and kept. [default: a temporary folder]"),
        click.option("--out", type=folder, help="Where the report goes. [default: a temporary folder]"),
        click.option("--timeout", "timeout_s", default=3600.0, show_default=True, help="Seconds for one process."),
    ):
        command = option(command)
    return command


def _competing(*groups: str) -> Any:
    """Options of everything that measures competitors, and those above."""

    def decorate(command: Any) -> Any:
        listed, known = ",".join(groups), names_among(groups)
        for option in (
            click.option("--repeat", "repeats", type=click.IntRange(min=1), default=3, show_default=True),
            click.option(
                "--executor", "executors", default="ray,local", callback=names_among(EXECUTORS), show_default=True
            ),
            click.option("--only", default=listed, callback=known, show_default=True, help="Competitors."),
        ):
            command = option(command)
        return _common(command)

    return decorate


def _of_cases(*cases: str) -> Any:
    return click.option("--case", "cases", default=",".join(cases), callback=names_among(cases), show_default=True)


def _shares(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[float, ...]:
    return tuple(_SHARE.convert(share, _parameter, _context) for share in text.split(","))


_SHARE = click.FloatRange(min=0, max=0.5, min_open=True)
_SCALE = click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Of the rows.")


@click.group()
def main() -> None:
    """Measure deltacompact beside its peers."""


@main.command()
@click.option("--config", "configuration", type=click.Choice([*CONFIGURATIONS, "all"]), default="all")
@_of_cases(*OURS)
@click.option(
    "--share",
    type=_SHARE,
    default=0.01,
    show_default=True,
    help="Delta rows of the incremental cases, of the table's.",
)
@_SCALE
@_competing(*GROUPS)
def run(
    configuration: str,
    cases: tuple[str, ...],
    share: float,
    scale: float,
    **measuring: Any,
) -> None:
    """Compactions, full and incremental, one competitor after another. Exit status 1 where one failed or was wrong."""
    from benchmarks import plots

    chosen = tuple(CONFIGURATIONS) if configuration == "all" else (configuration,)
    tables = tuple(CONFIGURATIONS[name].scaled(scale).sharing(share) for name in chosen)
    _measure(tables, cases, synthetic.inputs_of, plots.draw_all, {"scale": scale}, **measuring)


@main.command()
@click.option(
    "--table", "tables", default=",".join(tpc_h.TABLES), callback=names_among(tuple(tpc_h.TABLES)), show_default=True
)
@_of_cases(*tpc_h.CASES)
@click.option(
    "--scale-factor", type=click.FloatRange(min=0.001), default=1.0, show_default=True, help="TPC-H's: 1 is 1 GB."
)
@click.option(
    "--refreshes",
    type=click.IntRange(1, tpc_h.STREAMS_MAX),
    default=10,
    show_default=True,
    help="Streams, each RF1 and RF2.",
)
@_competing(*GROUPS)
def tpch(
    tables: tuple[str, ...], cases: tuple[str, ...], scale_factor: float, refreshes: int, **measuring: Any
) -> None:
    """TPC-H's lineitem and orders with their refresh streams as upserts and deletes. Exit status as that of `run`.

    `full`: nothing compacted before. `refresh`: the table compacted before. `status`, which is not of TPC-H: the same,
    with orders that change their status instead of streams.
    """
    from benchmarks import plots

    chosen = tuple(tpc_h.TpchTable(table, scale_factor, refreshes) for table in tables)
    _measure(
        chosen, cases, tpc_h.inputs_of, plots.draw_all, {"scale": scale_factor, "refreshes": refreshes}, **measuring
    )


@main.command()
@click.option(
    "--shares",
    default="0.0001,0.001,0.01,0.1",
    callback=_shares,
    show_default=True,
    help="Changed rows, of the table's.",
)
@_SCALE
@_competing("floor", "deltacompact", "delta-rs")
def lhbench(shares: tuple[float, ...], scale: float, **measuring: Any) -> None:
    """LHBench's merge: rows of which half update and half are new, by their share. Exit status as that of `run`."""
    from benchmarks import plots

    tables = tuple(LHBENCH.scaled(scale).sharing(share) for share in shares)
    by_name = {table.name: table.delta_share for table in tables}
    draw = partial(plots.draw_sweep, shares=by_name)
    _measure(tables, (Case.MERGE,), synthetic.inputs_of, draw, {"scale": scale}, **measuring)


@main.command()
@_of_cases(*sorted(DUCKRUN))
@click.option("--scale-factor", type=click.FloatRange(min=0.001), default=10.0, show_default=True, help="TPC-H's.")
@click.option("--readme", is_flag=True, help="Write the tables into benchmarks/README.md.")
@_competing("floor", "deltacompact", "iceberg", "duckdb", "delta-rs")
def duckrun(cases: tuple[str, ...], scale_factor: float, readme: bool, **measuring: Any) -> None:
    """duckrun's merge suite on TPC-H's lineitem. Exit status as that of `run`."""
    from benchmarks import duckrun as suite
    from benchmarks import merges, plots
    from benchmarks.grids import write_between

    table = suite.DuckrunTable(scale_factor)
    lines = _measure((table,), cases, suite.inputs_of, plots.draw_all, {"scale": scale_factor}, **measuring)
    text = merges.tables(lines)
    click.echo(text)
    if readme:
        write_between(merges.BEGIN, text, merges.END, README)


def _measure(
    tables: tuple[Any, ...],
    cases: tuple[str, ...],
    inputs_of: Callable[..., Any],
    draw: Callable[..., list[Any]],
    described: dict[str, Any],
    *,
    only: tuple[str, ...],
    executors: tuple[str, ...],
    repeats: int,
    seed: int,
    data: Path | None,
    out: Path | None,
    timeout_s: float,
) -> Sequence[Line]:
    """Run, report, and end the process with 1 where something failed or was wrong. Returns the lines of the report."""
    from benchmarks import environment, report, runner, summary

    console, out = Console(width=None if sys.stdout.isatty() else 160), made(out, "report")
    chosen = tuple(Case(case) for case in cases)
    entering = tuple(entrants(only, executors))
    plan = runner.Plan(tables, inputs_of, chosen, entering, repeats, seed, made(data, "data"), out, timeout_s)
    measurements = list(runner.run(plan, teller()))
    lines = summary.summarise(measurements)
    described = {"environment": environment.environment(), **described, "repeats": repeats, "seed": seed}
    report.write_report(out, described, measurements, lines, draw(lines, out=out))
    report.print_tables(console, lines)
    console.print(f"report.md, report.json and plots are in {out}", soft_wrap=True)
    if any(measurement.error for measurement in measurements):
        raise SystemExit(1)
    return lines


@main.command()
@click.option("--executor", type=click.Choice(EXECUTORS), default="ray", show_default=True)
@click.option("--object-store-mb", type=click.IntRange(min=1), default=256, show_default=True, help="10^6 bytes.")
@click.option("--task-mb", type=click.IntRange(min=1), help="What a task is planned for. Default: as the machine has.")
@_SCALE
@_common
def memory(
    executor: str,
    object_store_mb: int,
    task_mb: int | None,
    scale: float,
    seed: int,
    data: Path | None,
    out: Path | None,
    timeout_s: float,
) -> None:
    """A table larger than the object store given to it, in several rounds: planned memory beside measured."""
    from benchmarks.memory import MemoryPlan, run_memory

    store_bytes = object_store_mb * 1_000_000
    task_bytes = None if task_mb is None else task_mb * 1_000_000
    plan = MemoryPlan(
        scale, executor, store_bytes, task_bytes, seed, made(data, "data"), made(out, "report"), timeout_s
    )
    if not run_memory(plan, Console(), teller()):
        raise SystemExit(1)


@main.command()
@click.option("--sessions", "count", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--readme", is_flag=True, help="Write the table into benchmarks/README.md.")
@click.option("--seed", default=1, show_default=True, help="Of the tables.")
@click.option("--large", is_flag=True, help="Most sessions take 5 to 60 s of CPU.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where sla.md and sla.json go.")
@_SCALE
def sla(count: int, readme: bool, seed: int, large: bool, out: Path | None, scale: float) -> None:
    """Expected against actual duration of sessions of many sizes, learning from each."""
    from tempfile import TemporaryDirectory

    from rich.markdown import Markdown

    from benchmarks import environment
    from benchmarks import sla as expected
    from benchmarks.grids import write_between
    from benchmarks.sla_tables import ALL_SIZES, LARGE

    if large and readme:
        raise click.UsageError("--readme takes the sessions of all sizes: leave --large out")
    console, tell, out = Console(width=None if sys.stdout.isatty() else 160), teller(), made(out, "report")
    sizes = LARGE if large else ALL_SIZES
    ran: list[expected.Ran] = []
    # After Ctrl-C the report is about the sessions that ran.
    with suppress(KeyboardInterrupt), TemporaryDirectory(prefix="deltacompact-sla-") as folder:
        for session in expected.run(count, seed, sizes, scale, Path(folder)):
            ran.append(session)
            cpu, wall = session.cpu, session.wall
            tell(
                f"{len(ran)}/{count} {session.table} {session.kind} {session.number}: "
                f"{cpu.expected.seconds:.2f} CPU s expected, {cpu.expected.promise_s:.2f} promised, {cpu.took:.2f} "
                f"taken; {wall.expected.seconds:.2f} s, {wall.expected.promise_s:.2f}, {wall.took:.2f}"
            )
    if not ran:
        raise click.Abort
    described = {"environment": environment.environment(), "scale": scale, "seed": seed, "large": large}
    text = expected.write_report(ran, out, described)
    if readme:
        write_between(expected.BEGIN, text, expected.END, README)
    console.print(Markdown(text))
    console.print(f"sla.md and sla.json are in {out}", soft_wrap=True)


@main.command()
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--prices", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A TOML file.")
def model(report: Path, prices: Path | None) -> None:
    """Predict compactions of 1 TiB to 1 PiB from a REPORT (report.json of `run`, `local`, `ec2` or `s3`).

    It says how wrong the model is on the runs in the report. That of `s3` adds what waiting for S3 costs.
    """
    from benchmarks.grids import print_grid
    from benchmarks.prediction import CAVEAT, model_grids, network_runs_of, runs_of_report
    from sessions.planning.prices import DEFAULT, read_prices

    console = Console(width=None if sys.stdout.isatty() else 200)
    try:
        document = json.loads(report.read_text())
        grids = model_grids(runs_of_report(document), read_prices(prices or DEFAULT), network_runs_of(document))
    except (KeyError, ValueError) as error:
        raise click.ClickException(f"{report}: {error}") from error
    for title, grid in grids:
        print_grid(console, title, grid)
    console.print(CAVEAT, style="dim")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kernels(arguments: tuple[str, ...]) -> None:
    """Rates of the kernels on one core (pytest-benchmark; ARGUMENTS are handed on)."""
    home = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", str(home / "test_kernels_bench.py"), "--benchmark-only", *arguments]
    raise SystemExit(subprocess.call(command, cwd=home.parent))


for _command in (
    s3,
    iceberg,
    changes,
    following,
    layout,
    layouts,
    appends,
    driver,
    matrix_cli.local,
    matrix_cli.ec2,
    matrix_cli.job,
):
    main.add_command(_command)
