"""Decides which snapshots, branches and tags expire, by the rules of Iceberg's own expiry: a pure function.

    main     7 <- 8 <- 9 (head)      older than 5 days: 7, 8       7 and 8 expire, the head never
    audit    8                       keeps 2 snapshots             8 and 7 stay after all
    v1       tag of 7, max age 1 d   8 days old                    the tag goes, and with it what it held
    bookmark.mirror  tag of 7        a consumer is there           8 and 9 stay: its feed goes through them

1. A branch or tag goes if its snapshot is older than its own maximum age, else the table's. main never goes.
2. A branch keeps its newest snapshots up to its minimum, and those that are young enough; by its own rules, else the
   table's. A tag keeps its one snapshot.
3. A snapshot that no branch or tag ever led to, such as a staged one, stays as long as it is young.
4. A rule of ours: snapshots after a bookmark stay as long as the bookmark. Without the `replace` snapshots in between,
   a feed would read every rewritten file, and could not tell commits apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deltacompact.base.wording import counted
from deltacompact.iceberg.commit.expiry import Expiry
from deltacompact.iceberg.table.metadata import (
    BOOKMARK_TAG,
    GIVEN_FIRST,
    GIVEN_NEXT,
    MAIN,
    Ref,
    Snapshot,
    TableMetadata,
)
from deltacompact.iceberg_modes.maintain.options import MaintainOptions


def plan_expiry(metadata: TableMetadata, options: MaintainOptions, now_ms: int) -> Expiry:
    """What expires of a table at this moment."""
    stays = {name: ref for name, ref in metadata.refs.items() if _ref_stays(name, ref, metadata, options, now_ms)}
    kept: set[int] = set()
    led_to: set[int] = set()
    bookmarks = {name: ref for name, ref in stays.items() if ref.kind == "tag" and name.startswith(BOOKMARK_TAG)}
    for ref in stays.values():
        if ref.kind == "branch":
            line = list(metadata.ancestors(metadata.snapshots.get(ref.snapshot_id)))
            kept.update(_kept_of_branch(line, ref, options, now_ms), _kept_for_consumers(line, bookmarks))
            led_to |= {snapshot.snapshot_id for snapshot in line}
        else:
            kept.add(ref.snapshot_id)
            led_to.add(ref.snapshot_id)
    youngest_gone = now_ms - options.snapshot_age_ms
    kept |= {
        number
        for number, snapshot in metadata.snapshots.items()
        if number not in led_to and snapshot.timestamp_ms >= youngest_gone
    }
    return Expiry(frozenset(metadata.snapshots.keys() - kept), frozenset(metadata.refs.keys() - stays.keys()))


def why_nothing(metadata: TableMetadata, options: MaintainOptions) -> str:
    """Why nothing expires."""
    if not metadata.snapshots:
        return "the table has no snapshots"
    hours = options.snapshot_age_ms / 3_600_000
    snapshots = counted(len(metadata.snapshots), "snapshot")
    return f"none of {snapshots}: each is younger than {hours:g} hours, or kept by a branch, tag or bookmark"


def _ref_stays(name: str, ref: Ref, metadata: TableMetadata, options: MaintainOptions, now_ms: int) -> bool:
    age_max = options.ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    snapshot = metadata.snapshots.get(ref.snapshot_id)
    return name == MAIN or age_max is None or (snapshot is not None and now_ms - snapshot.timestamp_ms <= age_max)


def _kept_of_branch(line: Sequence[Snapshot], ref: Ref, options: MaintainOptions, now_ms: int) -> Iterator[int]:
    """The snapshots of a branch (`line`, the head first) that its rules keep."""
    age_max = options.snapshot_age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
    least = options.keep_snapshots if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    for number, snapshot in enumerate(line):
        if number >= max(1, least) and now_ms - snapshot.timestamp_ms > age_max:
            return
        yield snapshot.snapshot_id


def _kept_for_consumers(line: Sequence[Snapshot], bookmarks: Mapping[str, Ref]) -> set[int]:
    """The snapshots of a branch (`line`, the head first) from the head down to the oldest bookmark's."""
    places = {snapshot.snapshot_id: place for place, snapshot in enumerate(line)}
    beginning = len(line) if line and line[-1].parent_id is None else 0
    count = 0
    for name, tag in bookmarks.items():
        if tag.snapshot_id in places and not name.endswith(GIVEN_NEXT):
            count = max(count, beginning if name.endswith(GIVEN_FIRST) else places[tag.snapshot_id] + 1)
    return {snapshot.snapshot_id for snapshot in line[:count]}
