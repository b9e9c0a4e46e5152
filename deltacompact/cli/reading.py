"""read, export and publish: the rows, for people and for other engines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import click

from deltacompact.catalog.delta_stream import DeltaStreamCatalog
from deltacompact.cli.arguments import (
    catalog_argument,
    json_option,
    one_partition,
    out,
    pairs,
    partition_option,
    say_json,
    table_argument,
    version_option,
)
from deltacompact.wording import counted


@click.command()
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
    reader = catalog.scan(table, pairs(partition) or None, columns=list(columns) or None, version=version)
    for batch in reader:
        for row in batch.slice(0, limit).to_pylist():
            click.echo(json.dumps(row, default=str, ensure_ascii=False))
        limit = None if limit is None else limit - min(limit, batch.num_rows)
        if limit == 0:
            break


@click.command()
@catalog_argument
@table_argument
@click.argument("target", metavar="OUT.parquet")
@partition_option
@version_option
def export(catalog: DeltaStreamCatalog, table: str, target: str, partition: Sequence[str], version: str | None) -> None:
    """Write the live rows as they are now to one file (.parquet, .feather, .orc or .csv)."""
    from deltacompact.merge_on_read import export_table

    rows = export_table(catalog, table, target, pairs(partition) or None, version)
    out.print(f"exported {counted(rows, 'row')} to {target}")


@click.command()
@catalog_argument
@table_argument
@partition_option
@json_option
def publish(catalog: DeltaStreamCatalog, table: str, partition: Sequence[str], as_json: bool) -> None:
    """List the live files for other engines: a Hive symlink manifest, and plain lists. Again after each compaction."""
    from deltacompact.catalog.publish import publish as publish_table

    done = publish_table(catalog, table, one_partition(catalog, table, partition))
    if as_json:
        say_json([{**dataclasses.asdict(each), "partition": dict(each.partition.values)} for each in done])
    for each in done if not as_json else ():
        left_out = f"; {counted(each.deltas_left_out, 'delta')} since are not in it" if each.deltas_left_out else ""
        out.print(f"{each.partition}: version {each.version}, {counted(each.rows, 'row')}{left_out}")
        out.print(f"  {each.manifest}\n  {each.files}", markup=False)
