"""create and show: tables and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import ConflictError, NotFoundError
from deltacompact.cli.answers import Failed, answer, say_json
from deltacompact.cli.arguments import catalog_argument, json_option, sort_keys_of, table_argument

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@click.option("--partition-key", multiple=True, metavar="NAME", help="Partition key; repeat in order.")
@click.option("--primary-key", multiple=True, metavar="NAME", help="Primary key column; repeat for a composite key.")
@click.option(
    "--sort-key",
    multiple=True,
    metavar="NAME[:descending]",
    help="Of two rows of a key, the one with the greater value is kept; repeat in order. Default: the later row.",
)
@click.option(
    "--tombstone-retention",
    type=click.IntRange(min=0),
    metavar="N",
    help="A delete with sort columns keeps older upserts of its key dead for N stream positions. Default: for ever.",
)
@json_option
def create(
    catalog: DeltaStreamCatalog,
    table: str,
    partition_key: Sequence[str],
    primary_key: Sequence[str],
    sort_key: Sequence[str],
    tombstone_retention: int | None,
    as_json: bool,
) -> None:
    """Create a table. Keys that are not named here are declared by the first compaction.

    \b
    deltacompact create ./lake orders --partition-key day --primary-key id --sort-key updated
    """
    existed = True
    try:
        before = catalog.table(table)
    except NotFoundError:
        existed = False
    try:
        catalog.create_table(
            table, partition_key, primary_key, sort_keys_of(sort_key), tombstone_retention=tombstone_retention
        )
    except ConflictError as error:
        if not existed:
            raise
        from deltacompact.cli.table_report import declared

        raise ConflictError(f"table {table!r} exists already and is declared otherwise: {declared(before)}") from error
    unchanged = f"{table} exists already in {catalog.where}: nothing was changed"
    answer(
        as_json,
        {"table": table, "catalog": catalog.uri, "created": not existed},
        unchanged if existed else f"created {table} in {catalog.where}",
    )


@click.command()
@catalog_argument
@click.argument("table", required=False)
@click.option("--versions", is_flag=True, help="Show the versions of each partition. read and rollback take them.")
@json_option
def show(catalog: DeltaStreamCatalog, table: str | None, versions: bool, as_json: bool) -> None:
    """Show the tables of a catalog, or one table.

    Of a table it shows, for each partition, the version, its files, its index, and the deltas that came since.

    \b
    deltacompact show ./lake
    deltacompact show ./lake orders --versions
    """
    from deltacompact.cli import table_report
    from deltacompact.cli.console import out

    if table is None:
        if versions:
            raise click.UsageError("--versions needs a TABLE")
        shown = table_report.catalog_document(catalog)
        print_: Any = table_report.print_catalog
    elif versions:
        shown = table_report.versions_document(catalog, table)
        print_ = table_report.print_versions
    else:
        shown = table_report.table_document(catalog, table)
        print_ = table_report.print_table
    if as_json:
        say_json(shown.document)
    elif table is None and not shown.document:
        out.print(f"no tables in {catalog.where}")
    else:
        print_(out, shown.document)
    if shown.errors:
        raise Failed(shown.errors[0])
