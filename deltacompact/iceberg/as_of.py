"""Which snapshot is meant: by its id, by a branch or tag, or by a time. Pure.

"audit", "2026-11-22"    the head of the branch, or the snapshot of the tag, if the table has one of this name
"7757497569257380734"    the snapshot with this id, on whatever branch
"2026-11-22 09:10"       the head that the branch had then: its newest ancestor of that time
"""

from __future__ import annotations

from datetime import datetime

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.moments import milliseconds_of, moment_at, moment_of, spelled
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata


def snapshot_as_of(metadata: TableMetadata, as_of: str | int | datetime, branch: str) -> Snapshot:
    """The named snapshot. Raises NotFoundError for a missing one, and names the oldest snapshot that is left."""
    if isinstance(as_of, bool):
        raise InputError(f"as_of is {as_of!r}, it must be a snapshot's id, a branch, a tag or a time")
    if isinstance(as_of, str) and (ref := metadata.refs.get(as_of)) is not None:
        return metadata.snapshots[ref.snapshot_id]
    if not isinstance(as_of, int) and (moment := moment_of(as_of)) is not None:
        return _snapshot_at(metadata, branch, moment)
    text = str(as_of)
    if text.isdecimal() and (found := metadata.snapshots.get(int(text))) is not None:
        return found
    kind = "snapshot" if text.isdecimal() else "branch, tag or snapshot"
    raise NotFoundError(f"table {metadata.table_id!r} has no {kind} {text!r}{_oldest_left(metadata, branch)}")


def _snapshot_at(metadata: TableMetadata, branch: str, moment: datetime) -> Snapshot:
    time_ms = milliseconds_of(moment)
    for snapshot in metadata.ancestors(metadata.branch(branch)):
        if snapshot.timestamp_ms <= time_ms:
            return snapshot
    left = _oldest_left(metadata, branch)
    raise NotFoundError(f"branch {branch!r} of {metadata.table_id!r} has no snapshot of {spelled(moment)}{left}")


def _oldest_left(metadata: TableMetadata, branch: str) -> str:
    ref = metadata.refs.get(branch)
    ancestors = list(metadata.ancestors(metadata.snapshots[ref.snapshot_id])) if ref else []
    if not ancestors:
        return ""
    oldest = ancestors[-1]
    return f" (the oldest that is left: {oldest.snapshot_id}, of {spelled(moment_at(oldest.timestamp_ms))})"
