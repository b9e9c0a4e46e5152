"""check: whether log, files and index of a table fit together, and whether readers can be content with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import Failed, Totals, answer, answer_for_partitions, for_each, of_partition
from deltacompact.cli.arguments import any_catalog_argument, json_option, one_partition, table_argument
from deltacompact.cli.health_options import health_options
from deltacompact.cli.place import place_options
from deltacompact.cli.sections import WithSections, delta_stream_option, of_iceberg, refuse_health_options
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.maintenance.check import CheckResult


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@place_options
@delta_stream_option("--quick", is_flag=True, help="Do not read the rows: decode no column, compare no digests.")
@click.option(
    "--readable-by",
    multiple=True,
    metavar="ENGINE",
    help="Say what keeps an engine from reading the table: athena, databricks, duckdb, polars, pyiceberg, snowflake, "
    "spark or trino; repeatable. For a delta stream: its publication, or else its compacted files.",
)
@health_options
@json_option
def check(
    catalog: DeltaStreamCatalog | IcebergCatalog, table: str, partition: Sequence[str], quick: bool, **options: Any
) -> None:
    """Verify log, files and index of a table. Nothing is repaired.

    Unless --quick, every column of every live file is decoded, a batch at a time. For an Iceberg table, rows are
    compared with the bounds by which readers skip files. With --health, no file is read: counts and ages are compared
    with thresholds, also for an Iceberg table. Beyond a threshold, or where an engine of --readable-by cannot read the
    table, the status is 4.

    \b
    deltacompact check ./lake orders --quick
    deltacompact check ./lake orders --health --max-age-hours 6 --plot health.svg
    deltacompact check iceberg://prod db.orders --health
    deltacompact check iceberg://prod db.orders --readable-by snowflake --readable-by trino
    """
    from deltacompact.cli import readable_by

    if options["health"]:
        from deltacompact.cli import health

        if quick:
            raise InputError("--health reads no row: leave --quick out")
        if options["readable_by"]:
            raise InputError("--health and --readable-by are two questions: ask one at a time")
        return health.run(catalog, table, partition, options)
    refuse_health_options()
    engines, as_json = options["readable_by"], options["as_json"]
    if of_iceberg(catalog):
        if engines:
            return readable_by.answer_for(
                table, catalog.table(table).check(options["branch"], readable_by=engines), as_json
            )
        return _verify_branch(catalog, table, options["branch"], as_json)
    detail = Detail(options["verbose"])
    if engines:
        if quick:
            raise InputError("--readable-by reads no row: leave --quick out")
        only = one_partition(catalog, table, partition)
        return readable_by.answer_for(table, catalog.table(table).check(only, readable_by=engines), as_json)
    _verify(catalog, table, partition, quick, as_json, detail)


def _verify_branch(catalog: IcebergCatalog, table: str, branch: str, as_json: bool) -> None:
    found = catalog.table(table).check(branch)
    sound = f"{table}: sound; {counted(found.files, 'data file')}, {counted(found.rows, 'row')}"
    answer(as_json, dataclasses.asdict(found), *(found.problems or [sound]))
    if found.problems:
        raise Failed(CorruptionError(f"table {table!r}: {counted(len(found.problems), 'problem')}"))


def _verify(
    catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], quick: bool, as_json: bool, detail: Detail
) -> None:
    from deltacompact.cli.console import out
    from deltacompact.maintenance.check import check as check_table

    def say(result: CheckResult) -> None:
        for problem in result.problems:
            out.print(f"{result.partition}: {problem}", style="red")
        if not result.problems:
            out.print(str(result))

    only = one_partition(catalog, table, partition)
    # One at a time: threads that decode a partition to its end would outlive Ctrl-C.
    results, errors = for_each(
        catalog, table, only, "checking", lambda chosen: check_table(catalog, table, chosen, quick=quick)
    )
    totals = Totals(_checked_words, lambda result: len(result.problems), detail)
    answer_for_partitions(as_json, results, errors, of_partition, say, totals)
    if broken := sum(bool(result.problems) for result in results):
        raise Failed(CorruptionError(f"table {table!r}: {broken} of {len(results)} partitions are not sound"))


def _checked_words(results: Sequence[CheckResult]) -> str:
    broken = sum(bool(result.problems) for result in results)
    files, rows = sum(result.files for result in results), sum(result.rows for result in results)
    verdict = f"{len(results) - broken:,} sound{f', {broken:,} not sound' if broken else ''}"
    return f"{verdict}; {counted(files, 'file')}, {counted(rows, 'compacted row')}"
