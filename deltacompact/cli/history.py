"""rollback and retract: go back to a version, take out a delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import catalog_argument, json_option, pairs, partition_option, table_argument

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog


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
    from deltacompact.delta_streams.versions import rollback as roll_back

    state = roll_back(catalog, table, version, pairs(partition) or None)
    answer(
        as_json,
        {"table": table, "rolled_back_to": version, "version": state.version},
        f"{table} has the contents of version {version} again, as version {state.version}",
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

    What cannot be read or folded blocks its partition until it is taken out. With --file, nothing but the rows of that
    file goes, even if it is compacted; append them again if you have them.

    \b
    deltacompact retract ./lake orders --position 1795243455090
    deltacompact retract ./lake orders --file orders/data/5c5c.parquet
    """
    from deltacompact.delta_streams.versions import retract as take_out

    if (position is None) == (file is None):
        raise InputError("name what is to be taken out: either --position or --file")
    if file is not None:
        return _retract_file(catalog, table, file, partition, as_json)
    assert position is not None
    take_out(catalog, table, position, pairs(partition) or None)
    answer(as_json, {"table": table, "retracted": position}, f"the delta at position {position} is taken out")


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
