"""plan and compact: say what a compaction would do, and run it."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.cli import iceberg
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.arguments import partition_list, price_option, sort_keys_of
from deltacompact.cli.compaction_options import compaction_options
from deltacompact.cli.detail import detail_of
from deltacompact.cli.health_options import NEEDS_PLOT
from deltacompact.cli.iceberg import iceberg_options
from deltacompact.cli.iceberg_options import option_sections
from deltacompact.cli.sections import WithSections, delta_stream_option, iceberg_option, of_iceberg
from deltacompact.iceberg_modes.modes import names

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.job import Request


@click.command(cls=WithSections, says=lambda: option_sections(names()))
@compaction_options
@iceberg_options
@iceberg_option("--out", metavar="PLAN.json", help="Write the plan to a file, for compact --from-plan.")
@price_option("Say what the plan is expected to cost.")
@click.option("--plot", metavar="FILE.svg", help=f"Draw files and bytes, before and after. {NEEDS_PLOT}")
def plan(catalog: DeltaStreamCatalog | IcebergCatalog, table: str, **options: Any) -> None:
    """Say what a compaction would do, why, and what it needs. Changes nothing.

    \b
    deltacompact plan ./lake orders
    deltacompact plan iceberg://prod db.orders --out plan.json
    """
    if of_iceberg(catalog):
        return iceberg.print_plan(catalog, table, options)
    from deltacompact.cli.console import out
    from deltacompact.reports.plan_report import plan_report, print_plans
    from deltacompact.reports.plots import draw_plans

    shown = plan_report(catalog, _request(table, options), options["usd_per_core_hour"])
    draw_plans(options["plot"], shown)
    if options["as_json"]:
        say_json(shown.document)
    else:
        print_plans(out, shown, detail_of(options))
    if shown.errors:
        raise Failed(shown.errors[0])


@click.command(cls=WithSections, says=lambda: option_sections(names()))
@compaction_options
@delta_stream_option("--sns-topic", metavar="ARN", help="Send the start, the rounds and the end to this SNS topic.")
@delta_stream_option(
    "--sla", type=click.IntRange(min=1), metavar="SECONDS", help="The desired SLA to send with these events."
)
@iceberg_options
@iceberg_option("--from-plan", metavar="PLAN.json", help="Carry out a plan that `plan --out` wrote.")
def compact(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    sla: int | None,
    sns_topic: str | None,
    **options: Any,
) -> None:
    """Fold the deltas of a table: one live row per key. After an interruption, the same command resumes.

    For an Iceberg table, --mode says what is done. By default, files are rewritten with all deletes applied.

    \b
    deltacompact compact ./lake orders
    deltacompact compact ./lake orders --partition day=1995-04-03 --executor local
    deltacompact compact iceberg://prod db.orders --mode rewrite --option delete-file-threshold=1
    """
    if of_iceberg(catalog):
        return iceberg.run(catalog, table, options)
    from deltacompact.arguments import topic_sinks
    from deltacompact.cli.progress import progress_unless
    from deltacompact.cli.result_report import print_result, result_document
    from deltacompact.running import compact_job

    as_json, began = options["as_json"], time.perf_counter()
    request = _request(table, options)
    with progress_unless(as_json) as sink:
        try:
            result = compact_job(catalog, request, [sink, *topic_sinks(sns_topic, sla)])
        except Exception as error:
            if not hasattr(error, "result"):  # no session was run
                raise
            result = error.result
    if as_json:
        say_json(result_document(result))
    else:
        from deltacompact.cli.console import out

        print_result(out, result, time.perf_counter() - began, detail_of(options))
    if result.errors:
        raise Failed(result.errors[0])


def _request(table: str, options: dict[str, Any]) -> Request:
    """The request of a command line's options."""
    from deltacompact.arguments import request_of

    if options["destination"] == "":
        raise InputError("--destination is empty: name a table")
    chosen = {field.name: options[field.name] for field in fields(Settings) if field.name in options}
    return request_of(
        table,
        options["primary_key"] or None,
        sort_keys_of(options["sort_key"]) or None,
        options["destination"],
        rows_per_compacted_file=options["rows_per_compacted_file"],
        hash_bucket_count=options["hash_bucket_count"],
        compacted_file_content_type=options["content_type"],
        partitions=partition_list(options["partition"]),
        settings=Settings(limits=click.get_current_context().obj, **chosen),
        purge=options["purge"],
        cluster_by=options["cluster_by"],
    )
