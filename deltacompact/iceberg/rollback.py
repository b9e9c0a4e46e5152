"""Going back: an older snapshot becomes the head of its branch again.

main     7 <- 8 <- 9      back to 8      main  7 <- 8      9 is no branch's any more: `maintain --expire-snapshots`
main     7 <- 8           to 9           main  7 <- 8 <- 9      the rollback is undone

Nothing is written but the branch. What upserts have settled is asked of the history of the head, so it is right after
a rollback, too (settled.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from deltacompact.base.errors import DeltaCompactError, InputError, OutcomeUnknownError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.as_of import snapshot_as_of
from deltacompact.iceberg.history import SnapshotMade
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import CommitUnansweredError, IcebergTable


def rollback(table: IcebergTable, as_of: str | int | datetime, branch: str) -> SnapshotMade:
    """Make the snapshot that `as_of` names the head of the branch. Returns what made it, and the head before.

    Raises InputError unless it is an ancestor of the head, or the other way round, ConflictError where another commit
    came first, and OutcomeUnknownError where the catalog did not say what it did.
    """
    head, wanted = _heads(table.metadata, as_of, branch)
    try:
        table.move(branch, wanted.snapshot_id)
    except DeltaCompactError as error:  # it may answer a second sending of our request
        if table.reloaded().metadata.branch(branch) != wanted:
            if not isinstance(error, CommitUnansweredError):
                raise
            raise OutcomeUnknownError(
                f"{table.metadata.table_id}: the catalog did not say whether branch {branch!r} was rolled back; look "
                f"at its history, and roll back again ({text_of(error)})"
            ) from error
    return replace(SnapshotMade.of(wanted), former_head=head.snapshot_id)


def _heads(metadata: TableMetadata, as_of: str | int | datetime, branch: str) -> tuple[Snapshot, Snapshot]:
    """The head, and the wanted one."""
    head, wanted = metadata.branch(branch), snapshot_as_of(metadata, as_of, branch)
    if head is None or wanted.snapshot_id == head.snapshot_id:
        raise InputError(f"snapshot {wanted.snapshot_id} is the head of branch {branch!r}: nothing came since")
    if wanted not in metadata.ancestors(head) and head not in metadata.ancestors(wanted):
        raise InputError(f"branch {branch!r} of {metadata.table_id!r} does not descend from {wanted.snapshot_id}")
    return head, wanted
