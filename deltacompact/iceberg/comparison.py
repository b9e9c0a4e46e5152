"""Which two snapshots of a branch must have the same rows: pure.

    7 append      another writer's        the rows that must be there
    8 overwrite   ours: convert           same rows
    9 replace     ours: rewrite           same rows          compare 9 with 7
   10 overwrite   ours: upsert            fewer rows, by design: compared only if both are named

Snapshots of ours say so in their summary. Batches of rows and publications are not compactions.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.iceberg.settled import COLUMNS
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two snapshots to compare; or why there is nothing to compare."""

    before: int | None
    after: int | None
    nothing_to_do: str | None = None


def comparison(metadata: TableMetadata, branch: str, before: int | None = None, after: int | None = None) -> Comparison:
    """The snapshots to compare: the named ones. By default `after` is our newest compaction. `before` is its parent;
    if other compactions of ours came right before it, the parent of the first of these. If that has expired, it is
    the oldest of these compactions that is left.

    Raises NotFoundError for a snapshot that is unknown or has expired.
    """
    head = metadata.branch(branch)
    if head is None:
        return Comparison(None, None, "the branch has no snapshot")
    newest = head if after is None else _snapshot_named(metadata, after)
    if before is not None:
        return Comparison(_snapshot_named(metadata, before).snapshot_id, newest.snapshot_id)
    if after is None:
        while not newest.is_upkeep:
            parent = metadata.snapshots.get(newest.parent_id or 0)
            if parent is None:
                return Comparison(None, None, "no compaction of ours is among the snapshots of the branch")
            newest = parent
    if COLUMNS in newest.summary:
        raise InputError(
            f"snapshot {newest.snapshot_id} of {metadata.table_id!r} is an upsert, which removes rows by design: "
            "name the snapshots to compare by --before and --after"
        )
    oldest = newest
    while oldest.is_upkeep and COLUMNS not in oldest.summary:
        parent = metadata.snapshots.get(oldest.parent_id or 0)
        if parent is None:
            if oldest is not newest:
                break
            raise NotFoundError(
                f"the snapshot that {oldest.snapshot_id} of {metadata.table_id!r} compacted has expired, so nothing "
                "is left to compare it with"
            )
        oldest = parent
    if oldest is newest:
        raise InputError(
            f"snapshot {newest.snapshot_id} of {metadata.table_id!r} is no compaction of ours: name --before"
        )
    return Comparison(oldest.snapshot_id, newest.snapshot_id)


def _snapshot_named(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    found = metadata.snapshots.get(snapshot_id)
    if found is None:
        raise NotFoundError(f"table {metadata.table_id!r} has no snapshot {snapshot_id}")
    return found
