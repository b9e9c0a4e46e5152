"""Bookmarks of a table of streams: numbered objects, put if absent, in a folder of the table.

orders/bookmarks/mirror/…00.json    done: nothing                        begun
orders/bookmarks/mirror/…01.json    done: nothing        next: 3, 7      a batch was given: version 3 with 7 log entries
orders/bookmarks/mirror/…02.json    done: 3, 7                           it was done
orders/bookmarks/mirror/…03.json    dropped                              the next one of this name begins at 4

The greatest number counts; vacuum deletes others. If two consumers put the same number, one is first, and the other
looks again. Each object has the id of the table's creation: an object that a consumer of a dropped table of the same
name put late counts as dropped, because its positions mean other rows. Vacuum keeps the files of the states that a
bookmark names until the bookmark was idle for 30 days.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from deltacompact.base.errors import ConflictError, InputError, NotFoundError
from deltacompact.base.model import FORMAT_VERSION, Partition, PartitionLike, Table
from deltacompact.base.moments import moment_of
from deltacompact.base.partitions import side_by_side
from deltacompact.change_feed.bookmark import (
    FILES_KEPT_S,
    Bookmark,
    check_batch,
    checked_name,
    idle,
    is_name,
    moved_meanwhile,
    no_beginning,
    unknown,
    without_beginning,
)
from deltacompact.change_feed.delta_streams import begin_state, refuse_vacuumed, since_version
from deltacompact.delta_streams.log.entries import dump
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.retained import begins, state_in
from deltacompact.delta_streams.streams import Streams, stream_files
from deltacompact.delta_streams.table_documents import document
from deltacompact.delta_streams.unchanged_streams import pays, unchanged_streams
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.certain_put import put_certainly
from deltacompact.storage.identity import file_name
from deltacompact.storage.numbered import newest_of_each, numbered_path, read_newest

_TRIES = 20
_VERSION = re.compile(r"[0-9]+-[0-9a-f]*")
"""The beginning of a version's name."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A state of a stream: a version, and the number of entries that its log had then."""

    version: str
    tail: int


Positions = Mapping[Partition, StreamPosition]
"""By partition; a partition that is not there has nothing done."""
StreamBookmark = Bookmark[Positions]


def bookmarks(catalog: Streams, table_id: str) -> list[StreamBookmark]:
    """All bookmarks of a table. Folders of other programs are skipped."""
    return [known for known, _ in _dated(catalog, table_id)]


def _dated(catalog: Streams, table_id: str) -> Iterator[tuple[StreamBookmark, float]]:
    """Each bookmark, and when it was set by the store's clock, in Unix seconds."""
    folder = _folder(table_id)
    found = newest_of_each(catalog.store.list(folder)).items()
    dates = {path.removeprefix(folder).removesuffix("/"): newest.stat.modified_s for path, newest in found}
    names = sorted(filter(is_name, dates))
    now = catalog.current_table(table_id) if names else None  # once for all of them
    for name in names:
        known = _newest(catalog, table_id, name, now)[1]
        if known is not None:
            yield known, dates[name]


def batch_for(
    catalog: Streams, table_id: str, name: str, from_: str | datetime | None, to: str | datetime | None
) -> StreamBookmark:
    """The batch for a consumer: the one that it was given before, or the next.

    Raises NotFoundError for an unknown bookmark if no beginning is given, for one that was idle for too long, and for
    a beginning or an end whose files are gone.
    """
    checked_name(name)
    for _ in range(_TRIES):
        number, known = _newest(catalog, table_id, name)
        is_new, is_open = known is None, known is not None and known.next is not None
        if known is None:
            if from_ is None:
                raise without_beginning(table_id, name)
            done = end_of_bookmark(catalog, table_id, from_)
            known = Bookmark(name, positions_at(catalog, table_id, from_) if done is None else done)
        elif _is_idle(catalog, known):
            raise idle(table_id, name)
        elif is_open and not known.is_unsigned(catalog.clock()):
            return known
        end = known.next if is_open else positions_at(catalog, table_id, to, known.done)
        if end == known.done and not (is_new or known.is_unsigned(catalog.clock())):
            return known
        # A new bookmark is put although nothing has come since its beginning, or the next call would not know it.
        wanted = replace(known, next=None if end == known.done else end, time_ms=None)
        if is_new:
            _refuse_vacuumed(catalog, table_id, wanted.done, True)
        if to is not None and not is_open:
            _refuse_vacuumed(catalog, table_id, wanted.next, False)
        if _put(catalog, table_id, number, wanted):
            return wanted
    raise ConflictError(f"table {table_id!r}: others move bookmark {name!r}, again and again")


