"""Finds the streams of a table that need no compaction, with a few requests for all of them: see listing.py.

    LIST orders/ from day=1995-04-03/stream/4-a1…/…01.json on
         day=1995-04-03/stream/4-a1…/…01.json         still the last entry: this stream is idle
         day=1995-04-04/data/…   stream/2-77…/…06.json, …07.json       an entry came: open this stream
         …                                            up to 1,000 keys in one request
    LIST orders/ from the next stream on that the keys did not reach

So a table with few objects in each partition costs one request for every 1,000 keys. A table with long logs and many
files costs one request for each partition.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from deltacompact.base.model import Partition
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.listing import ListedStream, Listing, write_listing
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import NothingToDo

_SHARE_MIN = 16
"""A thread looks through at least so many streams: with fewer, too many pages of keys would be read in vain."""
_STALE_SHARE = 1 / 64
"""The listing is written anew if more than this share of a table's streams are not as listed."""


def idle_streams(
    catalog: Streams, table_id: str, partitions: Sequence[Partition], purge: bool, cluster_by: str
) -> dict[Partition, NothingToDo]:
    """The partitions that need no compaction into the table itself, found without opening their streams.

    The others may need one or not. On a store on this machine, the result is empty: opening a stream takes no time.
    """
    if len(partitions) < catalog.log_limits.streams_listed_min or not catalog.is_remote:
        return {}
    known = {**catalog.listing(table_id), **_remembered(catalog, table_id, partitions)}
    asked = set(partitions)
    idle = {
        partition: stream
        for partition, stream in known.items()
        if partition in asked and stream.is_idle(purge, cluster_by)
    }
    unchanged = _unchanged(catalog, TablePaths.of(table_id), idle)
    return {partition: idle[partition].nothing_to_do for partition in unchanged}


def keep_listing(catalog: Streams, table_id: str, partitions: Sequence[Partition]) -> None:
    """Write the listing anew if many of these streams, which this process has opened, are not as listed."""
    if len(partitions) < catalog.log_limits.streams_listed_min or not catalog.is_remote:
        return
    with contextlib.suppress(Exception):  # a listing only saves time: some users may not write
        listed, found = catalog.listing(table_id), _remembered(catalog, table_id, partitions)
        stale = sum(listed.get(partition) != stream for partition, stream in found.items())
        if stale > len(partitions) * _STALE_SHARE:
            listing = {**listed, **found}
            write_listing(catalog.store, table_id, listing)
            catalog.remember_listing(table_id, listing)


def _remembered(catalog: Streams, table_id: str, partitions: Iterable[Partition]) -> Listing:
    """The streams whose log this process has read."""
    states = {partition: catalog.log(table_id, partition).remembered for partition in partitions}
    return {partition: ListedStream.of(state) for partition, state in states.items() if state}


# Which streams have no entry more


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last known entry of a stream, and the folder that the next one would appear in."""

    partition: Partition
    folder: str
    last: str


def _unchanged(catalog: Streams, paths: TablePaths, listing: Listing) -> set[Partition]:
    """The streams whose listed version has no new entry. A few of the others may be unchanged, too."""
    tails = []
    for partition, stream in listing.items():
        stream_paths = paths.stream(partition)
        last = stream_paths.entry(stream.version, stream.tail - 1)
        tails.append(_Tail(partition, stream_paths.version(stream.version), last))
    tails.sort(key=lambda tail: tail.last)
    share = max(_SHARE_MIN, -(-len(tails) // catalog.at_once))
    shares = [tails[first : first + share] for first in range(0, len(tails), share)]
    page, root = catalog.log_limits.keys_in_a_page, f"{paths.root}/"
    found = side_by_side(shares, lambda tails: _looked_through(catalog.store, root, tails, page), catalog.at_once)
    return {partition for unchanged in found for partition in unchanged}


def _looked_through(store: ObjectStore, root: str, tails: Sequence[_Tail], page_keys: int) -> list[Partition]:
    """Go through a sorted share of the streams, a page of keys at a time."""
    todo, found = deque(tails), list[Partition]()
    while todo:
        first = todo[0]
        from_here = store.list(root, first.last.removesuffix(".json"))
        page = [stat.path for stat in islice(from_here, page_keys)]
        whole = len(page) < page_keys
        while todo and (whole or f"{todo[0].folder}~" < page[-1]):  # "~" follows every name in the folder
            tail = todo.popleft()
            place = bisect_left(page, tail.last)
            is_there = place < len(page) and page[place] == tail.last
            is_last = place + 1 >= len(page) or not page[place + 1].startswith(tail.folder)
            if is_there and is_last:
                found.append(tail.partition)
        if todo and todo[0] is first:
            todo.popleft()  # more than a page of objects has come, so the stream has changed
    return found
