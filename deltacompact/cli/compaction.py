"""plan and compact."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.settings import COUNT_MAX, EXECUTORS, Settings
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.arguments import catalog_argument, json_option, partition_list, sort_keys_of, table_argument

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog

RATE = click.FloatRange(min=0, min_open=True)


def compaction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What plan and compact have in common."""
    options = (
        catalog_argument,
        table_argument,
        click.option("--primary-key", multiple=True, metavar="NAME", help="Needed where none was declared."),
        click.option("--sort-key", multiple=True, metavar="NAME[:descending]", help="Custom sort keys, in order."),
        click.option("--destination", metavar="TABLE", help="Write to another table; default: in place."),
        click.option(
            "--partition",
            "partition",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only this partition; a name that comes again begins another one. Default: all.",
        ),
        click.option(
            "--hash-buckets", type=click.IntRange(1, 1_000_000), metavar="N", help="Hash buckets of the index."
        ),
        click.option(
            "--rows-per-file",
            type=click.IntRange(1, COUNT_MAX),
            default=4_000_000,
            show_default=True,
            metavar="N",
            help="Most rows of a compacted file.",
        ),
        click.option(
            "--rewrite-dead-fraction",
            type=click.FloatRange(0, 1),
            default=0.0,
            show_default=True,
            metavar="SHARE",
            help="A compacted file with a smaller share of dead rows stays, with a deletion vector.",
        ),
        click.option(
            "--rows-per-round", type=click.IntRange(1, COUNT_MAX), metavar="N", help="Default: what memory allows."
        ),
        click.option(
            "--executor", type=click.Choice(EXECUTORS), default="auto", show_default=True, help="auto: Ray if large."
        ),
        click.option(
            "--ray-cpus", type=click.IntRange(min=1), metavar="N", help="Wait for so many on a cluster that grows."
        ),
        click.option("--concurrent-tasks", type=click.IntRange(min=1), metavar="N", help="Default: one for each CPU."),
        click.option("--read-mb-per-s", type=RATE, metavar="MB", help="All tasks together. Default: no limit."),
        click.option("--write-mb-per-s", type=RATE, metavar="MB", help="All tasks together. Default: no limit."),
        click.option("--requests-per-s", type=RATE, metavar="N", help="Of the store. Default: no limit."),
        json_option,
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command()
@compaction_options
def plan(catalog: DeltaStreamCatalog, table: str, **options: Any) -> None:
    """Say what a compaction would do, why, and what it needs. Changes nothing.

    \b
    deltacompact plan ./lake orders
    """
    from deltacompact.cli.console import out
    from deltacompact.cli.report import plan_report, print_plans

    as_json, settings, arguments, keys = _compaction(options)
    partitions = partition_list(options["partition"])
    shown = plan_report(catalog, table, *keys, options["destination"], arguments, partitions, settings)
    if as_json:
        say_json(shown.document)
    else:
        print_plans(out, shown.document)
    if shown.errors:
        raise Failed(shown.errors[0])


@click.command()
@compaction_options
@click.option("--sla", type=click.IntRange(min=1), metavar="SECONDS", help="Desired SLA; told to the event topic.")
@click.option("--sns-topic", metavar="ARN", help="Publish start, rounds and end to this SNS topic.")
@click.option("--purge", is_flag=True, help="Rewrite every file that has dead rows in it; then vacuum.")
@click.option(
    "--content-type",
    type=click.Choice(["parquet", "feather", "orc", "csv"]),
    default="parquet",
    show_default=True,
    help="Format of compacted files.",
)
def compact(
    catalog: DeltaStreamCatalog,
    table: str,
    sla: int | None,
    sns_topic: str | None,
    content_type: str,
    purge: bool,
    **options: Any,
) -> None:
    """Fold the deltas of a table: one live row per key. Interrupted, the same command resumes it.

    \b
    deltacompact compact ./lake orders
    deltacompact compact ./lake orders --partition day=1995-04-03 --executor local
    """
    from rich.console import Console

    from deltacompact.cli.console import err, out
    from deltacompact.cli.progress import progress
    from deltacompact.cli.report import print_result, result_document
    from deltacompact.compact import compact as compact_table

    as_json, settings, arguments, (primary_keys, sort_keys) = _compaction(options)
    with progress(Console(stderr=True, quiet=True) if as_json else err) as sink:
        try:
            result = compact_table(
                table,
                primary_keys,
                sort_keys,
                sla,
                catalog,
                options["destination"],
                rows_per_compacted_file=arguments.rows_per_compacted_file,
                hash_bucket_count=arguments.hash_bucket_count,
                sns_event_topic_arn=sns_topic,
                compacted_file_content_type=content_type,
                partitions=partition_list(options["partition"]),
                settings=settings,
                purge=purge,
                event_sinks=[sink],
            )
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


def _compaction(options: dict[str, Any]) -> tuple[bool, Settings, Any, tuple[Any, Any]]:
    from deltacompact.base.model import ContentType
    from deltacompact.planning.plan import Arguments

    settings = Settings(
        executor=options["executor"],
        rows_per_round=options["rows_per_round"],
        rewrite_dead_fraction=options["rewrite_dead_fraction"],
        concurrent_tasks=options["concurrent_tasks"],
        ray_cpus=options["ray_cpus"],
        read_mb_per_s=options["read_mb_per_s"],
        write_mb_per_s=options["write_mb_per_s"],
        requests_per_s=options["requests_per_s"],
    )
    arguments = Arguments.of(
        settings, 38_000_000, options["rows_per_file"], options["hash_buckets"], ContentType.PARQUET
    )
    if options["destination"] == "":
        raise InputError("--destination is empty: name a table")
    sort_keys = sort_keys_of(options["sort_key"])
    return options["as_json"], settings, arguments, (list(options["primary_key"]) or None, sort_keys or None)
