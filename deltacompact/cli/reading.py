"""read, export and publish: give the rows to people and to other engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import answer, answer_for_partitions, for_each, of_partition
from deltacompact.cli.arguments import (
    any_catalog_argument,
    as_of_option,
    catalog_argument,
    json_option,
    one_partition,
    partition_option,
    table_argument,
    where_option,
)
from deltacompact.cli.place import place_of, place_options
from deltacompact.cli.printed_rows import print_rows
from deltacompact.cli.sections import (
    WithSections,
)

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@as_of_option
@click.option("--column", "columns", multiple=True, metavar="NAME", help="Only these columns, in this order.")
@where_option
@click.option("--limit", type=click.IntRange(0, 2**63 - 1), metavar="N", help="At most so many rows.")
@json_option
@place_options
def read(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    as_of: str | None,
    columns: Sequence[str],
    where: str | None,
    limit: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the live rows, one JSON object a line. With --json they are one document, {"rows": [...]}.

    \b
    deltacompact read ./lake orders --partition day=1995-04-03 --column id --limit 10
    deltacompact read ./lake orders --where "total > 9 and status = 'new'"
    deltacompact read iceberg://prod db.orders --as-of "2026-11-22 09:10"
    """
    chosen = {**place_of(catalog, options), "columns": list(columns) or None, "as_of": as_of}
    if where is not None:
        from deltacompact.change_feed.request import text_filter

        chosen["filter"] = text_filter(where)
    reader = catalog.table(table).scan(**chosen)
    print_rows(reader, as_json, limit)


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@click.argument("target", metavar="OUT.parquet")
@as_of_option
@json_option
@place_options
def export(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    target: str,
    as_of: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the live rows to one file. It may be .parquet, .feather, .orc or .csv; an existing file is replaced.
    In a folder that is there, they become Parquet files with new names.

    \b
    deltacompact export ./lake orders now.parquet
    deltacompact export iceberg://prod db.orders then.parquet --as-of 2026-11-22
    """
    chosen = place_of(catalog, options)
    rows = catalog.table(table).export(target, as_of=as_of, **chosen)
    answer(as_json, {"table": table, "target": target, "rows": rows}, f"exported {counted(rows, 'row')} to {target}")


@click.command()
@catalog_argument
@table_argument
@click.option("--to", metavar="URI", help="The table to show the rows in: iceberg://NAME/ns.table or delta://PATH.")
@click.option("--stop", is_flag=True, help="Publish no more. The published table stays: drop it, without purge.")
@partition_option
@json_option
def publish(
    catalog: DeltaStreamCatalog, table: str, to: str | None, stop: bool, partition: Sequence[str], as_json: bool
) -> None:
    """Show the compacted rows to other engines.

    With --to they are shown in an Iceberg or a Delta table, which every later compaction brings up to date. Without it
    the command writes lists of their files: a Hive symlink manifest and plain lists. Repeat it after each compaction.
    Do not glob the table's folders instead: deltas, deletes and the files of older versions lie there, too.

    \b
    deltacompact publish ./lake orders --to iceberg://prod/db.orders
    deltacompact publish ./lake clicks --to delta://s3://lake/clicks
    deltacompact publish ./lake orders             repair what a crash left undone; of a table without --to: lists
    deltacompact publish ./lake orders --stop
    """
    if stop:
        if to is not None or partition:
            raise InputError("--stop is for the table as a whole, and names no other")
        return _stop_publishing(catalog, table, as_json)
    if to is not None or catalog.publication(table) is not None:
        return _show(catalog, table, to, one_partition(catalog, table, partition), as_json)
    _write_lists(catalog, table, one_partition(catalog, table, partition), as_json)


def _stop_publishing(catalog: DeltaStreamCatalog, table: str, as_json: bool) -> None:
    target = catalog.stop_publishing(table)
    if target is None:
        answer(as_json, {"table": table, "stopped": None}, f"{table} is not published: nothing to do")
    else:
        how = "drop it, without purge"
        lines = f"{table} is published no more; {target} stays as it is, until a vacuum deletes its files: {how}"
        answer(as_json, {"table": table, "stopped": target}, lines)


def _show(catalog: DeltaStreamCatalog, table: str, to: str | None, only: Partition | None, as_json: bool) -> None:
    from deltacompact.cli.result_report import publication_document

    result = catalog.publish(table, to, only)
    answer(as_json, publication_document(result), str(result))


def _write_lists(catalog: DeltaStreamCatalog, table: str, only: Partition | None, as_json: bool) -> None:
    from deltacompact.cli.console import out
    from deltacompact.delta_streams.file_lists import PublishedLists, check_compacted, publish_stream

    def say_published(published: PublishedLists) -> None:
        newer = published.deltas_left_out
        left_out = f"; {counted(newer, 'delta')} since are not in it" if newer else ""
        out.print(
            f"{published.partition}: version {published.version}, {counted(published.rows, 'row')}{left_out}\n"
            f"  {published.manifest}\n  {published.files}"
        )

    check_compacted(catalog, table, catalog.chosen(table, only))
    done, errors = for_each(catalog, table, only, "publishing", lambda chosen: [publish_stream(catalog, table, chosen)])
    answer_for_partitions(as_json, done, errors, of_partition, say_published)
