"""check, validate, rehash and vacuum: maintenance of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.settings import DEFAULTS, EXECUTORS, HASH_BUCKETS_MAX, Settings
from deltacompact.base.wording import counted
from deltacompact.cli.answers import (
    Failed,
    Totals,
    answer,
    answer_for_partitions,
    for_each,
    of_partition,
    say,
    say_json,
)
from deltacompact.cli.arguments import (
    any_catalog_argument,
    catalog_argument,
    json_option,
    one_partition,
    partition_option,
    table_argument,
)
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.cli.health_options import health_options
from deltacompact.cli.place import place_options
from deltacompact.cli.sections import (
    WithSections,
    delta_stream_option,
    iceberg_option,
    of_iceberg,
    refuse_health_options,
)
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.maintenance.check import CheckResult
    from deltacompact.maintenance.vacuum.vacuum import VacuumResult


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
    with thresholds, also for an Iceberg table. Beyond a threshold, the status is 4.

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


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@json_option
@click.option(
    "--by",
    type=click.Choice(["spark", "duckdb", "self"]),
    default="spark",
    show_default=True,
    help="spark: compare all rows; duckdb, self: add up fingerprints, in DuckDB or in this process.",
)
@click.option("--sql", is_flag=True, help="Print the statement that adds up the fingerprint in Spark or DuckDB.")
@verbose_option
@place_options
@iceberg_option(
    "--before",
    type=int,
    metavar="ID",
    help="The snapshot before. Default: that on which the newest compaction began.",
)
@iceberg_option("--after", type=int, metavar="ID", help="The snapshot after. Default: that of the newest compaction.")
def validate(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    partition: Sequence[str],
    branch: str,
    before: int | None,
    after: int | None,
    by: str,
    sql: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Let Spark recompute the table and compare rows and index.

    --by duckdb and --by self add up fingerprints of the rows instead, and compare them with those of compact --certify.
    For an Iceberg table, the rows of two snapshots are compared. Spark needs Java 17 or newer.

    \b
    deltacompact validate ./lake orders
    deltacompact validate iceberg://prod db.orders --by duckdb
    """
    if sql:
        return _print_statement(catalog, table, by, as_json)
    totals: Totals[Any] = Totals(_right_words, lambda report: not report.ok, Detail(verbose))
    if by != "spark":
        return _validate_fingerprints(catalog, table, partition, branch, before, after, by, as_json, totals)
    from deltacompact.spark.validate import validate as validate_table

    if of_iceberg(catalog):
        return _validate_iceberg(catalog, table, branch, before, after, as_json)
    reports = validate_table(catalog, table, partition=one_partition(catalog, table, partition))
    answer_for_partitions(
        as_json, reports, [], lambda report: of_partition(report) | {"ok": report.ok}, _say_right, totals
    )
    if any(not report.ok for report in reports):
        raise Failed(CorruptionError(f"table {table!r} does not have the rows of its deltas"))


def _say_right(report: Any) -> None:
    from deltacompact.cli.console import out

    out.print(str(report), style="" if report.ok else "red")


def _right_words(reports: Sequence[Any]) -> str:
    wrong = sum(not report.ok for report in reports)
    return f"{len(reports) - wrong:,} as they must be{f', {wrong:,} wrong' if wrong else ''}"


def _print_statement(catalog: DeltaStreamCatalog | IcebergCatalog, table: str, by: str, as_json: bool) -> None:
    from deltacompact.catalog.fingerprints import statement

    text = statement(catalog, table, by)
    return say_json({"sql": text}) if as_json else say(text)


def _validate_fingerprints(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    partition: Sequence[str],
    branch: str,
    before: int | None,
    after: int | None,
    by: str,
    as_json: bool,
    totals: Totals[Any],
) -> None:
    from deltacompact.catalog.fingerprints import FingerprintReport, branch_fingerprints, partition_fingerprints

    if of_iceberg(catalog):
        report = branch_fingerprints(catalog, table, branch, before, after, by)
        answer(as_json, report.document(), str(report))
        reports: Sequence[FingerprintReport] = [report]
    else:
        only = one_partition(catalog, table, partition)
        reports, errors = for_each(
            catalog, table, only, "adding up", lambda chosen: [partition_fingerprints(catalog, table, chosen, by)]
        )
        answer_for_partitions(as_json, reports, errors, FingerprintReport.document, _say_right, totals)
    if any(not report.ok for report in reports):
        raise Failed(CorruptionError(f"table {table!r} has other rows than its fingerprint says"))


