"""The command line. Every command names the catalog first, then the table.

    deltacompact create  ./lake orders --primary-key id --partition-key day
    deltacompact append  ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact plan    ./lake orders
    deltacompact compact ./lake orders

Exit status: 0 success (also when there is nothing to do), 2 bad input, 3 a conflict, 1 anything else.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console

from deltacompact.catalog.certain_put import telling_interrupts
from deltacompact.catalog.delta_stream import DeltaStreamCatalog, open_catalog
from deltacompact.errors import ConflictError, DeltaCompactError, InputError, Interrupted
from deltacompact.model import INT64_MAX, Partition
from deltacompact.settings import EXECUTORS, Settings
from deltacompact.wording import counted

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point: turns errors into one line and an exit status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    debug = "--debug" in arguments
    try:
        cli.main([each for each in arguments if each != "--debug"], prog_name="deltacompact", standalone_mode=False)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort) as stop:
        told = stop.__cause__ if isinstance(stop, click.Abort) else stop  # click makes an Abort of a KeyboardInterrupt
        was = str(told) if isinstance(told, Interrupted) else "the table is as it was, the same command resumes"
        err.print(f"deltacompact: interrupted; {was}", style="red", markup=False)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        known = isinstance(error, DeltaCompactError)
        what = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
        err.print(f"deltacompact: {' '.join(what.split())}", style="red", markup=False)
        return error.exit_status if isinstance(error, DeltaCompactError) else 1


class _Commands(click.Group):
    """Commands that say, when they are interrupted, what they have put into effect."""

    def invoke(self, context: click.Context) -> Any:
        with telling_interrupts():
            return super().invoke(context)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="deltacompact")
def cli() -> None:
    """Fold the deltas of merge-on-read tables into few large files, one live row per primary key.

    \b
    CATALOG is a local path, file:///path or s3://bucket/prefix. A first table:
        deltacompact create  ./lake orders --primary-key id
        deltacompact append  ./lake orders monday.parquet tuesday.csv
        deltacompact append  ./lake orders gone.parquet --operation delete
        deltacompact compact ./lake orders
        deltacompact export  ./lake orders now.parquet

    Every command takes --debug, which shows the traceback of an error.
    Exit status: 0 success or nothing to do, 2 bad input, 3 a conflict, 1 anything else.
    """


def _catalog(_: click.Context, __: click.Parameter, value: str) -> DeltaStreamCatalog:
    return open_catalog(value)


catalog_argument = click.argument("catalog", callback=_catalog)
table_argument = click.argument("table")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
partition_option = click.option(
    "--partition",
    "partition",
    multiple=True,
    metavar="NAME=VALUE",
    help="Partition value; once for each partition key. A bare NAME is null.",
)


def _pairs(given: Sequence[str]) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name in pairs:
            raise InputError(f"--partition {name} is given twice")
        pairs[name] = value if equals else None
    return pairs


def _partition_list(given: Sequence[str]) -> list[dict[str, str | None]] | None:
    """Partitions of several: a name that comes again begins the next one."""
    partitions: list[dict[str, str | None]] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not partitions or name in partitions[-1]:
            partitions.append({})
        partitions[-1][name] = value if equals else None
    return partitions or None


def _sort_keys(given: Sequence[str]) -> list[tuple[str, str]]:
    """ "updated" and "updated:descending"; a colon in a column's name stays where no direction follows it."""
    keys = []
    for text in given:
        name, colon, direction = text.rpartition(":")
        if colon and direction.lower() in ("ascending", "descending"):
            keys.append((name, direction))
        elif colon and name:
            raise InputError(f"--sort-key {text}: {direction!r} is neither 'ascending' nor 'descending'")
        else:
            keys.append((text, "ascending"))
    return keys


def _say_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


