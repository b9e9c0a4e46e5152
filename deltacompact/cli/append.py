"""append: commits files as a delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import (
    catalog_argument,
    json_option,
    pairs,
    partition_option,
    schema_mode_option,
    table_argument,
)

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog


@click.command()
@catalog_argument
@table_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE ...")
@partition_option
@click.option(
    "--operation",
    type=click.Choice(["upsert", "delete"]),
    default="upsert",
    show_default=True,
    help="Whether the rows replace those of their keys, or delete them.",
)
@click.option("--position", type=int, metavar="N", help="Stream position. Default: milliseconds since the epoch.")
@click.option("--force-position", is_flag=True, help="Allow a position that is more than a year ahead of the clock.")
@click.option("--token", metavar="NAME", help="Name of this batch: a second append with it commits nothing.")
@click.option(
    "--token-sequence",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Number of this batch, where --token names a producer. A later batch has a greater number.",
)
@schema_mode_option("Whether this append may add columns: merge or fixed. Default: the table's schema mode.")
@click.option("--reference", is_flag=True, help="Do not copy the files. They must stay where they are, unchanged.")
@json_option
def append(
    catalog: DeltaStreamCatalog,
    table: str,
    files: Sequence[str],
    partition: Sequence[str],
    operation: str,
    position: int | None,
    force_position: bool,
    token: str | None,
    token_sequence: int | None,
    schema_mode: str | None,
    reference: bool,
    as_json: bool,
) -> None:
    """Commit files as one delta.

    FILE is a file, a directory, a glob (in quotes) or an S3 prefix that ends with /. Files are .parquet, .feather,
    .arrow, .orc, .csv or .jsonl; text may be compressed as .gz, .bz2 or .zst. A directory or prefix stands for all its
    data files, in byte order of their paths. Names that begin with . or _ are skipped.

    The answer names columns that the partition did not have before, which --schema-mode fixed refuses, and counts rows
    with null in a key column. A column without a name is refused.

    \b
    deltacompact append ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact append ./lake orders gone.parquet --partition day=1995-04-03 --operation delete
    """
    from deltacompact.cli.console import err
    from deltacompact.cli.words import noticed
    from deltacompact.delta_streams.appending.sources import sources

    if token is None and token_sequence is not None:
        raise InputError("--token-sequence counts the batches of a producer: name it with --token")
    found = sources(catalog.store, files)
    for path, why in found.left_out:
        err.print(f"left out {path}: {why}", markup=False)
    delta = catalog.append_files(
        table,
        found.files,
        pairs(partition),
        operation,
        position,
        token if token is None or token_sequence is None else (token, token_sequence),
        reference=reference,
        force_position=force_position,
        schema_mode=schema_mode,
    )
    committed = f"{operation} of {counted(delta.rows, 'row')} in {counted(len(delta.files), 'file')}"
    answer(
        as_json,
        {
            "position": delta.position,
            "files": len(delta.files),
            "rows": delta.rows,
            "bytes": delta.bytes,
            "committed": delta.committed,
            "skipped": delta.skipped,
            "new_columns": list(delta.new_columns),
            "null_keys": delta.null_keys,
            "left_out": [{"path": path, "why": why} for path, why in found.left_out],
        },
        f"skipped: {delta.skipped}" if delta.skipped else f"{committed} at position {delta.position}",
        *([] if delta.skipped else noticed(delta.new_columns, delta.null_keys)),
    )
