"""Going back: an older snapshot becomes the head of its branch again.

main     7 <- 8 <- 9      back to 8      main  7 <- 8      9 is no branch's any more: `maintain --expire-snapshots`

Nothing is written but the branch. What upserts have settled is asked of the history of the head, so it is right after
a rollback, too (settled.py).
"""

from __future__ import annotations

from datetime import datetime

from deltacompact.base.errors import InputError, OutcomeUnknownError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.history import SnapshotMade
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import CommitUnansweredError, IcebergTable


def rollback(table: IcebergTable, as_of: str | int | datetime, branch: str) -> SnapshotMade:
    """Make the snapshot that `as_of` names the head of the branch. Returns what made it.

    Raises InputError for one that the branch does not descend from, ConflictError where another commit came first, and
    OutcomeUnknownError where the catalog did not say what it did.
    """
    wanted = _ancestor(table.metadata, as_of, branch)
    try:
        table.move(branch, wanted.snapshot_id)
    except CommitUnansweredError as error:
        if table.reloaded().metadata.branch(branch) != wanted:
            raise OutcomeUnknownError(
                f"{table.metadata.table_id}: the catalog did not say whether branch {branch!r} was rolled back; look "
                f"at its history, and roll back again ({text_of(error)})"
            ) from error
    return SnapshotMade.of(wanted)


def _ancestor(metadata: TableMetadata, as_of: str | int | datetime, branch: str) -> Snapshot:
    head, wanted = metadata.branch(branch), snapshot_as_of(metadata, as_of, branch)
    if head is None or wanted.snapshot_id == head.snapshot_id:
        raise InputError(f"snapshot {wanted.snapshot_id} is the head of branch {branch!r}: nothing came since")
    if wanted not in metadata.ancestors(head):
        raise InputError(f"branch {branch!r} of {metadata.table_id!r} does not descend from {wanted.snapshot_id}")
    return wanted
