"""The changes of a table, appended to another one: a mirror, compacted on its own terms.

orders, bookmark mirror     7 to 9: insert 1, update 2, delete 3      one commit of the mirror: delete 3, upsert 1 2
repeated                    7 to 9: the token is known                nothing
then                        the bookmark is at 9

The token names both ends of the batch, and when it was given: a branch may go back, and forth again. It also names the
table by the id of its creation: another catalog may have a table of the same name. The batch is the same until the
bookmark is committed: so each change is in the mirror once, whoever dies when. The mirror forgets old tokens, so a
batch is appended only while the bookmark, read after the mirror, still names it. A net change has no order: a row that
moves to another partition of its source may be inserted there before it is deleted where it was. It upserts a key once
at most, so all deletes of a commit come before its upserts. A row that moves to another partition of the mirror is
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
refused. None of this is needed where the source's own keys make sure that a key has one row. An equality delete takes
all rows of its identifier in a partition, so an Iceberg mirror has one row of these, whatever day of a month it is of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.wording import columns_shown
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.change_feed.batch_keys import DELETES, UPSERTS, BatchKeys, RowsAtEnd
from deltacompact.change_feed.bookmark import ALL_ROWS, Bookmark
from deltacompact.change_feed.changes import branch_batch, stream_batch
from deltacompact.change_feed.columns import CHANGE_COLUMNS
from deltacompact.change_feed.request import ChangesOptions, ChangesRequest, narrowed
from deltacompact.reading.selection import named_columns

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

_CHANGE = CHANGE_COLUMNS.field(0).name


def mirror(
    source: DeltaStreamTable | IcebergCatalogTable,
    into: DeltaStreamTable | IcebergCatalogTable,
    bookmark: str,
    **chosen: Any,
) -> int:
    """Append what came since the bookmark, and move it. Returns how many rows were upserted or deleted.

    `chosen` are arguments of the source's `changes`. Raises InputError where the mirror declares no key, or one that is
    no column of the source, or of several rows there, or where another table has what the bookmark has done. Raises
    ConflictError if another consumer has moved the bookmark.
    """
    sink = _StreamMirror.of(into) if isinstance(into, DeltaStreamTable) else _Branch.of(into._loaded())
    asked = {**chosen, "key": sink.key, "before": False}
    target, terms = _creation(into), _terms(chosen)

    def check_source(known: Bookmark[Any] | None, table: IcebergTable | None) -> None:
        _check_target(target, source.table_id, into.table_id, known)
        if known is None or known.into is None:  # an old table has no id that a bookmark could tell
            _check_way(source, into, target)
        if known is not None:
            _check_terms(known, terms, source.table_id, into.table_id)
        if table is not None and known is not None and known.schema_id is not None:
            _check_names(table, known.schema_id, sink, into.table_id, chosen.get("columns"))

    reader, known, table = _batch(source, bookmark, asked, check_source)
    columns = [name for name in reader.schema.names if name not in CHANGE_COLUMNS.names]
    missing = [name for name in sink.key if name not in columns] if columns else []
    if missing and isinstance(source, DeltaStreamTable) and {*missing} <= {*source.partition_keys}:
        asked |= {"columns": [*columns, *missing]}
        reader, known, table = _batch(source, bookmark, asked, check_source)
    elif missing:
        raise InputError(f"key {missing[0]!r} of {into.table_id!r} is no column ({columns_shown(columns)})")
    if known is None or known.next is None:
        return 0
    batch = known
    ends = f"{_digest(batch.done)} to {_digest(batch.next)}"
    by = "" if table is None else f", by schema {table.metadata.schema_id}"
    token = f"changes of {source.table_id} ({_creation(source)}) by {bookmark}: {ends}, given at {batch.time_ms}{by}"

    def check() -> None:
        nonlocal batch
        batch = _taken(source, batch, target, terms)

    if not _is_unique(source, sink.equal):
        again = partial(source.changes, bookmark=bookmark, **asked)
        at_end = partial(_rows_at_end, source, table, batch, asked)
        reader = _one_row_of_each(reader, sink, again, at_end, partial(_twice, source.table_id, into.table_id))
    rows = sink.append(reader, token, check) if columns else 0
    if isinstance(source, DeltaStreamTable):
        source.commit_bookmark(bookmark, batch, target, terms)
    else:
        source.commit_bookmark(bookmark, batch, target, _schema_id(table), terms)
    return rows


@dataclass(frozen=True, slots=True)
class _StreamMirror:
    """A delta stream: upserts and deletes are one commit of it for each partition."""

    table: DeltaStreamTable
    key: list[str]

    @classmethod
    def of(cls, table: DeltaStreamTable) -> _StreamMirror:
        if table.keys is None:
            raise InputError(f"table {table.table_id!r} declares no primary key: create another with --primary-key")
        return cls(table, list(dict.fromkeys([*table.keys.primary, *table.partition_keys])))

    @property
    def equal(self) -> Sequence[str]:
        return self.key

    def alike(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.key)

    def has_renamed(self, was: str, name: str) -> bool:
        return False

    def append(self, changes: pa.RecordBatchReader, token: str, check: Callable[[], None]) -> int:
        rows, columns = 0, [name for name in changes.schema.names if name not in CHANGE_COLUMNS.names[1:]]
        keys = self.table.keys
        sorts = {sort.name for sort in keys.sort} & {*columns} - {*self.key} if keys else set[str]()

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in changes:
                rows += batch.num_rows
                changed = batch.select(columns)
                yield from (_cleared(changed, sorts), changed.filter(_is(UPSERTS))) if sorts else (changed,)
            check()  # an append that began before this ends long before a token is forgotten

        schema = pa.schema([changes.schema.field(name) for name in columns])
        batch = pa.RecordBatchReader.from_batches(schema, batches())
        self.table._catalog._append_net(
            self.table.table_id,
            batch,
            token,
            operation_column=_CHANGE,
            upsert_values=UPSERTS,
            delete_values=DELETES,
            partition_by=self.table.partition_keys,
        )
        return rows


@dataclass(frozen=True, slots=True)
class _Branch:
    """An Iceberg table: upserts and deletes are one snapshot of it, with equality deletes."""

    table: IcebergTable
    key: list[str]

    @classmethod
    def of(cls, table: IcebergTable) -> _Branch:
        from deltacompact.iceberg.row_deltas import matched_columns

        return cls(table, list(matched_columns(table)))

    @property
    def equal(self) -> Sequence[str]:
        """The columns that are equal in rows of which the mirror has one."""
        from deltacompact.iceberg.row_deltas import equal_columns

        return equal_columns(self.table.metadata)

    def alike(self, rows: pa.Table) -> pa.Table:
        """They, and what else is equal in those rows."""
        from deltacompact.iceberg.row_deltas import alike

        return alike(self.table.metadata, rows)

    def has_renamed(self, was: str, name: str) -> bool:
        """Whether the mirror has this column under its new name alone."""
        names = self.table.metadata.schema.names
        return name in names and was not in names

    def append(self, changes: pa.RecordBatchReader, token: str, check: Callable[[], None]) -> int:
        from deltacompact.iceberg.row_deltas import KeyedRows, commit_row_delta

        columns, rows = [name for name in changes.schema.names if name not in CHANGE_COLUMNS.names], 0

        def batch() -> Iterator[KeyedRows]:
            nonlocal rows
            for batch in changes:
                rows += batch.num_rows
                table = pa.Table.from_batches([batch])
                upserts, deletes = (table.filter(_is(kinds)).select(columns) for kinds in (UPSERTS, DELETES))
                yield KeyedRows(upserts, deletes)

        commit_row_delta(self.table, batch(), columns, token, check)
        return rows


def _cleared(changes: pa.RecordBatch, sorts: set[str]) -> pa.RecordBatch:
    """Deletes of all keys without sort values: they clear whatever the mirror has."""
    columns = {field.name: changes[field.name] for field in changes.schema}
    columns[_CHANGE] = pa.array(DELETES * changes.num_rows, changes.schema.field(_CHANGE).type)
    columns |= {name: pa.nulls(changes.num_rows, columns[name].type) for name in sorts}
    return pa.RecordBatch.from_pydict(columns, schema=changes.schema)


def _is(kinds: Sequence[str]) -> pc.Expression:
    return pc.field(_CHANGE).isin(kinds)


def _is_unique(source: DeltaStreamTable | IcebergCatalogTable, key: Sequence[str]) -> bool:
    """Whether no two rows of the source have one key, whatever is appended there."""
    keys = source.keys if isinstance(source, DeltaStreamTable) else None
    return keys is not None and {*keys.primary, *source.partition_keys} <= {*key}


def _one_row_of_each(
    changes: pa.RecordBatchReader,
    sink: _StreamMirror | _Branch,
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


def _rows_at_end(
    source: DeltaStreamTable | IcebergCatalogTable,
    table: IcebergTable | None,
    batch: Bookmark[Any],
    asked: Mapping[str, Any],
    columns: Sequence[str] | None,
    wanted: pc.Expression | None,
) -> pa.RecordBatchReader:
    """The rows at the end of a batch, for which `wanted` is true: a batch that is repeated finds the same."""
    request = ChangesRequest(**{name: asked[name] for name in ChangesOptions.__annotations__ if name in asked})
    where = request.where if wanted is None else narrowed(request.where, wanted)
    request = replace(request, per_commit=False, columns=columns or request.columns, where=where)
    if isinstance(source, DeltaStreamTable):
        return stream_batch(source._catalog, source.table_id, batch, request, at_end=True)
    assert table is not None
    return branch_batch(table, asked.get("branch", "main"), batch, request, at_end=True)


def _twice(table_id: str, into_id: str, key: str) -> InputError:
    return InputError(
        f"key {key} of {into_id!r} is that of several rows of {table_id!r}, and a mirror has one row of each key: "
        f"create one whose key is unique there, with another bookmark and --from ({ALL_ROWS})"
    )


def _batch(
    source: DeltaStreamTable | IcebergCatalogTable,
    name: str,
    asked: Mapping[str, Any],
    check: Callable[[Bookmark[Any] | None, IcebergTable | None], None],
) -> tuple[pa.RecordBatchReader, Bookmark[Any] | None, IcebergTable | None]:
    """The changes of a batch, the bookmark of that batch, and the source, if it is an Iceberg table.

    Another consumer may be moving the bookmark, and somebody may change the source's columns. `check` refuses a
    bookmark before it gives a batch.
    """
    while True:
        before, source_before = _seen(source, name)
        check(before, source_before)
        reader = source.changes(bookmark=name, **asked)
        known, table = _seen(source, name)
        has_moved = known != before and known is not None and known.next is not None
        if not has_moved and _schema_id(table) == _schema_id(source_before):
            return reader, known, table


def _seen(
    source: DeltaStreamTable | IcebergCatalogTable, name: str
) -> tuple[Bookmark[Any] | None, IcebergTable | None]:
    """The bookmark, and the source as it was then, if it is an Iceberg table."""
    if isinstance(source, DeltaStreamTable):
        return _named(source.bookmarks(), name), None
    from deltacompact.change_feed.branch_bookmarks import bookmarks

    table = source._catalog.loaded(source.table_id)
    return _named(bookmarks(table.metadata), name), table


def _taken(
    source: DeltaStreamTable | IcebergCatalogTable, batch: Bookmark[Any], target: str | None, terms: str | None
) -> Bookmark[Any]:
    """The batch with the mirror that takes it. Raises ConflictError if another consumer has moved the bookmark."""
    from deltacompact.change_feed import branch_bookmarks, stream_bookmarks

    if isinstance(source, DeltaStreamTable):
        return stream_bookmarks.taken(source._catalog, source.table_id, batch, target, terms)
    return branch_bookmarks.taken(source._catalog.loaded(source.table_id), batch, target, terms)


def _named(known: Sequence[Bookmark[Any]], name: str) -> Bookmark[Any] | None:
    return next((bookmark for bookmark in known if bookmark.name == name), None)


def _schema_id(table: IcebergTable | None) -> int | None:
    return None if table is None else table.metadata.schema_id


def _check_target(target: str | None, table_id: str, into_id: str, known: Bookmark[Any] | None) -> None:
    """Raise InputError if another table has what the bookmark has done: `target` would lack those rows for ever."""
    if known is not None and known.into not in (None, target):
        raise InputError(
            f"what bookmark {known.name!r} of {table_id!r} has done is not in {into_id!r}: it went into another table, "
            f"or {into_id!r} was dropped and created again. Drop the bookmark, or choose another one, and say where to "
            f"begin with --from ({ALL_ROWS})"
        )


def _terms(chosen: Mapping[str, Any]) -> str | None:
    """The columns and the filter of a mirror, as options of the command. None: an expression of another program."""
    columns, where = named_columns(chosen.get("columns")), chosen.get("where")
    if not isinstance(where, str | None):
        return None
    named = [f"--columns {','.join(sorted(columns))}"] if columns is not None else []
    filtered = [f"--where {where!r}"] if where else []
    return " ".join([*named, *filtered]) or "all columns and rows"


def _check_terms(known: Bookmark[Any], terms: str | None, table_id: str, into_id: str) -> None:
    """Raise InputError for other columns or another filter than the mirror has."""
    if None not in (terms, known.asked) and terms != known.asked:
        raise InputError(
            f"bookmark {known.name!r} of {table_id!r} puts {known.asked} into {into_id!r}, and this asks for "
            f"{terms}: ask for the same, or take all rows anew, with another bookmark and --from ({ALL_ROWS})"
        )


def _check_way(
    source: DeltaStreamTable | IcebergCatalogTable, into: DeltaStreamTable | IcebergCatalogTable, target: str | None
) -> None:
    """Raise InputError where changes would come back: then of two changes of a row the older one may stay."""
    creation = _creation(source)
    if creation is not None and creation == target:
        raise InputError(f"{into.table_id!r} cannot be its own mirror")
    for known in into.bookmarks():
        if creation is not None and known.into == creation:
            raise InputError(
                f"{source.table_id!r} is the mirror of {into.table_id!r}, by bookmark {known.name!r}: drop it there "
                "first, if changes are to come back from now on"
            )


def _check_names(
    table: IcebergTable, schema_id: int, sink: _StreamMirror | _Branch, into_id: str, columns: Sequence[str] | None
) -> None:
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
            there = "rename it there, too, or " if isinstance(sink, _Branch) else ""
            raise InputError(
                f"column {name!r} of {table.metadata.table_id!r} was {was!r} when {into_id!r} got its rows, and is "
                f"{was!r} there: {there}{anew}"
            )


def _creation(table: DeltaStreamTable | IcebergCatalogTable) -> str | None:
    """The id of a table's creation. A process may remember a table that was dropped meanwhile."""
    if isinstance(table, DeltaStreamTable):
        return table._catalog.current_table(table.table_id).creation
    return table._catalog.loaded(table.table_id).metadata.uuid


def _digest(end: Any) -> str:
    """One end of a batch. Positions of a thousand partitions are too long for a token."""
    ends = (
        sorted(f"{partition}: {position}" for partition, position in end.items())
        if isinstance(end, dict)
        else [str(end)]
    )
    return hashlib.sha256("\n".join(ends).encode()).hexdigest()[:32]
