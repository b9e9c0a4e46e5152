"""Bookmarks of an Iceberg table: tags on the snapshots where a batch begins and ends.

bookmark.mirror           snapshot 7      done
bookmark.mirror.next      snapshot 9      given and not done
bookmark.audit.first      snapshot 9      a first batch was given, all rows; nothing is done

A property names the mirror that has what is done, or takes the first batch: deltacompact.bookmark.mirror.into. Another
one has the id of the schema by which its columns were named then, deltacompact.bookmark.mirror.schema, and one has the
columns and the filter that it asked for, deltacompact.bookmark.mirror.asked.

The catalog sets a tag only if it is still the one we saw: of two consumers one is refused, and looks again. Every
engine's expiry keeps a tag's snapshot for 30 days, however old it is; `maintain` also keeps the snapshots from there to
the head of the branch, which the feed reads.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from deltacompact.base.errors import ConflictError, DeltaCompactError, InputError, OutcomeUnknownError
from deltacompact.base.moments import moment_of
from deltacompact.base.wording import text_of
from deltacompact.change_feed.bookmark import (
    ALL_ROWS,
    FILES_KEPT_S,
    Bookmark,
    check_batch,
    checked_name,
    no_beginning,
    unknown,
    without_beginning,
)
from deltacompact.change_feed.iceberg import begin_of
from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.commit.patience import Patience
from deltacompact.iceberg.table.metadata import BOOKMARK_TAG, GIVEN_FIRST, GIVEN_NEXT, Ref, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import CommitThrottledError, CommitUnansweredError, IcebergTable

_TRIES = 20
_PROPERTIES = ("into", "schema", "asked")

AsOf = str | int | datetime | None


def bookmarks(metadata: TableMetadata) -> list[Bookmark[int]]:
    """All bookmarks of a table."""
    tags = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.kind == "tag"}
    names = {name.removeprefix(BOOKMARK_TAG).partition(".")[0] for name in tags if name.startswith(BOOKMARK_TAG)}
    return [_found(metadata, name) for name in sorted(names)]


def _found(metadata: TableMetadata, name: str) -> Bookmark[int]:
    done, following, first = (metadata.refs.get(_tag(name, ending)) for ending in ("", GIVEN_NEXT, GIVEN_FIRST))
    upcoming = following or first
    ends = [tag.snapshot_id if tag else None for tag in (done, upcoming)]
    into, schema, asked = (metadata.properties.get(_property(name, ending)) for ending in _PROPERTIES)
    schema_id = int(schema) if schema and schema.isdecimal() else None
    return Bookmark(name, ends[0], ends[1], _set_ms(metadata, upcoming or done), into, schema_id, asked)


def _whole(metadata: TableMetadata, name: str) -> Bookmark[int]:
    """One bookmark. Raises InputError if the tag of its beginning is lost: as a first batch it would lack deletes."""
    if _tag(name, GIVEN_NEXT) in metadata.refs and _tag(name) not in metadata.refs:
        raise InputError(
            f"table {metadata.table_id!r}: the tag {_tag(name)!r} is gone, where the batch of bookmark {name!r} "
            f"begins: drop the bookmark, and say where to begin with --from ({ALL_ROWS})"
        )
    return _found(metadata, name)


def _tag(name: str, ending: str = "") -> str:
    return f"{BOOKMARK_TAG}{name}{ending}"


def _property(name: str, ending: str) -> str:
    return f"deltacompact.{_tag(name)}.{ending}"


def _set_ms(metadata: TableMetadata, tag: Ref | None) -> int | None:
    """When a tag was set. Its maximum age is the age that its snapshot had then, plus 30 days."""
    if tag is None or tag.max_ref_age_ms is None:
        return None
    return metadata.snapshots[tag.snapshot_id].timestamp_ms + tag.max_ref_age_ms - FILES_KEPT_S * 1000


def batch_for(table: IcebergTable, name: str, from_: AsOf, to: AsOf, branch: str) -> tuple[IcebergTable, Bookmark[int]]:
    """The batch for a consumer: the one that it was given before, or the next. If nothing is new: without `next`.

    Raises NotFoundError for an unknown bookmark if no beginning is given, InputError where a tag was lost.
    """
    checked_name(name)
    for attempt in range(1, _TRIES + 1):
        metadata = table.metadata
        known = _whole(metadata, name)
        is_open, is_unsigned = known.next is not None, known.is_unsigned(time.time())
        is_new = known.done is None and not is_open
        if is_new:
            if from_ is None:
                raise without_beginning(metadata.table_id, name)
            since = end_of_bookmark(metadata, from_)
            begin = None if since is None else begin_of(metadata, since, branch)
            known = Bookmark(name, begin.snapshot_id if begin else None)
        if not is_open:
            head = metadata.branch(branch) if to is None else snapshot_as_of(metadata, to, branch)
            known = replace(known, next=head.snapshot_id if head and head.snapshot_id != known.done else None)
        # A table without snapshots has none that a tag of a new bookmark could name.
        is_put = is_open or (known.next is None and (known.done is None or not is_new))
        if is_put and not is_unsigned:
            return table, known
        try:
            return _moved(table, name, replace(known, time_ms=None))
        except ConflictError as error:
            table = _again(table, name, attempt, error)
    raise AssertionError("the last attempt raises")


def end_of_bookmark(metadata: TableMetadata, from_: AsOf) -> AsOf:
    """If `from_` names a bookmark (and no branch or tag): where its consumer's last batch ended; else `from_`.

    Raises NotFoundError for a text that names nothing.
    """
    if not isinstance(from_, str) or from_ in metadata.refs:
        return from_
    known = _whole(metadata, from_)
    if known.done is not None or known.next is not None:
        return known.done
    if from_.isdecimal() or moment_of(from_) is not None:
        return from_
    names = [bookmark.name for bookmark in bookmarks(metadata)]
    raise no_beginning(metadata.table_id, from_, "snapshot, branch, tag, time", names)


def taken(table: IcebergTable, batch: Bookmark[int], into: str | None, asked: str | None) -> Bookmark[int]:
    """Record which mirror takes a batch, and what was asked, before it has the rows. The batch stays the same.

    Raises ConflictError if another consumer has moved the bookmark.
    """
    check_batch(table.metadata.table_id, _found(table.metadata, batch.name), batch)
    wanted = batch.of_mirror(into, asked)
    if wanted != batch:
        _moved_from(table, batch, wanted)
    return wanted


def committed(
    table: IcebergTable,
    name: str,
    batch: Bookmark[int] | None = None,
    into: str | None = None,
    schema_id: int | None = None,
    asked: str | None = None,
) -> bool:
    """Record that the batch is done, and return whether one was open.

    `into` a mirror, whose columns a schema has named, and which has what was `asked`.

    Raises NotFoundError for an unknown bookmark, ConflictError if another consumer came first.
    """
    if checked_name(name) and not table.metadata.snapshots:  # no tag tells of a batch that was given: it had no rows
        return False
    known = _known(table.metadata, name)
    check_batch(table.metadata.table_id, known, batch)
    if known.next is None:
        return False
    named = known.schema_id if schema_id is None else schema_id
    taken_by = known.of_mirror(into, asked)
    _moved_from(table, known, replace(taken_by, done=known.next, next=None, time_ms=None, schema_id=named))
    return True


def dropped(table: IcebergTable, name: str) -> None:
    """Forget a bookmark. Raises NotFoundError for an unknown one, ConflictError if its consumer moves it just now."""
    _moved_from(table, _known(table.metadata, name), Bookmark(name, None))


def _moved_from(table: IcebergTable, known: Bookmark[int], wanted: Bookmark[int]) -> None:
    """Move a bookmark, whatever others commit meanwhile, unless they move or remove it."""
    for attempt in range(1, _TRIES + 1):
        try:
            _moved(table, known.name, wanted)
            return
        except ConflictError as error:
            table = _again(table, known.name, attempt, error)
            check_batch(table.metadata.table_id, _found(table.metadata, known.name), known)


def _again(table: IcebergTable, name: str, attempt: int, error: ConflictError) -> IcebergTable:
    """The table as it is now, for another attempt, after a pause. Raises ConflictError after the last one."""
    if attempt == _TRIES:
        raise ConflictError(
            f"{table.metadata.table_id}: bookmark {name!r} could not be moved, again and again ({text_of(error)})"
        ) from error
    is_lost = not isinstance(error, CommitThrottledError)
    time.sleep(Patience.of(table.metadata.properties).wait_s(attempt, is_lost))
    return table.reloaded()


def _known(metadata: TableMetadata, name: str) -> Bookmark[int]:
    known = _found(metadata, checked_name(name))
    if known.done is None and known.next is None:
        raise unknown(metadata.table_id, name)
    return known


def _moved(table: IcebergTable, name: str, wanted: Bookmark[int]) -> tuple[IcebergTable, Bookmark[int]]:
    given_as, other = (GIVEN_FIRST, GIVEN_NEXT) if wanted.done is None else (GIVEN_NEXT, GIVEN_FIRST)
    tags = {_tag(name): wanted.done, _tag(name, given_as): wanted.next, _tag(name, other): None}
    set_ms = wanted.time_ms or int(time.time() * 1000)
    said = (wanted.into, None if wanted.schema_id is None else str(wanted.schema_id), wanted.asked)
    properties = {_property(name, ending): text for ending, text in zip(_PROPERTIES, said, strict=True)}
    try:
        return table.tag(tags, set_ms + FILES_KEPT_S * 1000, properties), wanted
    except DeltaCompactError as error:  # it may answer a second sending of our request
        table = table.reloaded()
        is_dropped = wanted.done is None and wanted.next is None
        if _found(table.metadata, name) == replace(wanted, time_ms=None if is_dropped else set_ms):
            return table, wanted
        if isinstance(error, CommitUnansweredError):
            raise OutcomeUnknownError(
                f"{table.metadata.table_id}: the catalog did not say whether bookmark {name!r} was moved: "
                f"run it again ({text_of(error)})"
            ) from error
        raise
