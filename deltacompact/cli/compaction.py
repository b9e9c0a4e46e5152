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
from deltacompact.cli.iceberg_options import option_sections
from deltacompact.cli.sections import WithSections, delta_stream_option, iceberg_option
from deltacompact.iceberg_modes.modes import names

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.job import Request

RATE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(1, COUNT_MAX)


def field_option(
    flag: str, name: str, option: Callable[..., Any] = delta_stream_option, **shown: Any
) -> Callable[..., Any]:
    """An option for a field of Options, with the field's default."""
    default = getattr(DEFAULTS, name)
    made: Callable[..., Any] = option(flag, name, default=default, show_default=default is not None, **shown)
    return made


def compaction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that plan and compact share."""
    options = (
        any_catalog_argument,
        table_argument,
        field_option(
            "--executor",
            "executor",
            click.option,
            type=click.Choice(EXECUTORS),
            help="local: in this process; ray: on a Ray cluster; auto: on Ray if the input is large.",
        ),
        field_option(
            "--ray-cpus",
            "ray_cpus",
            click.option,
            type=click.IntRange(min=1),
            metavar="N",
            help="Wait until the Ray cluster has N CPUs, 10 minutes at most.",
        ),
        field_option(
            "--concurrent-tasks",
            "concurrent_tasks",
            click.option,
            type=click.IntRange(min=1),
            metavar="N",
            help="Most tasks at a time. Default: one for each CPU.",
        ),
        field_option(
            "--read-mb-per-s",
            "read_mb_per_s",
            click.option,
            type=RATE,
            metavar="MB",
            help="Most megabytes that all tasks together read in a second. Default: no limit.",
        ),
        field_option(
            "--write-mb-per-s",
            "write_mb_per_s",
            click.option,
            type=RATE,
            metavar="MB",
            help="Most megabytes that all tasks together write in a second. Default: no limit.",
        ),
        field_option(
            "--requests-per-s",
            "requests_per_s",
            click.option,
            type=RATE,
            metavar="N",
            help="Most requests that all tasks together send to the store in a second. Default: no limit.",
        ),
        field_option(
            "--compression",
            "compression",
            click.option,
            metavar="CODEC",
            help="Codec of written files: zstd, snappy, gzip, lz4, brotli or none. Default: that of the files whose "
            "rows are written, or of the Iceberg table; else zstd.",
        ),
        json_option,
        delta_stream_option(
            "--primary-key",
            multiple=True,
            metavar="NAME",
            help="Primary key column; repeat for a composite key. Needed where the table declares none.",
        ),
        delta_stream_option(
            "--sort-key",
            multiple=True,
            metavar="NAME[:descending]",
            help="Of two rows of a key, the one with the greater value is kept; repeat in order. Default: the table's.",
        ),
        delta_stream_option("--destination", metavar="TABLE", help="Write to another table. Default: in place."),
        delta_stream_option(
            "--partition",
            "partition",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only this partition; a repeated NAME begins another one. Default: all partitions.",
        ),
        field_option(
            "--partitions-at-once",
            "partitions_at_once",
            type=click.IntRange(min=1),
            metavar="N",
            help="Most partitions at a time. Default: as many as memory admits.",
        ),
        field_option(
            "--hash-buckets",
            "hash_bucket_count",
            type=click.IntRange(1, HASH_BUCKETS_MAX),
            metavar="N",
            help="Hash buckets of the index. Default: by the number of rows.",
        ),
        field_option(
            "--rows-per-round",
            "rows_per_round",
            type=COUNT,
            metavar="N",
            help="Delta rows that are folded in one round. Default: what memory allows.",
        ),
        field_option(
            "--rows-per-file",
            "rows_per_compacted_file",
            type=COUNT,
            metavar="N",
            help="Most rows of a compacted file.",
        ),
        field_option(
            "--target-file-bytes",
            "target_file_bytes",
            type=COUNT,
            metavar="N",
            help="About the largest size of a compacted file. Default: 256 to 512 MiB, by the partition's size.",
        ),
        field_option(
            "--rewrite-dead-fraction",
            "rewrite_dead_fraction",
            type=click.FloatRange(0, 1),
            metavar="SHARE",
            help="A compacted file with a smaller share of dead rows stays, with a deletion vector.",
        ),
        field_option(
            "--purge", "purge", is_flag=True, help="Rewrite every file that has dead rows. Run vacuum afterwards."
        ),
        delta_stream_option(
            "--content-type",
            type=click.Choice(["parquet", "feather", "orc", "csv"]),
            default=DEFAULTS.content_type.name.lower(),
            show_default=True,
            help="Format of compacted files.",
        ),
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command(cls=WithSections, says=lambda: option_sections(names()))
@compaction_options
@iceberg_options
@iceberg_option("--out", metavar="PLAN.json", help="Write the plan to a file, for compact --from-plan.")
@iceberg_option("--usd-per-core-hour", type=RATE, metavar="USD", help="Say what the plan is expected to cost.")
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
    request = _request(table, options)
    with progress(Console(stderr=True, quiet=True, markup=False) if as_json else err) as sink:
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

    options = options | {"content_type": ContentType[options["content_type"].upper()]}
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
