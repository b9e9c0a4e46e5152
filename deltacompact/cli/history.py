"""history, rollback and retract: list versions and what made them, go back to a version, take out a delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import (
    any_catalog_argument,
    catalog_argument,
    json_option,
    one_partition,
    pairs,
    partition_option,
    table_argument,
)
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.place import place_options
from deltacompact.cli.sections import WithSections, of_iceberg
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@json_option
@verbose_option
@place_options
def history(catalog: DeltaStreamCatalog | IcebergCatalog, table: str, as_json: bool, **options: Any) -> None:
    """Show what made each version or snapshot, and when.

    A line has the rows, files and bytes that it added and removed, and the session that made it.

    \b
    deltacompact history ./lake orders
    deltacompact history iceberg://prod db.orders
    """
    from deltacompact.reports import history as report

    if of_iceberg(catalog):
        snapshots = [*map(report.snapshot_document, catalog.table(table).history(options["branch"]))]
        return answer(as_json, snapshots, *report.snapshot_lines(snapshots))
    versions = [
        *map(report.version_document, catalog.table(table).history(one_partition(catalog, table, options["partition"])))
    ]
    answer(as_json, versions, *report.version_lines(versions, Detail(options["verbose"])))


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@click.argument("version", required=False)
@click.option("--to", metavar="TIME", help="Go back to what the table was then, such as '2026-11-22 09:10' (UTC).")
@json_option
@place_options
def rollback(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    version: str | None,
    to: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Go back to an older version, to a snapshot, or to a time.

    VERSION is one that history lists. Commits after it are dropped.

    \b
    deltacompact rollback ./lake orders 3 --partition day=1995-04-03
    deltacompact rollback iceberg://prod db.orders --to "2026-11-22 09:10"
    """
    from deltacompact.base.moments import moment_of

    if (version is None) == (to is None):
        raise InputError("say where to go back to: either a VERSION or --to TIME")
    moment = None if to is None else moment_of(to)
    if to is not None and moment is None:
        raise InputError(
            f"--to {to!r} is no time: write it like 2026-11-22 or '2026-11-22 09:10:03'; "
            "a version or snapshot goes without --to"
        )
    wanted = to or version or ""
    if of_iceberg(catalog):
        made = catalog.table(table).rollback(moment or wanted, options["branch"])
        branch = options["branch"]
        return answer(
            as_json,
            {
                "table": table,
                "branch": branch,
                "rolled_back_to": wanted,
                "snapshot_id": made.snapshot_id,
                "former_head": made.former_head,
            },
            f"branch {branch} of {table} is snapshot {made.snapshot_id} again; "
            f"roll back to {made.former_head} to undo that",
        )
    state = catalog.table(table).rollback(wanted, pairs(options["partition"]) or None)
    answer(
        as_json,
        {"table": table, "rolled_back_to": wanted, "version": state.version},
        f"{table} has the contents of {wanted if to else f'version {wanted}'} again, as version {state.version}",
    )


@click.command()
@catalog_argument
@table_argument
@click.option("--position", type=int, metavar="N", help="Stream position of the delta, as show prints it.")
@click.option("--file", metavar="PATH", help="One file, compacted or not, as the error names it.")
@partition_option
@json_option
def retract(
    catalog: DeltaStreamCatalog,
    table: str,
    position: int | None,
    file: str | None,
    partition: Sequence[str],
    as_json: bool,
) -> None:
    """Take out one delta that is not compacted yet, or one file.

    A delta that cannot be read or folded blocks its partition until it is taken out. --file takes out only the rows of
    that file, even if it is compacted; append them again if you have them.

    \b
    deltacompact retract ./lake orders --position 1795243455090
    deltacompact retract ./lake orders --file orders/data/5c5c.parquet
    """
    from deltacompact.delta_streams.versions import retract as take_out
    from deltacompact.reports.words import position_text

    if (position is None) == (file is None):
        raise InputError("name what is to be taken out: either --position or --file")
    if file is not None:
        return _retract_file(catalog, table, file, partition, as_json)
    assert position is not None
    take_out(catalog, table, position, pairs(partition) or None)
    answer(
        as_json,
        {"table": table, "retracted": position},
        f"the delta at position {position_text(position)} is taken out",
    )


def _retract_file(catalog: DeltaStreamCatalog, table: str, path: str, partition: Sequence[str], as_json: bool) -> None:
    from deltacompact.delta_streams.taking_out import retract_file

    state = retract_file(catalog, table, path, pairs(partition) or None)
    taken = state.opened.taken_out
    assert taken is not None
    answer(
        as_json,
        {"table": table, "retracted_file": taken.path, "rows": taken.rows, "version": state.version},
        f"{counted(taken.rows, 'row')} taken out with {taken.path}: append them again if you have them "
        f"(version {state.version})",
    )
