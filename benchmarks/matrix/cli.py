"""python -m benchmarks local | ec2 | job"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM
from typing import Any

import click
from rich.console import Console

from benchmarks.console import made, teller
from benchmarks.matrix.points import Matrix, Point, kept
from benchmarks.matrix.table import PRODUCERS
from sessions.planning import prices as price_table

_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class _Numbers(click.ParamType):
    """Comma-separated whole numbers; 4e6 and 16M are as good as 4000000 and 16000000."""

    name = "numbers"

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers = []
        for text in filter(None, (part.strip() for part in value.split(","))):
            unit = _UNITS.get(text[-1], 1)
            try:
                number = float(text if unit == 1 else text[:-1]) * unit
            except ValueError:
                self.fail(f"{text!r} is not a number", param, ctx)
            if number != int(number) or number < self._minimum:
                self.fail(f"{text!r} is not a whole number of at least {self._minimum}", param, ctx)
            numbers.append(int(number))
        if not numbers:
            self.fail("no number is given", param, ctx)
        return tuple(dict.fromkeys(numbers))


def _matrix_options(rows: str, hash_buckets: str, vcpus: str, payload_bytes: str) -> Callable[[Any], Any]:
    """Options of `local` and `ec2`, with these defaults."""
    folder = click.Path(file_okay=False, path_type=Path)

    def decorate(command: Any) -> Any:
        for option in (
            click.option("--rows", type=_Numbers(1_000), default=rows, show_default=True, help="Input sizes."),
            click.option(
                "--hash-buckets",
                type=_Numbers(0),
                default=hash_buckets,
                show_default=True,
                help="0: as many as figure 3-1 recommends.",
            ),
            click.option("--vcpus", type=_Numbers(1), default=vcpus, show_default=True, help="A cluster for each."),
            click.option(
                "--payload-bytes",
                type=_Numbers(0),
                default=payload_bytes,
                show_default=True,
                help="Random bytes in each row, beside 60 others. The model needs two widths.",
            ),
            click.option("--repeat", "repeats", type=click.IntRange(min=1), default=1, show_default=True),
            click.option("--producer", type=click.Choice(PRODUCERS), default="workers", show_default=True),
            click.option(
                "--worker-type", default="r6in.4xlarge", show_default=True, help="Instance type, for its price."
            ),
            click.option("--prices", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A TOML file."),
            click.option("--out", type=folder, help="Where the report goes. [default: a temporary folder]"),
            click.option("--dry-run", is_flag=True, help="Print the commands and run none of them."),
        ):
            command = option(command)
        return command

    return decorate


@click.command()
@click.option("--base", help="Folder or s3:// prefix for tables and outcomes. [default: a temporary folder]")
@_matrix_options("1M,4M", "4,16,64", "1,2", "0,1000")
def local(base: str | None, out: Path | None, **given: Any) -> None:
    """The matrix of job runs on this machine: input size x hash buckets x vCPUs, each on a Ray cluster of its own.

    Interrupted, the same command carries on: job runs whose outcome is in --base are not run again.
    """
    from benchmarks.matrix.commands import local_commands

    cores = os.cpu_count() or 1
    if max(given["vcpus"]) > cores:
        raise click.BadParameter(f"this machine has {cores} cores", param_hint="--vcpus")
    base = base or str(made(None, "matrix"))
    matrix = _matrix(given)
    commands = local_commands(matrix, base if "://" in base else str(Path(base).absolute()), given["producer"])
    _run(commands, matrix, base, given, None, made(out, "matrix-report"), given["dry_run"])


@click.command()
@click.option("--base", required=True, help="s3:// prefix for tables and outcomes, which nodes can read and write.")
@click.option("--name", default="deltacompact-bench", show_default=True, help="Of the clusters; vCPUs are appended.")
@click.option("--image", help="Docker image of benchmarks/ec2/Dockerfile, where nodes can pull it.")
@click.option("--ami", help="Machine image with Docker. [default: cluster.yaml's]")
@click.option("--region", help="[default: cluster.yaml's]")
@click.option("--instance-profile", help="Of all nodes: may use --base and start instances. [default: cluster.yaml's]")
@click.option("--head-type", default="r6in.xlarge", show_default=True)
@click.option("--spot", is_flag=True, help="Workers on spot; the head never is.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Added to every node. May be repeated.")
@_matrix_options("16M,256M", "0,64,256", "32,64,128", "0,1000")
def ec2(
    base: str,
    name: str,
    image: str | None,
    ami: str | None,
    region: str | None,
    instance_profile: str | None,
    head_type: str,
    spot: bool,
    tags: tuple[str, ...],
    out: Path | None,
    **given: Any,
) -> None:
    """The matrix on EC2, by Ray's cluster launcher: up, data, job runs, down, report. It costs money; see --dry-run.

    A cluster is brought down whatever happens, Ctrl-C too. Interrupted, the same command carries on.
    """
    from benchmarks.matrix.cluster import ClusterSpec, render, text_of
    from benchmarks.matrix.commands import ec2_commands

    if not base.startswith("s3://"):
        raise click.BadParameter(f"{base!r} is no s3:// prefix: nodes could not reach it", param_hint="--base")
    if wrong := [tag for tag in tags if not tag.partition("=")[1]]:
        raise click.BadParameter(f"{wrong[0]!r} is not KEY=VALUE", param_hint="--tag")
    matrix, table = _matrix(given), _prices(given)
    worker, head = _instance(table, given["worker_type"]), _instance(table, head_type)
    out = made(out, "matrix-report")
    files = {}
    for vcpus in matrix.vcpus:
        given_tags = tuple((key, value) for key, _, value in (tag.partition("=") for tag in tags))
        spec = ClusterSpec(
            f"{name}-{vcpus}", vcpus, worker, head, spot, image, region, instance_profile, ami, given_tags
        )
        files[vcpus] = out / f"{spec.name}.yaml"
        files[vcpus].write_text(text_of(render(spec)))
    commands = ec2_commands(matrix, base, given["producer"], files)
    _run(commands, matrix, base, given, head_type, out, given["dry_run"])


@click.command()
@click.option("--base", required=True, help="Folder or s3:// prefix for tables and outcomes.")
@click.option("--rows", type=click.IntRange(min=1_000), required=True)
@click.option("--payload-bytes", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--hash-buckets", type=click.IntRange(min=0), default=0, help="0: as many as figure 3-1 recommends.")
@click.option("--vcpus", type=click.IntRange(min=1), required=True, help="Of the cluster; it is waited for.")
@click.option("--repeat", type=click.IntRange(min=0), default=0, help="Number of this attempt.")
@click.option("--producer", type=click.Choice(PRODUCERS), default="workers", show_default=True)
@click.option(
    "--here", is_flag=True, help="Start a cluster of so many vCPUs on this machine; else join the running one."
)
def job(
    base: str, rows: int, payload_bytes: int, hash_buckets: int, vcpus: int, repeat: int, producer: str, here: bool
) -> None:
    """One job run of the matrix, on a cluster's head: the table, unless it is there; a compaction; a check."""
    from benchmarks.matrix.job import Job, run_job

    point = Point(vcpus, payload_bytes, rows, hash_buckets)
    run = run_job(Job(base, point, repeat, producer, here), teller())
    print(f"{point.name} r{repeat}: {run.error or f'{run.seconds:.2f} s, {run.rows_per_s_core:,.0f} rows/s-core'}")
    if run.error:
        raise SystemExit(1)