@cli.command()
@catalog_argument
@table_argument
@click.option("--partition-key", multiple=True, metavar="NAME", help="Partition key; repeat in order.")
@click.option("--primary-key", multiple=True, metavar="NAME", help="Primary key column; repeat for a composite key.")
@click.option(
    "--sort-key",
    multiple=True,
    metavar="NAME[:descending]",
    help="Decides which of two rows of a key is kept (default: the later one). Needs --primary-key.",
)
@click.option(
    "--tombstone-retention",
    type=click.IntRange(min=0),
    help="For how many stream positions a keyed delete blocks older upserts (default: for ever).",
)
def create(
    catalog: DeltaStreamCatalog,
    table: str,
    partition_key: Sequence[str],
    primary_key: Sequence[str],
    sort_key: Sequence[str],
    tombstone_retention: int | None,
) -> None:
    """Create a table. Keys may be left to the first compaction."""
    catalog.create_table(
        table, partition_key, primary_key, _sort_keys(sort_key), tombstone_retention=tombstone_retention
    )
    out.print(f"created {table} in {catalog.uri}")


@cli.command()
@catalog_argument
@table_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE ...")
@partition_option
@click.option("--operation", type=click.Choice(["upsert", "delete"]), default="upsert", show_default=True)
@click.option("--position", type=int, metavar="N", help="Stream position; default: milliseconds since the epoch.")
@click.option("--force-position", is_flag=True, help="Allow a position of more than a year ahead of the clock.")
@click.option("--token", metavar="NAME", help="Commits once, however often it is repeated.")
@click.option(
    "--token-sequence",
    type=click.IntRange(0, INT64_MAX),
    metavar="N",
    help="Batch N of the producer that --token names: counts upwards, and is known for ever.",
)
@click.option("--reference", is_flag=True, help="Leave the files where they are instead of copying them.")
@json_option
def append(
    catalog: DeltaStreamCatalog,
    table: str,
    files: Sequence[str],
    partition: Sequence[str],
    operation: str,
    position: int | None,
    force_position: bool,
    token: str | None,
    token_sequence: int | None,
    reference: bool,
    as_json: bool,
) -> None:
    """Commit files as one delta: .parquet, .feather, .arrow, .orc, .csv or .jsonl (text also .gz, .bz2 or .zst).

    FILE is a file, a directory, a glob (in quotes) or an S3 prefix that ends with /. Below a directory or prefix every
    data file is taken, in byte order of the paths, except names that begin with . or _.
    """
    from deltacompact.sources import sources

    if token is None and token_sequence is not None:
        raise InputError("--token-sequence counts the batches of a producer: name it with --token")
    found = sources(catalog.store, files)
    for path, why in found.left_out:
        err.print(f"left out {path}: {why}", markup=False)
    delta = catalog.append_files(
        table,
        found.files,
        _pairs(partition),
        operation,
        position,
        token if token is None or token_sequence is None else (token, token_sequence),
        reference=reference,
        force_position=force_position,
    )
    if as_json:
        document = {"position": delta.position, "files": len(delta.files), "rows": delta.rows, "bytes": delta.bytes}
        left_out = [{"path": path, "why": why} for path, why in found.left_out]
        _say_json({**document, "committed": delta.committed, "skipped": delta.skipped, "left_out": left_out})
    elif delta.skipped:
        out.print(f"skipped: {delta.skipped}", markup=False)
    else:
        out.print(
            f"{operation} of {counted(delta.rows, 'row')} in {counted(len(delta.files), 'file')} "
            f"at position {delta.position}"
        )


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
        click.option("--hash-buckets", type=click.IntRange(min=1), metavar="N", help="Hash buckets of the index."),
        click.option(
            "--rows-per-file",
            type=click.IntRange(min=1),
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
        click.option("--rows-per-round", type=click.IntRange(min=1), metavar="N", help="Default: what memory allows."),
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


@cli.command()
@compaction_options
def plan(catalog: DeltaStreamCatalog, table: str, **options: Any) -> None:
    """Dry run: say what a compaction would do, why, and what it needs. Changes nothing."""
    from deltacompact.report import plan_report, print_plans

    as_json, settings, arguments, keys = _compaction(options)
    reports = plan_report(
        catalog, table, *keys, options["destination"], arguments, _partition_list(options["partition"]), settings
    )
    if as_json:
        _say_json(reports)
    else:
        print_plans(out, reports)


@cli.command()
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
    """Fold the deltas of a table: one live row per key. Interrupted, the same command resumes it."""
    from deltacompact.compact import compact as compact_table
    from deltacompact.progress import progress
    from deltacompact.report import print_result, result_document

    as_json, settings, arguments, (primary_keys, sort_keys) = _compaction(options)
    with progress(Console(stderr=True, quiet=True) if as_json else err) as sink:
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
            partitions=_partition_list(options["partition"]),
            settings=settings,
            purge=purge,
            event_sinks=[sink],
        )
    if as_json:
        _say_json(result_document(result))
    else:
        print_result(out, result)
    if result.errors:
        raise result.errors[0]


