"""append: commits files as a delta, or the change events in them as one commit for each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted, noticed
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
    from deltacompact.base.deltas import Appended, Delta
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
    help="Number of this batch, if --token names a producer. A later batch has a greater number.",
)
@schema_mode_option("Whether this append may add columns: merge or fixed. Default: the table's schema mode.")
@click.option("--operation-column", metavar="NAME", help="Change events: the column that says what each row does.")
@click.option(
    "--upsert-values",
    metavar="A,B",
    help="Values of the operation column that mean an upsert. Default: I, U, C, R, insert, update or upsert, in "
    "capitals or small letters.",
)
@click.option(
    "--delete-values",
    metavar="A,B",
    help="Values of the operation column that mean a delete. Default: D or delete, in capitals or small letters.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["debezium", "maxwell", "dms"]),
    help="Change events: what wrote the files. It says where operation and row are.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="NAME",
    help="A partition key whose values are in the rows; repeatable. A null is then a value, except with --format. "
    "Default: all keys that --partition does not give, and null is refused.",
)
@click.option("--reference", is_flag=True, help="Do not copy the files. They must stay where they are, unchanged.")
@json_option
def append(
    catalog: DeltaStreamCatalog,
    table: str,
    files: Sequence[str],
    token: str | None,
    token_sequence: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Commit files as one delta.

    FILE is a file, a directory, a glob (in quotes) or an S3 prefix that ends with /. Files are .parquet, .feather,
    .arrow, .orc, .csv, .tsv or .jsonl; text may be compressed as .gz, .bz2 or .zst. A directory or prefix stands for
    all its data files, in byte order of their paths. Names that begin with . or _ are skipped.

    The answer names columns that the partition did not have before, which --schema-mode fixed refuses, counts rows
    with null in a key column, and names sort keys that events have as texts. A column without a name is refused.

    Change events (--operation-column, --format), also in .avro files, and rows of several partitions are read and
    written anew: one commit a partition, which has the deletes and the upserts that are left.

    \b
    deltacompact append ./lake orders monday.parquet --partition day=1995-04-03
    deltacompact append ./lake orders gone.parquet --partition day=1995-04-03 --operation delete
    deltacompact append ./lake orders cdc/ --format debezium --token batch-7
    deltacompact append ./lake orders cdc.csv.gz --operation-column op --delete-values D,X
    """
    from deltacompact.base.deltas import Appended
    from deltacompact.cli.console import err
    from deltacompact.delta_streams.appending.sources import sources

    if token is None and token_sequence is not None:
        raise InputError("--token-sequence counts the batches of a producer: name it with --token")
    found = sources(catalog.store, files, of_events=bool(options["format_"] or options["operation_column"]))
    for path, why in found.left_out:
        err.print(f"left out {path}: {why}", markup=False)
    named = token if token is None or token_sequence is None else (token, token_sequence)
    appended = _appended(catalog, table, found.files, named, options)
    left_out = {"left_out": [{"path": path, "why": why} for path, why in found.left_out]}
    if isinstance(appended, Appended):
        answer(as_json, _document(appended) | left_out, *_in_words(appended))
    else:
        answer(as_json, _delta_document(appended) | left_out, *_delta_in_words(appended))


def _appended(
    catalog: DeltaStreamCatalog,
    table: str,
    files: Sequence[str],
    token: str | tuple[str, int] | None,
    options: dict[str, Any],
) -> Delta | Appended:
    return catalog.append_files(
        table,
        files,
        pairs(options["partition"]),
        options["operation"],
        options["position"],
        token,
        reference=options["reference"],
        force_position=options["force_position"],
        schema_mode=options["schema_mode"],
        operation_column=options["operation_column"],
        upsert_values=_listed(options["upsert_values"]),
        delete_values=_listed(options["delete_values"]),
        partition_by=options["partition_by"] or None,
        format=options["format_"],
    )


def _delta_document(delta: Delta) -> dict[str, Any]:
    return {
        "position": delta.position,
        "files": len(delta.files),
        "rows": delta.rows,
        "bytes": delta.bytes,
        "committed": delta.committed,
        "skipped": delta.skipped,
        "new_columns": list(delta.new_columns),
        "null_keys": delta.null_keys,
    }


def _delta_in_words(delta: Delta) -> list[str]:
    return [
        _timed(str(delta), delta.position),
        *(noticed(delta.new_columns, delta.null_keys) if delta.committed else []),
    ]


def _timed(said: str, position: int | None) -> str:
    """The text, with the time behind a position that is a time."""
    from deltacompact.reports.words import position_text

    if position is None:
        return said
    return said.replace(f"at position {position}", f"at position {position_text(position)}")


def _listed(values: str | None) -> list[str] | None:
    return None if values is None else values.split(",")


def _document(appended: Appended) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": dict(partition.values),
                "committed": deltas[0].committed,
                "skipped": deltas[0].skipped,
                "deltas": [
                    {"position": delta.position, "operation": str(delta.operation), "rows": delta.rows}
                    for delta in deltas
                ],
            }
            for partition, deltas in appended.commits
        ],
        "files": len(appended.files),
        "rows": appended.rows,
        "bytes": appended.bytes,
        "committed": appended.committed,
        "skipped": appended.skipped,
        "new_columns": list(appended.new_columns),
        "null_keys": appended.null_keys,
        "compared_as_texts": list(appended.compared_as_texts),
    }


def _in_words(appended: Appended) -> list[str]:
    fresh = appended.fresh
    if not fresh.commits:
        return [str(appended)]
    skipped = len(appended.commits) - len(fresh.commits)
    known = [f"skipped: {counted(skipped, 'partition')} had the token already"] if skipped else []
    texts = [
        f"sort key {name!r} has texts, which are compared byte by byte: if they mean numbers or times, append to a new "
        "table that declares it (--columns)"
        for name in appended.compared_as_texts
    ]
    return [_timed(str(appended), fresh.position), *known, *noticed(fresh.new_columns, fresh.null_keys), *texts]
