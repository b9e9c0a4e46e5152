"""read, export and publish: give the rows to people and to other engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.wording import counted, error_document
from deltacompact.cli.answers import Failed, answer, answer_for_partitions, for_each, json_row, say
from deltacompact.cli.arguments import (
    catalog_argument,
    json_option,
    one_partition,
    pairs,
    partition_option,
    table_argument,
    version_option,
)

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@partition_option
@version_option
@click.option("--column", "columns", multiple=True, metavar="NAME", help="Only these columns, in this order.")
@click.option("--limit", type=click.IntRange(0, 2**63 - 1), metavar="N", help="At most so many rows.")
@json_option
def read(
    catalog: DeltaStreamCatalog,
    table: str,
    partition: Sequence[str],
    version: str | None,
    columns: Sequence[str],
    limit: int | None,
    as_json: bool,
) -> None:
    """Print the live rows, one JSON object a line. With --json they are one document, {"rows": [...]}.

    \b
    deltacompact read ./lake orders --partition day=1995-04-03 --column id --limit 10
    """
    reader = catalog.scan(table, pairs(partition) or None, columns=list(columns) or None, version=version)
    if as_json:
        _print_document(_rows(reader, limit))
    else:
        for row in _rows(reader, limit):
            say(json_row(row))


def _rows(reader: Any, limit: int | None) -> Iterator[dict[str, Any]]:
    if limit == 0:
        return
    for batch in reader:
        yield from batch.slice(0, limit).to_pylist()
        limit = None if limit is None else limit - min(limit, batch.num_rows)
        if limit == 0:
            return


def _print_document(rows: Iterator[dict[str, Any]]) -> None:
    """Print the document row by row. It is complete JSON even if reading fails halfway."""
    first = next(rows, None)  # errors in the request are raised before anything is printed
    say('{"rows": [')
    try:
        if first is not None:
            say(json_row(first), end="")
        for row in rows:
            say(",\n" + json_row(row), end="")
    except BrokenPipeError:
        raise
    except Exception as error:
        say(f'],\n"error": {json_row(error_document(error))}}}')
        raise Failed(error) from error
    say("]}")


@click.command()
@catalog_argument
@table_argument
@click.argument("target", metavar="OUT.parquet")
@partition_option
@version_option
@json_option
def export(
    catalog: DeltaStreamCatalog, table: str, target: str, partition: Sequence[str], version: str | None, as_json: bool
) -> None:
    """Write the live rows to one file. It may be .parquet, .feather, .orc or .csv; an existing file is replaced.

    \b
    deltacompact export ./lake orders now.parquet
    """
    from deltacompact.catalog.delta_stream.scan import export_table

    rows = export_table(catalog, table, target, pairs(partition) or None, version)
    answer(as_json, {"table": table, "target": target, "rows": rows}, f"exported {counted(rows, 'row')} to {target}")


@click.command()
@catalog_argument
@table_argument
@partition_option
@json_option
def publish(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], as_json: bool) -> None:
    """Write lists of the live files for other engines. A Hive symlink manifest and plain lists; repeat it after each
    compaction.

    \b
    deltacompact publish ./lake orders
    """
    from deltacompact.catalog.delta_stream.file_lists import Published
    from deltacompact.catalog.delta_stream.file_lists import publish as publish_table
    from deltacompact.cli.console import out

    def say_published(published: Published) -> None:
        newer = published.deltas_left_out
        left_out = f"; {counted(newer, 'delta')} since are not in it" if newer else ""
        out.print(
            f"{published.partition}: version {published.version}, {counted(published.rows, 'row')}{left_out}\n"
            f"  {published.manifest}\n  {published.files}"
        )

    def document(published: Published) -> dict[str, Any]:
        return {**dataclasses.asdict(published), "partition": dict(published.partition.values)}

    only = one_partition(catalog, table, partition)
    done, errors = for_each(catalog, table, only, lambda chosen: publish_table(catalog, table, chosen))
    answer_for_partitions(as_json, done, errors, document, say_published)