def _compaction(options: dict[str, Any]) -> tuple[bool, Settings, Any, tuple[Any, Any]]:
    from deltacompact.model import ContentType
    from deltacompact.plan import Arguments

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
    sort_keys = _sort_keys(options["sort_key"])
    return options["as_json"], settings, arguments, (list(options["primary_key"]) or None, sort_keys or None)


version_option = click.option("--version", metavar="VERSION", help="A retained version: its name or number. See show.")


@cli.command()
@catalog_argument
@table_argument
@click.argument("target", metavar="OUT.parquet")
@partition_option
@version_option
def export(catalog: DeltaStreamCatalog, table: str, target: str, partition: Sequence[str], version: str | None) -> None:
    """Write the live rows as they are now to one file (.parquet, .feather, .orc or .csv)."""
    from deltacompact.merge_on_read import export_table

    rows = export_table(catalog, table, target, _pairs(partition) or None, version)
    out.print(f"exported {counted(rows, 'row')} to {target}")


@cli.command()
@catalog_argument
@table_argument
@partition_option
@version_option
@click.option("--column", "columns", multiple=True, metavar="NAME", help="Only these columns, in this order.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many rows.")
def read(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    version: str | None,
    columns: Sequence[str],
    limit: int | None,
) -> None:
    """Print the live rows, one JSON object a line."""
    reader = catalog.scan(table, _pairs(partition) or None, columns=list(columns) or None, version=version)
    for batch in reader:
        for row in batch.slice(0, limit).to_pylist():
            click.echo(json.dumps(row, default=str, ensure_ascii=False))
        limit = None if limit is None else limit - min(limit, batch.num_rows)
        if limit == 0:
            break


@cli.command()
@catalog_argument
@click.argument("table", required=False)
@click.option("--versions", is_flag=True, help="The versions of each partition: which may be read and rolled back to.")
@json_option
def show(catalog: DeltaStreamCatalog, table: str | None, versions: bool, as_json: bool) -> None:
    """Show the tables of a catalog, or the streams, deltas, versions and index of one table."""
    from deltacompact import report

    if table is None:
        document: Any = report.catalog_document(catalog)
        _say_json(document) if as_json else report.print_catalog(out, document)
    elif versions:
        document = report.versions_document(catalog, table)
        _say_json(document) if as_json else report.print_versions(out, document)
    else:
        document = report.table_document(catalog, table)
        _say_json(document) if as_json else report.print_table(out, document)


@cli.command()
@catalog_argument
@table_argument
@click.argument("version")
@partition_option
def rollback(catalog: DeltaStreamCatalog, table: str, version: str, partition: Sequence[str]) -> None:
    """Go back to a retained VERSION (see show --versions); what was committed since is dropped."""
    from deltacompact.catalog.versions import rollback as roll_back

    state = roll_back(catalog, table, version, _pairs(partition) or None)
    out.print(f"{table} says what version {version} said; it is version {state.version} now")


@cli.command()
@catalog_argument
@table_argument
@click.option("--position", type=int, required=True, metavar="N", help="Stream position of the delta; see show.")
@partition_option
def retract(catalog: DeltaStreamCatalog, table: str, position: int, partition: Sequence[str]) -> None:
    """Take out one delta that is not compacted yet: a corrupt one blocks its partition otherwise."""
    from deltacompact.catalog.versions import retract as take_out

    take_out(catalog, table, position, _pairs(partition) or None)
    out.print(f"the delta at position {position} is taken out")