def _run(
    commands: Any, matrix: Matrix, base: str, given: dict[str, Any], head_type: str | None, out: Path, dry_run: bool
) -> None:
    """Print the commands, or run them and write the report of what is there, even after an interruption."""
    if dry_run:
        for cluster in commands:
            for argv in cluster:
                print(shlex.join(argv))
        return
    try:
        from benchmarks.matrix.report import success_rate, write_matrix_report
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'deltacompact[bench]'") from error
    from benchmarks import environment
    from benchmarks.grids import print_grid
    from benchmarks.matrix.commands import LeftRunning, run_all
    from deltacompact.storage.opening import open_store
    from sessions.base.signals import handled

    table = _prices(given)
    worker, head = _instance(table, given["worker_type"]), _instance(table, head_type) if head_type else None
    left: LeftRunning | None = None
    try:
        with handled(_interrupt, (SIGTERM,)):
            run_all(commands, base, teller())
    except LeftRunning as error:
        left = error
    except KeyboardInterrupt:
        print("interrupted: the same command carries on", file=sys.stderr)
    asked = {point for vcpus in matrix.vcpus for point in matrix.points(vcpus)}
    runs = [run for run in kept(open_store(base)) if run.point in asked]
    facts = {"environment": environment.environment()}
    grid = write_matrix_report(runs, table, worker, head, facts, out)
    console = Console(width=None if sys.stdout.isatty() else 200)
    print_grid(console, success_rate(runs), grid)
    console.print(f"report.md, report.json and figures are in {out}", soft_wrap=True)
    if left:
        raise click.ClickException(str(left))
    if len([run for run in runs if run.error is None]) < len(asked) * matrix.repeats:
        raise SystemExit(1)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _matrix(given: dict[str, Any]) -> Matrix:
    return Matrix(given["rows"], given["hash_buckets"], given["vcpus"], given["payload_bytes"], given["repeats"])


def _prices(given: dict[str, Any]) -> price_table.Prices:
    try:
        return price_table.read_prices(given["prices"] or price_table.DEFAULT)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--prices") from error


def _instance(table: price_table.Prices, name: str) -> price_table.NodeType:
    try:
        return table.node(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