def _refuse_vacuumed(catalog: Streams, table_id: str, ends: Positions | None, is_begin: bool) -> None:
    """Raise NotFoundError where a batch could not be read: its consumer would be given it for ever."""

    def look(place: tuple[Partition, StreamPosition]) -> None:
        partition, position = place
        chain = since_version(catalog.log(table_id, partition), position.version)
        state = state_of(catalog, table_id, partition, position)
        refuse_vacuumed(catalog, table_id, partition, chain, begin_state(table_id, chain, state) if is_begin else state)

    side_by_side(list((ends or {}).items()), look, catalog.at_once)


def taken(
    catalog: Streams, table_id: str, batch: StreamBookmark, into: str | None, asked: str | None
) -> StreamBookmark:
    """Record which mirror takes a batch, and what was asked, before it has the rows. The batch stays the same.

    Raises ConflictError if another consumer has moved the bookmark.
    """
    number, known = _newest(catalog, table_id, batch.name)
    check_batch(table_id, known or Bookmark(batch.name, None), batch)
    wanted = batch.of_mirror(into, asked)
    if wanted != batch and not _put(catalog, table_id, number, wanted):
        raise moved_meanwhile(table_id, batch.name)
    return wanted


def committed(
    catalog: Streams,
    table_id: str,
    name: str,
    batch: StreamBookmark | None = None,
    into: str | None = None,
    asked: str | None = None,
) -> bool:
    """Record that the batch is done, `into` a mirror, which has what was `asked`, and return whether one was open.

    Raises NotFoundError for an unknown bookmark, ConflictError if another consumer came first.
    """
    number, known = _newest(catalog, table_id, checked_name(name))
    if known is None:
        raise unknown(table_id, name)
    check_batch(table_id, known, batch)
    if known.next is None:
        return False
    wanted = replace(known.of_mirror(into, asked), done=known.next, next=None, time_ms=None)
    if not _put(catalog, table_id, number, wanted):
        raise moved_meanwhile(table_id, name)
    return True


def dropped(catalog: Streams, table_id: str, name: str) -> None:
    """Forget a bookmark. Raises NotFoundError for an unknown one, ConflictError if its consumer moves it just now."""
    number, known = _newest(catalog, table_id, checked_name(name))
    if known is None:
        raise unknown(table_id, name)
    if not _put(catalog, table_id, number, Bookmark(name, None), dropped=True):
        raise ConflictError(f"table {table_id!r}: a consumer moved bookmark {name!r} meanwhile")


def end_of_bookmark(catalog: Streams, table_id: str, from_: str | datetime | None) -> Positions | None:
    """If `from_` names a bookmark: what its consumer has done. None: `from_` may be a version or a time.

    Raises NotFoundError for a text that names nothing.
    """
    if not isinstance(from_, str):
        return None
    known = _newest(catalog, table_id, from_)[1] if is_name(from_) else None
    if known is not None:
        return known.done or {}
    if may_name_version(from_) or moment_of(from_) is not None:
        return None
    names = [bookmark.name for bookmark in bookmarks(catalog, table_id)]
    raise no_beginning(table_id, from_, "version, time", names)


def may_name_version(text: str) -> bool:
    """Whether a text has the form of a version's name or number."""
    return text.isdecimal() or _VERSION.fullmatch(text) is not None


def names_kept(catalog: Streams, table_id: str, now_s: float) -> frozenset[str]:
    """The names of all files that readers of bookmarks need. Vacuum keeps them. `now_s`: by the store's clock."""
    known = [bookmark for bookmark, put_s in _dated(catalog, table_id) if now_s - put_s <= FILES_KEPT_S]
    ends = [end for bookmark in known for end in (bookmark.done, bookmark.next) if end is not None]
    named = [place for end in ends for place in end.items()]
    found = side_by_side(named, lambda place: _names(catalog, table_id, *place), catalog.at_once)
    return frozenset[str]().union(*found)


def _names(catalog: Streams, table_id: str, partition: Partition, position: StreamPosition) -> frozenset[str]:
    chain = since_version(catalog.log(table_id, partition), position.version)
    exact = state_of(catalog, table_id, partition, position)
    states = {id(link): link for link in (exact, begin_state(table_id, chain, exact))}.values()
    return frozenset(file_name(path) for state in states for path in _paths(catalog, state))


def _paths(catalog: Streams, state: StreamState) -> Iterator[str]:
    for file in stream_files(state):
        yield file.path
        if file.deletions:
            yield file.deletions.masks_path
    if state.index:
        yield state.index.path
        with suppress(NotFoundError):  # a vacuum deleted it before the bookmark was there, or after it was idle
            yield from read_manifest(catalog.store, state.index).paths


