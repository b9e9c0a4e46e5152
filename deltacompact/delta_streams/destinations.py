"""Destinations. A table is the destination of one other table for ever, or it holds its own streams, never both.

    compact orders into flat      flat/source.json says "orders"; appends to flat are refused
    append to events              events/source.json says null: own streams; `compact … --destination events` is refused

Both put source.json if absent before they begin the table's first stream, so if both happen at once, one is refused.
Release 0.1 wrote no source.json: a table without it that holds a stream counts as its own.

A destination is written only once its first version is complete: a refused compaction leaves no trace.
"""

from __future__ import annotations

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.model import Partition, Table
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import check_keys


def check_destination(catalog: Streams, source: Table, keys: TableKeys, table_id: str) -> None:
    """Raise InputError for a table that cannot take the source's compacted rows. Writes nothing."""
    try:
        destination = catalog.described(table_id)
    except NotFoundError:
        return
    catalog.check_source(destination, source.table_id)
    if destination.partition_keys != source.partition_keys:
        raise InputError(
            f"table {table_id!r} is partitioned by {list(destination.partition_keys)}, "
            f"its source by {list(source.partition_keys)}"
        )
    check_keys(destination, keys)
    if destination.source_table_id is None and destination.keys and destination.keys.sort and not keys.sort:
        shown = [f"{key.name}:{key.direction.value}" for key in destination.keys.sort]
        raise InputError(f"table {table_id!r} has the sort keys {shown}, its source {source.table_id!r} has none")


def open_destination(catalog: Streams, source: Table, keys: TableKeys, table_id: str, partition: Partition) -> None:
    """Create the destination, its source.json, the keys of both tables and its stream, if they do not exist yet.

    Raises InputError if the table became something else meanwhile.
    """
    check_destination(catalog, source, keys, table_id)
    try:
        catalog.described(table_id)
    except NotFoundError:
        catalog.declare_table(table_id, source.partition_keys, tombstone_retention=source.tombstone_retention)
    catalog.declare_source(table_id, source.table_id)
    catalog.declare_keys(source.table_id, keys)
    catalog.declare_keys(table_id, keys)
    catalog.begin_stream(table_id, partition, source.table_id)
