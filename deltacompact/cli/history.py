"""rollback and retract: going back."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deltacompact.catalog.delta_stream import DeltaStreamCatalog
from deltacompact.cli.arguments import catalog_argument, out, pairs, partition_option, table_argument


@click.command()
@catalog_argument
@table_argument
@click.argument("version")
@partition_option
def rollback(catalog: DeltaStreamCatalog, table: str, version: str, partition: Sequence[str]) -> None:
    """Go back to a retained VERSION (see show --versions); what was committed since is dropped."""
    from deltacompact.catalog.versions import rollback as roll_back

    state = roll_back(catalog, table, version, pairs(partition) or None)
    out.print(f"{table} says what version {version} said; it is version {state.version} now")


@click.command()
@catalog_argument
@table_argument
@click.option("--position", type=int, required=True, metavar="N", help="Stream position of the delta; see show.")
@partition_option
def retract(catalog: DeltaStreamCatalog, table: str, position: int, partition: Sequence[str]) -> None:
    """Take out one delta that is not compacted yet: a corrupt one blocks its partition otherwise."""
    from deltacompact.catalog.versions import retract as take_out

    take_out(catalog, table, position, pairs(partition) or None)
    out.print(f"the delta at position {position} is taken out")
