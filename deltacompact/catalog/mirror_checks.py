"""What keeps a mirror from taking a batch: it would lack rows, keep old ones, or have them under other names.

bookmark goes into copy, created as 7f3a    asked for copy, created as 9b21    refused: drop the bookmark
bookmark puts --columns id,total            asked for all columns              refused: the rows lack the others
total was amount when rows came             the mirror has amount              refused: rename it there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import InputError
from deltacompact.catalog.mirror_sinks import BranchSink, Sink
from deltacompact.change_feed.bookmark import ALL_ROWS, Bookmark
from deltacompact.reading.selection import named_columns

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream_table import DeltaStreamTable
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable


def check_target(target: str | None, table_id: str, into_id: str, known: Bookmark[Any] | None) -> None:
    """Raise InputError if another table has what the bookmark has done: `target` would lack those rows for ever."""
    if known is None or known.into in (None, target):
        return
    raise InputError(
        f"the changes of bookmark {known.name!r} of {table_id!r} are not for {into_id!r}: they go into another table, "
        f"or {into_id!r} was dropped and created again. Drop the bookmark, or choose another one, and say where to "
        f"begin with --from ({ALL_ROWS})"
    )


def terms_of(chosen: Mapping[str, Any]) -> str | None:
    """The columns and the filter of a mirror, as options of the command. None: an expression of another program."""
    columns, where = named_columns(chosen.get("columns")), chosen.get("where")
    if not isinstance(where, str | None):
        return None
    named = [f"--columns {','.join(sorted(columns))}"] if columns is not None else []
    filtered = [f"--where {where!r}"] if where else []
    return " ".join([*named, *filtered]) or "all columns and rows"


def check_terms(known: Bookmark[Any], terms: str | None, table_id: str, into_id: str) -> None:
    """Raise InputError for other columns or another filter than the mirror has."""
    if None not in (terms, known.asked) and terms != known.asked:
        raise InputError(
            f"bookmark {known.name!r} of {table_id!r} puts {known.asked} into {into_id!r}, and this asks for "
            f"{terms}: ask for the same, or take all rows anew, with another bookmark and --from ({ALL_ROWS})"
        )


def check_way(
    table_id: str, creation: str | None, into: DeltaStreamTable | IcebergCatalogTable, target: str | None
) -> None:
    """Raise InputError where changes would come back: then of two changes of a row the older one may stay."""
    if creation is not None and creation == target:
        raise InputError(f"{into.table_id!r} cannot be its own mirror")
    for known in into.bookmarks():
        if creation is not None and known.into == creation:
            raise InputError(
                f"{table_id!r} is the mirror of {into.table_id!r}, by bookmark {known.name!r}: drop it there "
                "first, if changes are to come back from now on"
            )


def check_names(table: IcebergTable, schema_id: int, sink: Sink, into_id: str, columns: Sequence[str] | None) -> None:
    """Raise InputError where the source has rows under another name than those that the mirror has of it.

    Files that are alike at both ends are not read, whatever their columns are called: the mirror would keep the names.
    """
    anew = f"take all rows anew, with another bookmark and --from ({ALL_ROWS})"
    for was, name in table.renamed(schema_id):
        if columns is not None and not any(f"{name}.".startswith(f"{column}.") for column in columns):
            continue
        if was == name:
            raise InputError(
                f"column {name!r} of {table.metadata.table_id!r} was made anew, or has a default, and the rows in "
                f"{into_id!r} do not have those values: {anew}"
            )
        if not sink.has_renamed(was, name):
            there = "rename it there, too, or " if isinstance(sink, BranchSink) else ""
            raise InputError(
                f"column {name!r} of {table.metadata.table_id!r} was {was!r} when {into_id!r} got its rows, and is "
                f"{was!r} there: {there}{anew}"
            )
