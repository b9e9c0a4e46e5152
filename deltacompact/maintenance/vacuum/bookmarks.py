"""Bookmark objects that newer ones have replaced. A consumer puts one at each step, so they grow for ever.

    mirror/…00.json    put in March    replaced by 01 in May            deleted
    mirror/…01.json    put in May      replaced by 02 an hour ago       stays: a consumer that saw it may put 02 now
    mirror/…02.json    the newest                                       stays for ever, even if it says "dropped"

A consumer puts the number after the newest one that it saw. If that number had been deleted, it would be told that it
was first. So an object goes once the one after it is old. What a consumer puts into a gap counts for nothing, as the
greatest number counts: it cannot bring a dropped bookmark back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import attrgetter

from deltacompact.change_feed.bookmark import is_name
from deltacompact.change_feed.stream_bookmarks import bookmarks
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.storage.numbered import NumberedObject
from deltacompact.storage.objects import ObjectStat


def replaced_bookmarks(catalog: Streams, table_id: str, old_s: float) -> list[ObjectStat]:
    """The objects whose next one was put at `old_s` (store's clock, s) or before. Objects of other programs stay.

    Raises InputError where a newest object is none of ours.
    """
    folder = TablePaths.of(table_id).bookmarks
    listed = sorted(filter(None, map(NumberedObject.of, catalog.store.list(folder))), key=attrgetter("stat.path"))
    ours = [found for found in listed if is_name(found.folder.removeprefix(folder).removesuffix("/"))]
    replaced = [
        stat for _, of_bookmark in groupby(ours, attrgetter("folder")) for stat in _replaced(of_bookmark, old_s)
    ]
    if replaced:
        bookmarks(catalog, table_id)
    return replaced


def _replaced(of_bookmark: Iterator[NumberedObject], old_s: float) -> list[ObjectStat]:
    pairs = pairwise(found.stat for found in of_bookmark)
    return [stat for stat, following in pairs if max(stat.modified_s, following.modified_s) <= old_s]
