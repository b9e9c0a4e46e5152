"""Finds the streams of a table that have no entry more than somebody knows, with a few requests for all of them.

    LIST orders/ from day=1995-04-03/stream/4-a1…/…01.json on
         day=1995-04-03/stream/4-a1…/…01.json         still the last entry: this stream is as it was
         day=1995-04-04/data/…   stream/2-77…/…06.json, …07.json       an entry came: open this stream
         …                                            up to 1,000 keys in one request
    LIST orders/ from the next stream on that the keys did not reach

So a table with few objects in each partition costs one request for every 1,000 keys. A table with long logs and many
files costs one request for each partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from deltacompact.base.model import Partition
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.paths import GENESIS, TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.storage.objects import ObjectStore

_SHARE_MIN = 16
"""A thread looks through at least so many streams: with fewer, too many pages of keys would be read in vain."""


class LogEnd(Protocol):
    """The end of a stream's log, as somebody knows it: the active version, and how many entries it had."""

    @property
    def version(self) -> str: ...
    @property
    def tail(self) -> int: ...


def pays(catalog: Streams, streams: int) -> bool:
    """Whether to look for unchanged streams: on a store on this machine, opening a stream takes no time."""
    return catalog.is_remote and streams >= catalog.log_limits.streams_listed_min


def unchanged_streams(catalog: Streams, table_id: str, known: Mapping[Partition, LogEnd]) -> set[Partition]:
    """The streams whose log ends as is known. A few of the others may be unchanged, too.

    First versions are among the others: all have one name, also those of a table that was dropped and created again.
    """
    tails, paths = [], TablePaths.of(table_id)
    for partition, end in known.items():
        if end.version != GENESIS:
            stream = paths.stream(partition)
            tails.append(_Tail(partition, stream.version(end.version), stream.entry(end.version, end.tail - 1)))
    tails.sort(key=lambda tail: tail.last)
    share = max(_SHARE_MIN, -(-len(tails) // catalog.at_once))
    shares = [tails[first : first + share] for first in range(0, len(tails), share)]
    page, root = catalog.log_limits.keys_in_a_page, f"{paths.root}/"
    found = side_by_side(shares, lambda tails: _looked_through(catalog.store, root, tails, page), catalog.at_once)
    return {partition for unchanged in found for partition in unchanged}


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last known entry of a stream, and the folder that the next one would appear in."""

    partition: Partition
    folder: str
    last: str


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
