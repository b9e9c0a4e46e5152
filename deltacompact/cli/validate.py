"""validate: another engine recomputes a table, or adds up the fingerprint of its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import CorruptionError
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
from deltacompact.cli.arguments import any_catalog_argument, json_option, one_partition, table_argument
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.place import place_options
from deltacompact.cli.sections import WithSections, hears_only, iceberg_option, of_iceberg
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


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
        hears_only("--sql", ["--by"], "the statement is for all rows, as they are now")
        return _print_statement(catalog, table, by, as_json)
    if of_iceberg(catalog):
        snapshots = _Snapshots(branch, before, after)
        if by == "spark":
            return _compare_snapshots(catalog, table, snapshots, as_json)
        return _add_up_branch(catalog, table, snapshots, by, as_json)
    only, totals = one_partition(catalog, table, partition), Totals(_right_words, _is_wrong, Detail(verbose))
    if by == "spark":
        return _compare_streams(catalog, table, only, as_json, totals)
    return _add_up_streams(catalog, table, only, by, as_json, totals)


@dataclass(frozen=True, slots=True)
class _Snapshots:
    """The snapshots of a branch that should have the same rows. None: those around the newest compaction."""

    branch: str
    before: int | None
    after: int | None


def _compare_streams(
    catalog: DeltaStreamCatalog, table: str, only: Partition | None, as_json: bool, totals: Totals[Any]
) -> None:
    from deltacompact.spark.validate import validate as validate_table

    reports = validate_table(catalog, table, partition=only)
    answer_for_partitions(
        as_json, reports, [], lambda report: of_partition(report) | {"ok": report.ok}, _say_right, totals
    )
    if any(map(_is_wrong, reports)):
        raise Failed(CorruptionError(f"table {table!r} does not have the rows of its deltas"))


def _compare_snapshots(catalog: IcebergCatalog, table: str, of: _Snapshots, as_json: bool) -> None:
    from deltacompact.spark.iceberg import validate_snapshots

    report = validate_snapshots(catalog, table, of.branch, of.before, of.after)
    answer(as_json, {**dataclasses.asdict(report), "ok": report.ok}, str(report))
    if _is_wrong(report):
        raise Failed(CorruptionError(f"snapshots {report.before} and {report.after} of {table!r} have different rows"))


def _add_up_streams(
    catalog: DeltaStreamCatalog, table: str, only: Partition | None, by: str, as_json: bool, totals: Totals[Any]
) -> None:
    from deltacompact.catalog.fingerprints import FingerprintReport, partition_fingerprints

    reports, errors = for_each(
        catalog, table, only, "adding up", lambda chosen: [partition_fingerprints(catalog, table, chosen, by)]
    )
    answer_for_partitions(as_json, reports, errors, FingerprintReport.document, _say_right, totals)
    if any(map(_is_wrong, reports)):
        raise _other_rows(table)


def _add_up_branch(catalog: IcebergCatalog, table: str, of: _Snapshots, by: str, as_json: bool) -> None:
    from deltacompact.catalog.fingerprints import branch_fingerprints

    report = branch_fingerprints(catalog, table, of.branch, of.before, of.after, by)
    answer(as_json, report.document(), str(report))
    if _is_wrong(report):
        raise _other_rows(table)


def _other_rows(table: str) -> Failed:
    return Failed(CorruptionError(f"table {table!r} has other rows than its fingerprint says"))


def _is_wrong(report: Any) -> bool:
    return not report.ok


def _say_right(report: Any) -> None:
    from deltacompact.cli.console import out

    out.print(str(report), style="" if report.ok else "red")


def _right_words(reports: Sequence[Any]) -> str:
    wrong = sum(map(_is_wrong, reports))
    return f"{len(reports) - wrong:,} as they must be{f', {wrong:,} wrong' if wrong else ''}"


def _print_statement(catalog: DeltaStreamCatalog | IcebergCatalog, table: str, by: str, as_json: bool) -> None:
    from deltacompact.catalog.fingerprints import statement

    text = statement(catalog, table, by)
    return say_json({"sql": text}) if as_json else say(text)
