"""The change feed of a table of either kind: what `deltacompact changes` prints.

changes(catalog, "orders", "1")                              since version 1: net, deltas that wait included
changes(prod, "db.orders", "2026-11-22", per_commit=True)    of each commit since that day
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from deltacompact.base.model import Partition, PartitionLike
from deltacompact.base.partitions import side_by_side
from deltacompact.change_feed.request import ChangeRange, ChangesRequest, changes_of

if TYPE_CHECKING:
    from deltacompact.change_feed.bookmark import Bookmark
    from deltacompact.change_feed.stream_bookmarks import StreamBookmark
    from deltacompact.delta_streams.streams import Streams
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable


Answer = TypeVar("Answer")
Asking = Callable[[str, Sequence[ChangeRange], pa.Schema, ChangesRequest], Answer]
"""`changes_of`, or `difference`."""


def stream_changes(
    catalog: Streams,
    table_id: str,
    from_: str | datetime | None,
    to: str | datetime | None,
    partition: PartitionLike,
    asked: ChangesRequest,
    asking: Asking[Answer] = changes_of,
) -> Answer:
    """The changes of one partition, or of all, one after the other."""
    from deltacompact.change_feed.delta_streams import StreamRange, columns_of
    from deltacompact.change_feed.stream_bookmarks import end_of_bookmark, refuse_version_of_many, state_of

    table, done = catalog.described(table_id), end_of_bookmark(catalog, table_id, from_)
    for end in (None if done is not None else from_, to):
        refuse_version_of_many(table, partition, end)
    chosen, limits = catalog.chosen(table_id, partition), asked.reading(catalog.read_limits)

    def range_of(place: Partition) -> StreamRange:
        if done is None:
            return StreamRange.of(catalog, table_id, place, from_, to, limits)
        begin = state_of(catalog, table_id, place, done[place]) if place in done else None
        return StreamRange.of(catalog, table_id, place, begin, to, limits)

    ranges = side_by_side(chosen, range_of, catalog.at_once)
    return asking(table_id, ranges, columns_of(table, ranges, asked), asked)


def stream_batch(
    catalog: Streams, table_id: str, bookmark: StreamBookmark, asked: ChangesRequest, *, at_end: bool = False
) -> pa.RecordBatchReader:
    """The changes of the batch that a consumer was given, the same each time. No batch: no changes.

    A batch may go back, by an end that a consumer names: what came since then goes, of a partition that was not there
    all rows. `at_end`: all rows at the end instead, as inserts with the same columns.
    """
    from deltacompact.change_feed.delta_streams import StreamRange, columns_of, since_version
    from deltacompact.change_feed.stream_bookmarks import state_of
    from deltacompact.delta_streams.log.log import genesis_state

    done, limits = bookmark.done or {}, asked.reading(catalog.read_limits)
    following = done if bookmark.next is None else bookmark.next

    def range_of(partition: Partition) -> StreamRange:
        places = done.get(partition), following.get(partition)
        if places[0] is not None and places[0] == places[1]:
            state = state_of(catalog, table_id, partition, places[0])
            if not state.sealed:  # nothing came, so only the columns of the partition are asked for
                return StreamRange.between(catalog, table_id, partition, [state], state, state, limits)
        log, versions = catalog.log(table_id, partition), [place.version for place in places if place is not None]
        chain = list(log.chain()) if None in places else since_version(log, *versions)
        begin, end = (None if place is None else state_of(catalog, table_id, partition, place) for place in places)
        return StreamRange.between(catalog, table_id, partition, chain, begin, end or genesis_state(), limits)

    ranges = side_by_side(list(dict.fromkeys([*following, *done])), range_of, catalog.at_once)
    columns = columns_of(catalog.remembered_table(table_id), ranges, asked)
    if at_end:
        ranges = [replace(range_, begin=genesis_state()) for range_ in ranges]
    return changes_of(table_id, ranges, columns, asked)


def branch_batch(
    table: IcebergTable, branch: str, bookmark: Bookmark[int], asked: ChangesRequest, *, at_end: bool = False
) -> pa.RecordBatchReader:
    """As `stream_batch`, for a branch."""
    from deltacompact.change_feed.iceberg import SnapshotRange

    end = bookmark.next or bookmark.done
    found = SnapshotRange.of(table, branch, bookmark.done, end, asked.bounded())
    if at_end:
        found = replace(found, begin=None, path=())
    return changes_of(table.metadata.table_id, [found], found.columns, asked)


def branch_changes(
    table: IcebergTable,
    branch: str,
    from_: str | int | datetime | None,
    to: str | int | datetime | None,
    asked: ChangesRequest,
    asking: Asking[Answer] = changes_of,
) -> Answer:
    """The changes of a branch."""
    from deltacompact.change_feed.branch_bookmarks import end_of_bookmark
    from deltacompact.change_feed.iceberg import SnapshotRange

    found = SnapshotRange.of(table, branch, end_of_bookmark(table.metadata, from_), to, asked.bounded())
    return asking(table.metadata.table_id, [found], found.columns, asked)
