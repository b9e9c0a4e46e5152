"""Drops a table of delta streams: first nobody can open it any more, then all objects with names from the table go.

orders/dropped.json                  1. put: the content of table.json, so that an interrupted drop can be repeated
orders/table.json                    2. gone: no command opens the table, nobody begins to append
orders/day=1/stream|data|index/…     3. gone, one stream after the other
orders/partitions/day=1              4. gone: the marks by which streams are found
orders/day=2/stream/0/…07.json       gone, too, though day=2 has no mark: a writer put it late, or puts it now
orders/keys.json, bookmarks/…, heat/…, published/…    5. gone
orders/dropped.json                  6. gone: the name is free again
orders/day=1/notes.txt               stays, and is named in the result: another program put it there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deltacompact.base.errors import BucketMissingError, InputError, NotFoundError
from deltacompact.base.model import Table
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.paths import StreamPaths, TablePaths, table_name
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import document, table_from
from deltacompact.storage.certain_put import Effect, put_certainly, telling_interrupts
from deltacompact.storage.numbered import NumberedObject
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, unfinished
from deltacompact.storage.replacing import alone


@dataclass(frozen=True, slots=True)
class DropResult:
    """The numbers of streams, objects and bytes that a drop deleted, or would delete. `left`: objects of others."""

    table_id: str
    streams: int
    objects: int
    bytes: int
    left: tuple[ObjectStat, ...]


def drop(catalog: Streams, table_id: str, *, dry_run: bool = False) -> DropResult:
    """Delete a table for good. Its writers, compactions and readers must have stopped. Repeat an interrupted drop.

    Files that were appended by reference stay. Raises NotFoundError for an unknown table, and InputError for a table
    that is published or has a destination.
    """
    store, paths = catalog.store, TablePaths.of(table_id)
    declared = _declared(store, paths, table_id, catalog.where)
    table = table_from(table_id, document(declared, paths.table))
    if table.publication:
        raise InputError(f"table {table_id!r} is published to {table.publication}: stop that first (publish --stop)")
    _refuse_sources(catalog, table_id)
    effect = Effect(f"the drop of table {table_id!r}", "under way", "repeat it to finish")
    with telling_interrupts(
        lambda begun: f"{effect.subject} {'is' if begun else 'may be'} {effect.done}: {effect.advice}"
    ):
        if not dry_run:
            put_certainly(store, paths.dropped, declared, effect)
            with alone(store, paths.table):  # a writer that changes it would put it back
                store.delete([paths.table])
            catalog.forget(table_id)
        return _dropped(catalog, table, paths, dry_run)


_LOOKS_MAX = 5
"""Looks for entries that writers put after their stream was gone. Each puts one at most: then it finds no table."""


def _dropped(catalog: Streams, table: Table, paths: TablePaths, dry_run: bool) -> DropResult:
    """Delete, or with `dry_run` count, all objects whose names come from the table."""
    store = catalog.store
    marks = {
        stat: partition
        for stat in store.list(paths.partitions)
        if (partition := paths.partition_of(stat.path, table.partition_keys)) is not None
    }
    streams = {paths.stream(partition) for partition in marks.values()}
    gone = _all_deleted(catalog, streams, dry_run)
    own = [*marks, *_own(store, paths, table)]
    late: set[StreamPaths] = set()
    for _ in range(1 if dry_run else _LOOKS_MAX):
        found = _without_mark(paths, table, store.list(f"{paths.root}/")) - (streams if dry_run else frozenset())
        if not found:
            break
        gone += _all_deleted(catalog, found, dry_run)
        late |= found
    names = {stat.path for stat in (*gone, *own)} | {paths.table, paths.dropped}
    left = tuple(stat for stat in store.list(f"{paths.root}/") if stat.path not in names)
    if not dry_run:
        store.delete(stat.path for stat in own)
        store.delete([paths.dropped])  # alone: a store may delete some objects of a request, and not the others
    return DropResult(table.table_id, len(streams | late), len(gone) + len(own) + 1, _bytes(gone) + _bytes(own), left)


def _without_mark(paths: TablePaths, table: Table, there: Iterable[ObjectStat]) -> set[StreamPaths]:
    """The streams with a log entry, marked or not: a late writer may have put one after an earlier drop."""
    streams = set()
    for stat in there:
        folder, _, rest = stat.path.rpartition("/stream/")
        mark = paths.partitions + (folder.removeprefix(paths.root).removeprefix("/") or "all")
        partition = paths.partition_of(mark, table.partition_keys) if rest else None
        if partition is not None and (stream := paths.stream(partition)).entry_of(stat.path):
            streams.add(stream)
    return streams


def _all_deleted(catalog: Streams, streams: Iterable[StreamPaths], dry_run: bool) -> list[ObjectStat]:
    taken = side_by_side(list(streams), lambda stream: _deleted(catalog.store, stream, dry_run), catalog.at_once)
    return [stat for stats in taken for stat in stats]


def _declared(store: ObjectStore, paths: TablePaths, table_id: str, where: str) -> bytes:
    for path in (paths.table, paths.dropped):
        try:
            return store.get(path)
        except BucketMissingError:
            raise
        except NotFoundError:
            continue
    raise NotFoundError(f"table {table_id!r} does not exist in {where}")


def _refuse_sources(catalog: Streams, table_id: str) -> None:
    """Raise InputError for the source of a destination: a later table of this name would be folded into that one."""
    others = [name for folder in catalog.store.folders() if (name := table_name(folder)) != table_id]
    for name, source in zip(others, side_by_side(others, catalog.source_of, catalog.at_once), strict=True):
        if source == table_id:
            raise InputError(f"table {name!r} takes the compacted rows of {table_id!r}: drop {name!r} first")


def _deleted(store: ObjectStore, stream: StreamPaths, dry_run: bool) -> list[ObjectStat]:
    """Delete all objects of a stream (not with `dry_run`), and return them."""
    found = list(_of_stream(store, stream))
    if not dry_run:
        store.delete(stat.path for stat in found)
        discard(
            store,
            (begun for where in stream.swept for begun in unfinished(store, where) if stream.is_ours(begun.path)),
        )
    return found


def _of_stream(store: ObjectStore, stream: StreamPaths) -> Iterator[ObjectStat]:
    for folder in stream.folders:
        for stat in store.list(folder):
            path = stat.path
            if stream.is_ours(path) or stream.entry_of(path) or stream.checkpoint_of(path) or path == stream.hint:
                yield stat
    yield from _objects_below(store, stream.vacuum_mark)


def _own(store: ObjectStore, paths: TablePaths, table: Table) -> Iterator[ObjectStat]:
    """The objects of the table as a whole, without its declaration and its marks."""
    for path in (paths.keys, paths.source, paths.listing):
        yield from _objects_below(store, path)
    for folder in (paths.bookmarks, paths.heat):
        yield from (stat for stat in store.list(folder) if NumberedObject.of(stat))
    yield from (stat for stat in store.list(paths.lists) if paths.is_list(stat.path, table.partition_keys))


def _objects_below(store: ObjectStore, path: str) -> Iterator[ObjectStat]:
    try:
        yield store.stat(path)
    except NotFoundError:
        return


def _bytes(stats: list[ObjectStat]) -> int:
    return sum(stat.bytes for stat in stats)
