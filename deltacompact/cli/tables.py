"""create and show: tables and their contents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import ConflictError, NotFoundError
from deltacompact.base.model import CATALOG_VARIABLE
from deltacompact.cli.answers import Failed, answer, say_json
from deltacompact.cli.arguments import (
    any_catalog_argument,
    catalog_argument,
    complete_tables,
    json_option,
    price_option,
    schema_mode_option,
    sort_keys_of,
    table_argument,
)
from deltacompact.cli.detail import detail_of, detail_options
from deltacompact.cli.sections import (
    WithSections,
    delta_stream_option,
    hears_only,
    iceberg_option,
    of_iceberg,
    refuse,
)

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


_OF_TABLES = ["--versions", "--snapshots", "--files", "--branch", "--usd-per-core-hour"]


def _no_such_folder() -> str:
    """A hint for a folder that does not exist: if the environment names a catalog, the user may have meant a table."""
    named = os.environ.get(CATALOG_VARIABLE)
    hint = f"; for a table of ${CATALOG_VARIABLE} write - before it" if named else ""
    return f": there is no such folder{hint}"


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
@schema_mode_option("Whether appends may add columns (merge, the default) or are refused if they would (fixed).")
@click.option(
    "--readers",
    type=click.Choice(["files", "vectors"]),
    help="Who reads compacted files: engines that see every row (files, the default), or only engines that leave out "
    "rows marked by a deletion vector (vectors). Then a compaction marks a few dead rows instead of rewriting files.",
)
@click.option(
    "--cluster-by",
    metavar="COLUMNS",
    help="Up to four columns by which compactions lay rows out, so that readers skip files, each with a weight if "
    'wanted: "day*3,customer"; "": none.',
)
@click.option(
    "--columns",
    metavar="NAME TYPE,...",
    help='Types of columns: "id long, amount double". Text takes them, and rows that do not fit are refused. A type is '
    "boolean, int, long, float, double, decimal(10,2), string, binary, date, time, timestamp or timestamptz. "
    "Default: the types of the first rows.",
)
@json_option
def create(
    catalog: DeltaStreamCatalog,
    table: str,
    partition_key: Sequence[str],
    primary_key: Sequence[str],
    sort_key: Sequence[str],
    tombstone_retention: int | None,
    schema_mode: str | None,
    readers: str | None,
    cluster_by: str | None,
    columns: str | None,
    as_json: bool,
) -> None:
    """Create a table. Keys that are not named here are declared by the first compaction.

    If the table exists, --schema-mode, --readers and --cluster-by change what they name; the rest stays as declared.

    \b
    deltacompact create ./lake orders --partition-key day --primary-key id --sort-key updated
    deltacompact create ./lake sales --primary-key id --columns "id long, amount double"
    """
    existed = True
    try:
        before = catalog.described(table)
    except NotFoundError:
        existed = False
    sort_keys: Sequence[Any] = sort_keys_of(sort_key)
    if existed and (schema_mode, readers, cluster_by) != (None, None, None):  # the rest stays as declared
        partition_key = partition_key or before.partition_keys
        if before.keys is not None:
            primary_key, sort_keys = primary_key or before.keys.primary, sort_keys or before.keys.sort
        if tombstone_retention is None:
            tombstone_retention = before.tombstone_retention
    try:
        catalog.create_table(
            table,
            partition_key,
            primary_key,
            sort_keys,
            tombstone_retention=tombstone_retention,
            schema_mode=None if existed else schema_mode,
            readers=None if existed else readers,
            cluster_by=None if existed else cluster_by,
            columns=columns,
        )
    except ConflictError as error:
        if not existed:
            raise
        from deltacompact.reports.declared import declared

        raise ConflictError(f"table {table!r} exists already and is declared otherwise: {declared(before)}") from error
    changed = []
    if existed and schema_mode not in (None, before.schema_mode):
        catalog.declare_schema_mode(table, schema_mode)
        changed.append(f"its schema mode is {schema_mode} now")
    if existed and readers not in (None, before.readers):
        catalog.declare_readers(table, readers)
        changed.append(f"its readers are those of {readers} now")
    if existed and cluster_by is not None:
        catalog.declare_cluster_by(table, cluster_by)
        if (now := catalog.described(table).cluster_by) != before.cluster_by:
            changed.append(f"its rows are laid out by {now} from now on" if now else "its rows keep their order now")
    what = "; ".join(changed) or "nothing was changed"
    answer(
        as_json,
        {"table": table, "catalog": catalog.uri, "created": not existed},
        f"{table} exists already in {catalog.where}: {what}" if existed else f"created {table} in {catalog.where}",
    )


@click.command(cls=WithSections)
@any_catalog_argument
@click.argument("table", required=False, shell_complete=complete_tables)
@json_option
@detail_options
@price_option("For a table: say what a compaction is expected to take and to cost.")
@delta_stream_option("--quick", is_flag=True, help="For a catalog: open no stream, show no sizes.")
@delta_stream_option("--versions", is_flag=True, help="Show each partition's versions, as read and rollback take them.")
@iceberg_option("--branch", metavar="NAME", default="main", show_default=True, help="The branch.")
@iceberg_option("--snapshots", is_flag=True, help="Show the snapshots of the branch, the newest first.")
def show(catalog: DeltaStreamCatalog | IcebergCatalog, table: str | None, **options: Any) -> None:
    """Show the tables of a catalog, or one table.

    Without CATALOG it shows the tables of $DELTACOMPACT_CATALOG. For a table it shows totals, and for each partition
    the version, its files, its index, and later deltas; if there are many partitions, only the ten with the most rows
    to fold. For an Iceberg table it shows the data files and delete files of a branch.

    \b
    deltacompact show ./lake
    deltacompact show ./lake orders --versions
    deltacompact show iceberg://prod
    deltacompact show iceberg://prod db.orders --snapshots
    """
    if of_iceberg(catalog):
        from deltacompact.cli import iceberg

        _refuse_unheard(table, options)
        return iceberg.show(catalog, table, options)
    _refuse_unheard(table, options)
    _show_streams(catalog, table, options)


def _refuse_unheard(table: str | None, options: dict[str, Any]) -> None:
    if table is None:
        refuse(_OF_TABLES, "needs a TABLE")
    else:
        refuse(["--quick"], "is for a catalog: leave TABLE out")
    for listed in ("--versions", "--snapshots"):
        if options[listed.removeprefix("--")]:
            hears_only(listed, ["--branch", "--verbose"], "it lists them, and no more")


def _show_streams(catalog: DeltaStreamCatalog, table: str | None, options: dict[str, Any]) -> None:
    from deltacompact.cli.console import out
    from deltacompact.cli.counting import opening
    from deltacompact.reports import catalog_report, table_report, version_report

    if table is None:
        shown = catalog_report.catalog_document(catalog, options["quick"], opening)
    elif options["versions"]:
        shown = version_report.versions_document(catalog, table)
    else:
        shown = table_report.table_document(catalog, table, opening, options["usd_per_core_hour"])
    if options["as_json"]:
        say_json(shown.document)
    elif table is None:
        missing = not (shown.document or catalog.is_remote or os.path.isdir(catalog.where))
        where = f"{catalog.where}{_no_such_folder() if missing else ''}"
        catalog_report.print_catalog(out, where, shown.document)
    else:
        print_ = version_report.print_versions if options["versions"] else table_report.print_table
        print_(out, shown, detail_of(options))
    if shown.errors:
        raise Failed(shown.errors[0])
