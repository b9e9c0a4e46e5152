"""The changes of a table, appended to another one: a mirror, compacted on its own terms.

orders, bookmark mirror     7 to 9: insert 1, update 2, delete 3      one commit of the mirror: delete 3, upsert 1 2
repeated                    7 to 9: the token is known                nothing
then                        the bookmark is at 9

The token names both ends of the batch, and when it was given: a rollback can lead back to the same two ends. It also
names the table by the id of its creation: another catalog may have a table of the same name. The batch is the same
until the bookmark is committed: so each change is in the mirror once, whoever dies when. The mirror forgets old tokens,
so a batch is appended only while the bookmark, read after the mirror, still names it. A net change has no order: a row
that moves to another partition of its source may be inserted there before it is deleted where it was. It upserts a key
once at most, so all deletes of a commit come before its upserts. A row that moves to another partition of the mirror is
deleted in the one, and inserted in the other. Sort keys of the mirror decide nothing: after a rollback, or a delete
without sort values, a row of the source has a smaller one than the mirror's. So all keys are cleared first. The
bookmark names the mirror that has what is done: another one, also one that was created again under that name, lacks
those rows.

A mirror has the columns and the rows that were asked for. With others from now on, rows that do not change would lack
them, or stay. So the bookmark tells what was asked for, and a batch that asks for something else is refused. It tells
so before the mirror has a row: the batch of a run that died may be there, and the next run takes it as done.

The rows of an Iceberg table have the names that its columns have today, those in the mirror the names that they had. So
the bookmark also tells the schema, and a source whose columns were renamed or made anew is refused.

A mirror has one row of a key. The source may have two for a while: a batch may end where a row that moves is inserted
and not deleted yet. The mirror keeps one of them. A delete says not which one, so of each key that a batch deletes and
does not upsert, the row that the source has at the batch's end is upserted. A batch that upserts a key twice is
refused. None of this is needed where the source's own keys make sure that a key has one row. An equality delete removes
every row of its identifier in a partition, so an Iceberg mirror keeps one row of it in each partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.wording import columns_shown
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.catalog.mirror_checks import check_names, check_target, check_terms, check_way, terms_of
from deltacompact.catalog.mirror_sinks import Sink, sink_of
from deltacompact.catalog.mirror_sources import Seen, Source, at_end_of, source_of
from deltacompact.change_feed.batch_keys import BatchKeys, RowsAtEnd
from deltacompact.change_feed.bookmark import ALL_ROWS
from deltacompact.change_feed.columns import CHANGE_COLUMNS

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable


def mirror(
    table: DeltaStreamTable | IcebergCatalogTable,
    into: DeltaStreamTable | IcebergCatalogTable,
    bookmark: str,
    **chosen: Any,
) -> int:
    """Append what came since the bookmark, and move it. Returns how many rows were upserted or deleted.

    `chosen` are arguments of the table's `changes`. Raises InputError where the mirror declares no key, or one that is
    no column of the table, or of several rows there, or where another table has what the bookmark has done. Raises
    ConflictError if another consumer has moved the bookmark.
    """
    sink, source = sink_of(into), source_of(table)
    asked = {**chosen, "key": sink.key, "before": False}
    target, terms = source_of(into).creation, terms_of(chosen)

    def check_seen(seen: Seen) -> None:
        known = seen.bookmark
        check_target(target, table.table_id, into.table_id, known)
        if known is None or known.into is None:  # an old table has no id that a bookmark could tell
            check_way(table.table_id, source.creation, into, target)
        if known is not None:
            check_terms(known, terms, table.table_id, into.table_id)
        if seen.table is not None and known is not None and known.schema_id is not None:
            check_names(seen.table, known.schema_id, sink, into.table_id, chosen.get("columns"))

    reader, seen = _batch(source, bookmark, asked, check_seen)
    columns = [name for name in reader.schema.names if name not in CHANGE_COLUMNS.names]
    missing = [name for name in sink.key if name not in columns] if columns else []
    if missing and {*missing} <= {*source.partition_keys}:
        asked |= {"columns": [*columns, *missing]}
        reader, seen = _batch(source, bookmark, asked, check_seen)
    elif missing:
        raise InputError(f"key {missing[0]!r} of {into.table_id!r} is no column ({columns_shown(columns)})")
    batch = seen.bookmark
    if batch is None or batch.next is None:
        return 0
    ends = f"{_digest(batch.done)} to {_digest(batch.next)}"
    by = "" if seen.schema_id is None else f", by schema {seen.schema_id}"
    token = f"changes of {table.table_id} ({source.creation}) by {bookmark}: {ends}, given at {batch.time_ms}{by}"
    taken = batch

    def check() -> None:
        nonlocal taken
        taken = source.taken(taken, target, terms)

    if not source.is_unique(sink.equal):
        again = partial(table.changes, bookmark=bookmark, **asked)
        at_end = partial(at_end_of, source, seen, asked)
        reader = _one_row_of_each(reader, sink, again, at_end, partial(_twice, table.table_id, into.table_id))
    rows = sink.append(reader, token, check) if columns else 0
    source.commit(taken, target, terms, seen.schema_id)
    return rows


def _one_row_of_each(
    changes: pa.RecordBatchReader,
    sink: Sink,
    again: Callable[[], Iterable[pa.RecordBatch]],
    at_end: RowsAtEnd,
    refuse: Callable[[str], InputError],
) -> pa.RecordBatchReader:
    """The same changes, and then the rows that the source has left of deleted keys.

    Their end raises what `refuse` makes of a key that is upserted twice.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        with BatchKeys.of(sink.key, sink.alike) as keys:
            for batch in changes:
                keys.add(batch)
                yield batch
            for left in keys.left(at_end):
                keys.add(left)
                yield left
            if (twice := keys.repeated(again)) is not None:
                raise refuse(twice)

    return pa.RecordBatchReader.from_batches(changes.schema, batches())


def _twice(table_id: str, into_id: str, key: str) -> InputError:
    return InputError(
        f"key {key} of {into_id!r} is that of several rows of {table_id!r}, and a mirror has one row of each key: "
        f"create one whose key is unique there, with another bookmark and --from ({ALL_ROWS})"
    )


def _batch(
    source: Source, name: str, asked: Mapping[str, Any], check: Callable[[Seen], None]
) -> tuple[pa.RecordBatchReader, Seen]:
    """The changes of a batch, and the bookmark of that batch.

    Another consumer may be moving the bookmark, and somebody may change the source's columns. `check` refuses a
    bookmark before it gives a batch.
    """
    while True:
        before = source.seen(name)
        check(before)
        reader = source.table.changes(bookmark=name, **asked)
        seen = source.seen(name)
        has_moved = seen.bookmark != before.bookmark and seen.bookmark is not None and seen.bookmark.next is not None
        if not has_moved and seen.schema_id == before.schema_id:
            return reader, seen


def _digest(end: Any) -> str:
    """One end of a batch. Positions of a thousand partitions are too long for a token."""
    ends = (
        sorted(f"{partition}: {position}" for partition, position in end.items())
        if isinstance(end, dict)
        else [str(end)]
    )
    return hashlib.sha256("\n".join(ends).encode()).hexdigest()[:32]
