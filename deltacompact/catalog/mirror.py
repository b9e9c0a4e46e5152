"""The changes of a table, appended to a delta stream: a mirror, compacted on its own terms.

orders, bookmark mirror     7 to 9: insert 1, update 2, delete 3      one commit of the mirror: delete 3, upsert 1 2
repeated                    7 to 9: the token is known                nothing
then                        the bookmark is at 9

The token names both ends of the batch, and when it was given: a branch may go back, and forth again. The batch is the
same until the bookmark is committed: so each change is in the mirror once, whoever dies when. A key changes once in a
net change, and a commit's deletes come before its upserts. A row that moves to another partition of the mirror is
deleted in the one, and inserted in the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltacompact.base.errors import InputError
from deltacompact.base.wording import columns_shown
from deltacompact.change_feed.columns import TOLD, ChangeType

if TYPE_CHECKING:
    from deltacompact.catalog.delta_stream_table import DeltaStreamTable
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.change_feed.bookmark import Bookmark

_CHANGE = TOLD.field(0).name
_UPSERTS = [str(ChangeType.INSERT), str(ChangeType.UPDATE_AFTER)]
_DELETES = [str(ChangeType.DELETE)]


def mirror(source: DeltaStreamTable | IcebergCatalogTable, into: DeltaStreamTable, bookmark: str, **chosen: Any) -> int:
    """Append what came since the bookmark, and move it. Returns how many rows were upserted or deleted.

    `chosen` are arguments of the source's `changes`. The batch is held in memory. Raises InputError where the mirror
    declares no primary key, or one that is no column of the source. Keys must be unique in the source.
    """
    if into.keys is None:
        raise InputError(f"table {into.table_id!r} declares no primary key: create it with --primary-key")
    key = list(dict.fromkeys([*into.keys.primary, *into.partition_keys]))
    reader, known = _batch(source, bookmark, {**chosen, "key": key, "before": False})
    if missing := [name for name in into.keys.primary if name not in reader.schema.names]:
        raise InputError(f"primary key {missing[0]!r} of {into.table_id!r} is no column ({_columns(reader.schema)})")
    if known is None or known.next is None:
        return 0
    rows = reader.read_all().drop_columns(TOLD.names[1:])
    if rows.num_rows:
        ends = f"{_digest(known.done)} to {_digest(known.next)}"
        token = f"changes of {source.table_id} by {bookmark}: {ends}, given at {known.time_ms}"
        upserts, deletes = (rows.filter(pc.field(_CHANGE).isin(kinds)) for kinds in (_UPSERTS, _DELETES))
        both = pa.concat_tables([deletes, upserts])
        told = {"operation_column": _CHANGE, "upsert_values": _UPSERTS, "delete_values": _DELETES}
        into.append(both, token=token, **told)
    source.commit_bookmark(bookmark, known)
    return int(rows.num_rows)


def _batch(
    source: DeltaStreamTable | IcebergCatalogTable, name: str, asked: Mapping[str, Any]
) -> tuple[pa.RecordBatchReader, Bookmark[Any] | None]:
    """The changes of a batch, and the bookmark of that batch: another consumer may be moving it."""
    while True:
        before = _known(source, name)
        reader = source.changes(bookmark=name, **asked)
        known = _known(source, name)
        if known == before or known is None or known.next is None:
            return reader, known


def _known(source: DeltaStreamTable | IcebergCatalogTable, name: str) -> Bookmark[Any] | None:
    return next((one for one in source.bookmarks() if one.name == name), None)


def _columns(schema: pa.Schema) -> str:
    return columns_shown([name for name in schema.names if name not in TOLD.names])


def _digest(end: Any) -> str:
    """One end of a batch. Positions of a thousand partitions are too long for a token."""
    told = sorted(f"{partition}: {one}" for partition, one in end.items()) if isinstance(end, dict) else [str(end)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]