def state_of(catalog: Streams, table_id: str, partition: Partition, position: StreamPosition) -> StreamState:
    """The state that a bookmark names."""
    return catalog.log(table_id, partition).state_at(position.version, position.tail)


def refuse_version_of_many(table: Table, partition: PartitionLike, end: str | datetime | None) -> None:
    """Raise InputError if an end is a version and no time, where no partition is named and there may be several."""
    if end is not None and partition is None and table.partition_keys and moment_of(end) is None:
        raise InputError(f"version {end!r}: each partition has its own versions, name a partition or a time")


def positions_at(
    catalog: Streams,
    table_id: str,
    as_of: str | datetime | None,
    known: Positions | None = None,
    partition: PartitionLike = None,
) -> Positions:
    """The position of one partition, or of each, now, or at a version or a time.

    Where each partition was, if it is `known`, saves opening those that are there still. Raises InputError for a
    version of several partitions, NotFoundError for one that is not there.
    """
    if as_of is not None:
        refuse_version_of_many(catalog.described(table_id), partition, as_of)
    partitions, still = catalog.chosen(table_id, partition), dict[Partition, StreamPosition]()
    if as_of is None and known and pays(catalog, len(partitions)):
        still = {place: known[place] for place in unchanged_streams(catalog, table_id, known)}

    def position(place: Partition) -> StreamPosition | None:
        return still.get(place) or _position_at(catalog, table_id, place, as_of)

    found = side_by_side(partitions, position, catalog.at_once)
    return {place: position for place, position in zip(partitions, found, strict=True) if position is not None}


def _position_at(
    catalog: Streams, table_id: str, partition: Partition, as_of: str | datetime | None
) -> StreamPosition | None:
    """None: the stream had no commit then."""
    if as_of is None:
        state = catalog.state(table_id, partition)
        return StreamPosition(state.version, state.tail)
    chain = catalog.log(table_id, partition).since(begins(as_of))
    state = state_in(chain, as_of, f"table {table_id!r}, partition {partition}")
    whole = next(link for link in chain if link.version == state.version)
    if len(state.commits) == len(whole.commits):
        return StreamPosition(whole.version, whole.tail)
    if len(state.commits) or state.opened.number:
        where = "where a version ended, or before the first commit, not between"
        raise InputError(f"{as_of}: a bookmark's batch begins and ends {where}")
    return None


def _is_idle(catalog: Streams, known: StreamBookmark) -> bool:
    return known.time_ms is not None and catalog.clock() * 1000 - known.time_ms > FILES_KEPT_S * 1000


def _folder(table_id: str) -> str:
    return TablePaths.of(table_id).bookmarks


def _newest(catalog: Streams, table_id: str, name: str, now: Table | None = None) -> tuple[int, StreamBookmark | None]:
    """(number of the next object, the newest bookmark). `now`: the table as it is. None: it is read here."""
    found = read_newest(catalog.store, f"{_folder(table_id)}{name}/")
    if found is None:
        return 0, None
    body = document(found[1], found[0].stat.path)
    if body.get("table") != table_id:
        raise InputError(f"{found[0].stat.path} is a bookmark of table {body.get('table')!r}, not of {table_id!r}")
    creation = (now or catalog.current_table(table_id)).creation
    if body.get("dropped") or body.get("creation", creation) != creation:
        return found[0].number + 1, None
    ends = [parsed_positions(body[end]) for end in ("done", "next")]
    into, asked = body.get("into"), body.get("asked")
    return found[0].number + 1, Bookmark(name, ends[0], ends[1], body["time_ms"], into, asked=asked)


def _put(catalog: Streams, table_id: str, number: int, wanted: StreamBookmark, dropped: bool = False) -> bool:
    body = {
        "format": FORMAT_VERSION,
        "kind": "bookmark",
        "id": uuid.uuid4().hex,
        "table": table_id,
        "creation": catalog.remembered_table(table_id).creation,
        "time_ms": wanted.time_ms or int(catalog.clock() * 1000),
        "done": positions_as_json(wanted.done),
        "next": positions_as_json(wanted.next),
        "into": wanted.into,
        "asked": wanted.asked,
        **({"dropped": True} if dropped else {}),
    }
    return put_certainly(catalog.store, numbered_path(f"{_folder(table_id)}{wanted.name}/", number), dump(body))


def positions_as_json(positions: Positions | None) -> Any:
    """Positions as JSON values."""
    if positions is None:
        return None
    return [[list(partition.values), position.version, position.tail] for partition, position in positions.items()]


def parsed_positions(document: Any) -> Positions | None:
    """The inverse of `positions_as_json`."""
    if document is None:
        return None
    return {
        Partition(tuple((name, value) for name, value in values)): StreamPosition(version, tail)
        for values, version, tail in document
    }
