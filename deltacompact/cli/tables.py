"""create and show: tables, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deltacompact.catalog.delta_stream import DeltaStreamCatalog
from deltacompact.cli.arguments import catalog_argument, json_option, out, say_json, sort_keys_of, table_argument


@click.command()
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
        table, partition_key, primary_key, sort_keys_of(sort_key), tombstone_retention=tombstone_retention
    )
    out.print(f"created {table} in {catalog.uri}")


@click.command()
@catalog_argument
@click.argument("table", required=False)
@click.option("--versions", is_flag=True, help="The versions of each partition: which may be read and rolled back to.")
@json_option
def show(catalog: DeltaStreamCatalog, table: str | None, versions: bool, as_json: bool) -> None:
    """Show the tables of a catalog, or the streams, deltas, versions and index of one table."""
    from deltacompact import report

    if table is None:
        document: Any = report.catalog_document(catalog)
        say_json(document) if as_json else report.print_catalog(out, document)
    elif versions:
        document = report.versions_document(catalog, table)
        say_json(document) if as_json else report.print_versions(out, document)
    else:
        document = report.table_document(catalog, table)
        say_json(document) if as_json else report.print_table(out, document)
