"""append: files become a delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import catalog_argument, json_option, pairs, partition_option, table_argument
from deltacompact.wording import counted

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE ...")
@partition_option
@click.option("--operation", type=click.Choice(["upsert", "delete"]), default="upsert", show_default=True)
@click.option("--position", type=int, metavar="N", help="Stream position; default: milliseconds since the epoch.")
@click.option("--token", help="Commits once, however often it is repeated; `producer:n` counts upwards.")
@click.option("--reference", is_flag=True, help="Leave the files where they are instead of copying them.")
@json_option
def append(
    catalog: DeltaStreamCatalog,
    table: str,
    files: Sequence[str],
    partition: Sequence[str],
    operation: str,
    position: int | None,
    token: str | None,
    reference: bool,
    as_json: bool,
) -> None:
    """Commit files as one delta. They are .parquet, .feather, .arrow, .orc, .csv or .jsonl, local or s3://.

    \b
    deltacompact append ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact append ./lake orders gone.parquet --partition day=1995-04-03 --operation delete
    """
    delta = catalog.append_files(table, files, pairs(partition), operation, position, token, reference=reference)
    answer(
        as_json,
        {"position": delta.position, "files": len(delta.files), "rows": delta.rows, "bytes": delta.bytes},
        f"{operation} of {counted(delta.rows, 'row')} in {counted(len(delta.files), 'file')} "
        f"at position {delta.position}",
    )
