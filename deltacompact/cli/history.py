"""rollback and retract: go back to a version, take out a delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import catalog_argument, json_option, pairs, partition_option, table_argument

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@click.argument("version")
@partition_option
@json_option
def rollback(catalog: DeltaStreamCatalog, table: str, version: str, partition: Sequence[str], as_json: bool) -> None:
    """Go back to an older VERSION (see show --versions). Commits after it are dropped.

    \b
    deltacompact rollback ./lake orders 3 --partition day=1995-04-03
    """
    from deltacompact.catalog.delta_stream.versions import rollback as roll_back

    state = roll_back(catalog, table, version, pairs(partition) or None)
    answer(
        as_json,
        {"table": table, "rolled_back_to": version, "version": state.version},
        f"{table} has the contents of version {version} again, as version {state.version}",
    )


@click.command()
@catalog_argument
@table_argument
@click.option(
    "--position", type=int, required=True, metavar="N", help="Stream position of the delta, as show prints it."
)
@partition_option
@json_option
def retract(catalog: DeltaStreamCatalog, table: str, position: int, partition: Sequence[str], as_json: bool) -> None:
    """Take out one delta that is not compacted yet.

    A delta that cannot be read or folded blocks its partition until it is taken out.

    \b
    deltacompact retract ./lake orders --position 1795243455090
    """
    from deltacompact.catalog.delta_stream.versions import retract as take_out

    take_out(catalog, table, position, pairs(partition) or None)
    answer(as_json, {"table": table, "retracted": position}, f"the delta at position {position} is taken out")