@cli.command()
@catalog_argument
@table_argument
@partition_option
@json_option
def publish(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], as_json: bool) -> None:
    """List the live files for other engines: a Hive symlink manifest, and plain lists. Again after each compaction."""
    from deltacompact.catalog.publish import publish as publish_table

    done = publish_table(catalog, table, _one_partition(catalog, table, partition))
    if as_json:
        _say_json([{**dataclasses.asdict(each), "partition": dict(each.partition.values)} for each in done])
    for each in done if not as_json else ():
        left_out = f"; {counted(each.deltas_left_out, 'delta')} since are not in it" if each.deltas_left_out else ""
        out.print(f"{each.partition}: version {each.version}, {counted(each.rows, 'row')}{left_out}")
        out.print(f"  {each.manifest}\n  {each.files}", markup=False)


@cli.command()
@catalog_argument
@table_argument
@partition_option
@click.option("--quick", is_flag=True, help="Do not read the data: leave out the digests of the compacted rows.")
@json_option
def check(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], quick: bool, as_json: bool) -> None:
    """Verify log, files and index of a table."""
    from deltacompact.errors import CorruptionError
    from deltacompact.maintenance import check as check_table

    results = check_table(catalog, table, _one_partition(catalog, table, partition), quick=quick)
    if as_json:
        _say_json([{**dataclasses.asdict(each), "partition": dict(each.partition.values)} for each in results])
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


@cli.command()
@catalog_argument
@table_argument
@partition_option
@click.option("--hash-buckets", type=click.IntRange(min=1), required=True, metavar="N")
@click.option("--executor", type=click.Choice(EXECUTORS), default="auto", show_default=True)
def rehash(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], hash_buckets: int, executor: str) -> None:
    """Move the index to another number of hash buckets, without reading data."""
    from deltacompact.executors.choose import executor_for
    from deltacompact.maintenance import index_entries, rehash_table

    chosen = _one_partition(catalog, table, partition)
    tasks = executor_for(Settings(executor=executor), index_entries(catalog, table, chosen), 0)
    done = rehash_table(catalog, table, hash_buckets, tasks, chosen)
    for place, before, after in done:
        out.print(f"{place}: {counted(before, 'hash bucket')}, now {after}")
    if not done:
        out.print(f"nothing to do: no partition of {table} was compacted yet")


@cli.command()
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
        _one_partition(catalog, table, partition),
        age_min_s=older_than_hours * 3600,
        force=force,
        dry_run=dry_run,
    )
    if as_json:
        _say_json(
            [
                {
                    "partition": dict(each.partition.values),
                    "deleted": [stat.path for stat in each.deleted],
                    "bytes": each.bytes,
                    "fenced_sessions": each.fenced,
                    "waiting": [stat.path for stat in each.waiting],
                    "dead_rows": each.dead_rows,
                    "doubtful": [stat.path for stat in each.doubtful],
                    "unfinished": [stat.path for stat in each.unfinished],
                    "dry_run": dry_run,
                }
                for each in results
            ]
        )
    for each in results if not as_json else ():
        print_vacuumed(out, each, dry_run)


@cli.command()
@catalog_argument
@table_argument
@partition_option
def validate(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str]) -> None:
    """Let Spark recompute the table from its deltas and compare rows and index."""
    from deltacompact.errors import CorruptionError
    from deltacompact.spark.validate import validate as validate_table

    reports = validate_table(catalog, table, partition=_one_partition(catalog, table, partition))
    for report in reports:
        out.print(str(report), style="" if report.ok else "red", markup=False)
    if any(not report.ok for report in reports):
        raise CorruptionError(f"table {table!r} is not what its deltas say")


@cli.command()
@click.option("--catalog", metavar="CATALOG", help="Where to put the demo's tables; default: a temporary folder.")
@click.option("--rows", type=click.IntRange(min=100), default=50_000, show_default=True, help="Rows a delta.")
@click.option("--executor", type=click.Choice(EXECUTORS), default="ray", show_default=True)
def demo(catalog: str | None, rows: int, executor: str) -> None:
    """The main job on this machine: Spark writes deltas, Ray compacts them, Spark proves the result."""
    from deltacompact.demo import run_demo

    run_demo(catalog, rows, executor, out, err)


def _one_partition(catalog: DeltaStreamCatalog, table: str, given: Sequence[str]) -> Partition | None:
    return catalog.partition(table, _pairs(given)) if given else None


__all__ = ["ConflictError", "cli", "main", "run"]