def _validate_iceberg(
    catalog: IcebergCatalog, table: str, branch: str, before: int | None, after: int | None, as_json: bool
) -> None:
    from deltacompact.spark.iceberg import validate_snapshots

    report = validate_snapshots(catalog, table, branch, before, after)
    answer(as_json, {**dataclasses.asdict(report), "ok": report.ok}, str(report))
    if not report.ok:
        raise Failed(CorruptionError(f"snapshots {report.before} and {report.after} of {table!r} have different rows"))


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option(
    "--hash-buckets",
    type=click.IntRange(1, HASH_BUCKETS_MAX),
    required=True,
    metavar="N",
    help="The new number of hash buckets of the index.",
)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default=DEFAULTS.executor,
    show_default=True,
    help="local: in this process; ray: on a Ray cluster; auto: on Ray if the index is large.",
)
@verbose_option
@json_option
def rehash(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    hash_buckets: int,
    executor: str,
    verbose: bool,
    as_json: bool,
) -> None:
    """Move the index to another number of hash buckets. No data is read.

    \b
    deltacompact rehash ./lake orders --hash-buckets 64
    """
    from deltacompact.cli.console import out
    from deltacompact.executors.choose import executor_for
    from deltacompact.executors.executor import Executor
    from deltacompact.maintenance.check import index_entries, rehash_table

    tasks: list[Executor] = []

    def rehashed(chosen: Partition) -> list[tuple[Partition, int | None, int]]:
        entries = index_entries(catalog, table, chosen)
        if not tasks:
            tasks.append(executor_for(Settings(executor=executor), entries, 0))
        return [*rehash_table(catalog, table, hash_buckets, tasks[0], chosen)] or [(chosen, None, hash_buckets)]

    def say(done: tuple[Partition, int | None, int]) -> None:
        rehashed_partition, before, after = done
        if before is None:
            out.print(f"{rehashed_partition}: nothing to do: not compacted yet")
        elif before == after:
            out.print(f"{rehashed_partition}: nothing to do: it has {counted(before, 'hash bucket')}")
        else:
            out.print(f"{rehashed_partition}: {counted(before, 'hash bucket')}, now {after}")

    def document(done: tuple[Partition, int | None, int]) -> dict[str, Any]:
        return {"partition": dict(done[0].values), "hash_buckets_before": done[1], "hash_buckets": done[2]}

    only = one_partition(catalog, table, partition)
    done, errors = for_each(catalog, table, only, "rehashing", rehashed)

    def moved(all_done: Sequence[tuple[Partition, int | None, int]]) -> str:
        return f"{sum(before not in (None, after) for _, before, after in all_done):,} rehashed"

    totals = Totals(moved, lambda line: line[1] not in (None, line[2]), Detail(verbose))
    answer_for_partitions(as_json, done, errors, document, say, totals)


@click.command()
@catalog_argument
@table_argument
@partition_option
@click.option(
    "--older-than-hours",
    type=FiniteRange(min=0),
    default=72.0,
    show_default=True,
    metavar="HOURS",
    help="Minimum age of deleted files, counted from the compaction that dropped them.",
)
@click.option("--force", is_flag=True, help="Allow less than 72 hours. No reader, writer or compaction may run then.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("--full", is_flag=True, help="Read the whole history, not only the part since the last vacuum.")
@verbose_option
@json_option
def vacuum(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    older_than_hours: float,
    force: bool,
    dry_run: bool,
    full: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Delete files that nothing reaches any more.

    Run it once a day, and never twice at once for one table. For a published table, it first expires old snapshots of
    the Iceberg table, or old versions of the Delta table.

    \b
    deltacompact vacuum ./lake orders --dry-run
    """
    from deltacompact.cli.console import out
    from deltacompact.cli.result_report import print_vacuumed, vacuumed_words
    from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S
    from deltacompact.maintenance.vacuum.context import VacuumContext
    from deltacompact.maintenance.vacuum.vacuum import vacuum as vacuum_table

    age_min_s = older_than_hours * 3600
    if not force and not age_min_s >= VACUUM_AGE_MIN_S:
        raise InputError(
            f"--older-than-hours {older_than_hours:g} is less than {VACUUM_AGE_MIN_S // 3600}: running readers and "
            "writers could lose their files. If none is running, add --force"
        )

    def document(result: VacuumResult) -> dict[str, Any]:
        return {
            "partition": dict(result.partition.values),
            "deleted": [stat.path for stat in result.deleted],
            "bytes": result.bytes,
            "fenced_sessions": result.fenced,
            "waiting": [stat.path for stat in result.waiting],
            "dead_rows": result.dead_rows,
            "doubtful": [stat.path for stat in result.doubtful],
            "unfinished": [stat.path for stat in result.unfinished],
            "dry_run": dry_run,
        }

    held = VacuumContext(catalog, table, age_min_s, dry_run)

    def vacuumed(chosen: Partition) -> list[VacuumResult]:
        return vacuum_table(
            catalog, table, chosen, age_min_s=age_min_s, force=force, dry_run=dry_run, full=full, held=held
        )

    only = one_partition(catalog, table, partition)
    results, errors = for_each(catalog, table, only, "vacuuming", vacuumed, catalog.at_once)
    totals = Totals(vacuumed_words, lambda result: result.bytes, Detail(verbose))
    answer_for_partitions(as_json, results, errors, document, lambda result: print_vacuumed(out, result), totals)
