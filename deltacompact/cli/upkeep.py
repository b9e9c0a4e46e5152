"""check, validate, rehash and vacuum: looking after a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click

from deltacompact.catalog.delta_stream import DeltaStreamCatalog
from deltacompact.cli.arguments import (
    catalog_argument,
    json_option,
    one_partition,
    out,
    partition_option,
    say_json,
    table_argument,
)
from deltacompact.settings import EXECUTORS, Settings
from deltacompact.wording import counted


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option("--quick", is_flag=True, help="Do not read the data: leave out the digests of the compacted rows.")
@json_option
def check(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], quick: bool, as_json: bool) -> None:
    """Verify log, files and index of a table."""
    from deltacompact.errors import CorruptionError
    from deltacompact.maintenance import check as check_table

    results = check_table(catalog, table, one_partition(catalog, table, partition), quick=quick)
    if as_json:
        say_json([{**dataclasses.asdict(each), "partition": dict(each.partition.values)} for each in results])
    for each in results if not as_json else ():
        if each.problems:
            for problem in each.problems:
                out.print(f"{each.partition}: {problem}", style="red", markup=False)
        else:
            out.print(
                f"{each.partition}: sound; {counted(each.versions, 'version')}, {counted(each.files, 'file')}, "
                f"{counted(each.rows, 'compacted row')}, {counted(each.index_entries, 'index entry', 'index entries')}"
            )
    if broken := sum(bool(each.problems) for each in results):
        raise CorruptionError(f"table {table!r}: {broken} of {len(results)} partitions are not sound")


@click.command()
@catalog_argument
@table_argument
@partition_option
def validate(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str]) -> None:
    """Let Spark recompute the table from its deltas and compare rows and index."""
    from deltacompact.errors import CorruptionError
    from deltacompact.spark.validate import validate as validate_table

    reports = validate_table(catalog, table, partition=one_partition(catalog, table, partition))
    for report in reports:
        out.print(str(report), style="" if report.ok else "red", markup=False)
    if any(not report.ok for report in reports):
        raise CorruptionError(f"table {table!r} is not what its deltas say")


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option("--hash-buckets", type=click.IntRange(min=1), required=True, metavar="N")
@click.option("--executor", type=click.Choice(EXECUTORS), default="auto", show_default=True)
def rehash(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], hash_buckets: int, executor: str) -> None:
    """Move the index to another number of hash buckets, without reading data."""
    from deltacompact.executors.choose import executor_for
    from deltacompact.maintenance import index_entries, rehash_table

    chosen = one_partition(catalog, table, partition)
    tasks = executor_for(Settings(executor=executor), index_entries(catalog, table, chosen), 0)
    done = rehash_table(catalog, table, hash_buckets, tasks, chosen)
    for place, before, after in done:
        out.print(f"{place}: {counted(before, 'hash bucket')}, now {after}")
    if not done:
        out.print(f"nothing to do: no partition of {table} was compacted yet")


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option(
    "--older-than-hours",
    type=click.FloatRange(min=0),
    default=72.0,
    show_default=True,
    help="Minimum age, counted from the compaction that dropped a file.",
)
@click.option("--force", is_flag=True, help="Allow less than 72 hours: no reader, writer or compaction may run.")
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@json_option
def vacuum(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    older_than_hours: float,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete files that nothing reaches any more."""
    from deltacompact.catalog.vacuum import vacuum as vacuum_table
    from deltacompact.report import print_vacuumed

    results = vacuum_table(
        catalog,
        table,
        one_partition(catalog, table, partition),
        age_min_s=older_than_hours * 3600,
        force=force,
        dry_run=dry_run,
    )
    if as_json:
        say_json(
            [
                {
                    "partition": dict(each.partition.values),
                    "deleted": [stat.path for stat in each.deleted],
                    "bytes": each.bytes,
                    "fenced_sessions": each.fenced,
                    "waiting": [stat.path for stat in each.waiting],
                    "dead_rows": each.dead_rows,
                    "dry_run": dry_run,
                }
                for each in results
            ]
        )
    for each in results if not as_json else ():
        print_vacuumed(out, each, dry_run)
