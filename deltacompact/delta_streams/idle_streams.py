"""Finds the streams of a table that need no compaction without opening them.

    listing.json    day=1995-04-03   version 4-a1…, 2 entries, no delta waits      no entry more: idle
                    day=1995-04-04   version 2-77…, 7 entries, no delta waits      entry 7 is there: open it
                    day=1995-04-05   version 6-0c…, 9 entries, 3 deltas wait       open it

listing.py has the listing, unchanged_streams.py finds those without an entry more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from deltacompact.base.model import Partition
from deltacompact.delta_streams.listing import ListedStream, Listing, write_listing
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.unchanged_streams import pays, unchanged_streams
from deltacompact.table.ports import NothingToDo

_STALE_SHARE = 1 / 64
"""The listing is written anew if more than this share of a table's streams are not as listed."""


def idle_streams(
    catalog: Streams, table_id: str, partitions: Sequence[Partition], purge: bool, cluster_by: str
) -> dict[Partition, NothingToDo]:
    """The partitions that need no compaction into the table itself, found without opening their streams.

    The others may need one or not.
    """
    if not pays(catalog, len(partitions)):
        return {}
    known = {**catalog.listing(table_id), **_remembered(catalog, table_id, partitions)}
    asked = set(partitions)
    idle = {
        partition: stream
        for partition, stream in known.items()
        if partition in asked and stream.is_idle(purge, cluster_by)
    }
    unchanged = unchanged_streams(catalog, table_id, idle)
    return {partition: idle[partition].nothing_to_do for partition in unchanged}


def keep_listing(catalog: Streams, table_id: str, partitions: Sequence[Partition]) -> None:
    """Write the listing anew if many of these streams, which this process has opened, are not as listed."""
    if not pays(catalog, len(partitions)):
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
