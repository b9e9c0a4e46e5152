"""vacuum: files that nothing reaches any more are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.cli.answers import Totals, answer_for_partitions, for_each
from deltacompact.cli.arguments import catalog_argument, json_option, one_partition, partition_option, table_argument
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.maintenance.vacuum.vacuum import VacuumResult


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
    from deltacompact.maintenance.vacuum.vacuum import vacuumed

    age_min_s = older_than_hours * 3600
    if not force and age_min_s < VACUUM_AGE_MIN_S:
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
            "held": [stat.path for stat in result.held],
            "retracted": [stat.path for stat in result.retracted],
            "dead_rows": result.dead_rows,
            "doubtful": [stat.path for stat in result.doubtful],
            "unfinished": [stat.path for stat in result.unfinished],
            "dry_run": dry_run,
        }

    context = VacuumContext(catalog, table, age_min_s, dry_run)
    only = one_partition(catalog, table, partition)
    results, errors = for_each(
        catalog, table, only, "vacuuming", lambda chosen: [vacuumed(context, chosen, full)], catalog.at_once
    )
    totals = Totals(vacuumed_words, lambda result: result.bytes, Detail(verbose))
    answer_for_partitions(as_json, results, errors, document, lambda result: print_vacuumed(out, result), totals)
