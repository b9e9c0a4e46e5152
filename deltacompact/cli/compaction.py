"""plan and compact: say what a compaction would do, and run it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.base.settings import COUNT_MAX, DEFAULTS, EXECUTORS, HASH_BUCKETS_MAX, Options
from deltacompact.cli import iceberg
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.arguments import any_catalog_argument, json_option, partition_list, sort_keys_of, table_argument
from deltacompact.cli.iceberg import iceberg_options, refuse_iceberg_options

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
    from deltacompact.catalog.iceberg.catalog import IcebergCatalog
    from deltacompact.job import Request

RATE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(1, COUNT_MAX)


def field_option(flag: str, name: str, **shown: Any) -> Callable[..., Any]:
    """An option for a field of Options, with the field's default."""
    default = getattr(DEFAULTS, name)
    return click.option(flag, name, default=default, show_default=default is not None, **shown)


def compaction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that plan and compact share."""
    options = (
        any_catalog_argument,
        table_argument,
        click.option("--primary-key", multiple=True, metavar="NAME", help="Needed where none was declared."),
        click.option("--sort-key", multiple=True, metavar="NAME[:descending]", help="Custom sort keys, in order."),
        click.option("--destination", metavar="TABLE", help="Write to another table; default: in place."),
        click.option(
            "--partition",
            "partition",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only this partition; a repeated NAME begins another one. Default: all.",
        ),
        field_option(
            "--hash-buckets",
            "hash_bucket_count",
            type=click.IntRange(1, HASH_BUCKETS_MAX),
            metavar="N",
            help="Hash buckets of the index.",
        ),
        field_option(
            "--rows-per-file",
            "rows_per_compacted_file",
            type=COUNT,
            metavar="N",
            help="Maximum rows of a compacted file.",
        ),
        field_option(
            "--rewrite-dead-fraction",
            "rewrite_dead_fraction",
            type=click.FloatRange(0, 1),
            metavar="SHARE",
            help="A compacted file with a smaller share of dead rows stays, with a deletion vector.",
        ),
        field_option(
            "--rows-per-round", "rows_per_round", type=COUNT, metavar="N", help="Default: what memory allows."
        ),
        field_option("--executor", "executor", type=click.Choice(EXECUTORS), help="auto: Ray if large."),
        field_option(
            "--ray-cpus",
            "ray_cpus",
            type=click.IntRange(min=1),
            metavar="N",
            help="Wait until the cluster has N CPUs.",
        ),
        field_option(
            "--partitions-at-once",
            "partitions_at_once",
            type=click.IntRange(min=1),
            metavar="N",
            help="Default: as many as memory admits.",
        ),
        field_option(
            "--concurrent-tasks",
            "concurrent_tasks",
            type=click.IntRange(min=1),
            metavar="N",
            help="Default: one for each CPU.",
        ),
        field_option(
            "--read-mb-per-s", "read_mb_per_s", type=RATE, metavar="MB", help="All tasks together. Default: no limit."
        ),
        field_option(
            "--write-mb-per-s", "write_mb_per_s", type=RATE, metavar="MB", help="All tasks together. Default: no limit."
        ),
        field_option(
            "--requests-per-s", "requests_per_s", type=RATE, metavar="N", help="Of the store. Default: no limit."
        ),
        json_option,
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command()
@compaction_options
@iceberg_options
@click.option("--out", metavar="PLAN.json", help="Iceberg: write the plan to a file, for compact --from-plan.")
@click.option("--usd-per-core-hour", type=RATE, metavar="USD", help="Iceberg: tell what the plan is expected to cost.")
def plan(catalog: DeltaStreamCatalog | IcebergCatalog, table: str, **options: Any) -> None:
    """Say what a compaction would do, why, and what it needs. Changes nothing.

    \b
    deltacompact plan ./lake orders
    deltacompact plan iceberg://prod db.orders --out plan.json
    """
    from deltacompact.catalog.opening import is_iceberg_catalog

    if is_iceberg_catalog(catalog):
        return iceberg.print_plan(catalog, table, options)
    refuse_iceberg_options()
    from deltacompact.cli.console import out
    from deltacompact.cli.plan_report import plan_report, print_plans

    shown = plan_report(catalog, _request(table, options))
    if options["as_json"]:
        say_json(shown.document)
    else:
        print_plans(out, shown.document)
    if shown.errors:
        raise Failed(shown.errors[0])


@click.command()
@compaction_options
@iceberg_options
@click.option("--from-plan", metavar="PLAN.json", help="Iceberg: carry out a plan that `plan --out` wrote.")
@click.option("--sla", type=click.IntRange(min=1), metavar="SECONDS", help="Desired SLA; sent with the events.")
@click.option("--sns-topic", metavar="ARN", help="Publish start, rounds and end to this SNS topic.")
@field_option("--purge", "purge", is_flag=True, help="Rewrite every file that has dead rows; vacuum afterwards.")
@click.option(
    "--content-type",
    type=click.Choice(["parquet", "feather", "orc", "csv"]),
    default=DEFAULTS.content_type.name.lower(),
    show_default=True,
    help="Format of compacted files.",
)
def compact(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    sla: int | None,
    sns_topic: str | None,
    content_type: str,
    **options: Any,
) -> None:
    """Fold the deltas of a table: one live row per key. After an interruption, the same command resumes.

    \b
    deltacompact compact ./lake orders
    deltacompact compact ./lake orders --partition day=1995-04-03 --executor local
    deltacompact compact iceberg://prod db.orders --mode rewrite --option delete-file-threshold=1
    """
    from deltacompact.catalog.opening import is_iceberg_catalog

    if is_iceberg_catalog(catalog):
        return iceberg.run(catalog, table, options)
    refuse_iceberg_options()
    from rich.console import Console

    from deltacompact.cli.console import err, out
    from deltacompact.cli.progress import progress
    from deltacompact.cli.result_report import print_result, result_document
    from deltacompact.compact import topic_sinks
    from deltacompact.job import compact_job

    as_json = options["as_json"]
    request = _request(table, options | {"content_type": ContentType[content_type.upper()]})
    with progress(Console(stderr=True, quiet=True) if as_json else err) as sink:
        try:
            result = compact_job(catalog, request, [sink, *topic_sinks(sns_topic, sla)])
        except Exception as error:
            if not hasattr(error, "result"):  # no session was run
                raise
            result = error.result
    if as_json:
        say_json(result_document(result))
    else:
        print_result(out, result)
    if result.errors:
        raise Failed(result.errors[0])


def _request(table: str, options: dict[str, Any]) -> Request:
    """The request that the options of a command make."""
    from deltacompact.job import Request

    chosen = {field.name: options[field.name] for field in fields(Options) if field.name in options}
    if options["destination"] == "":
        raise InputError("--destination is empty: name a table")
    return Request(
        table,
        list(options["primary_key"]) or None,
        sort_keys_of(options["sort_key"]) or None,
        options["destination"],
        partition_list(options["partition"]),
        Options(limits=click.get_current_context().obj, **chosen),
    )
