"""What an upsert did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.upsert.proposals import UpsertOutcome
from deltacompact.iceberg_modes.upsert.words import result_lines


@dataclass(slots=True, repr=False)
class UpsertResult(ModeResult):
    """What an upsert did. Rows that were compared = keys that live + superseded rows + rows that deleted their key.

    `rows_superseded` includes rows of keys whose newest row is a delete.
    """

    compared_by: str = ""
    files: int = 0
    files_marked: int = 0
    rows_compared: int = 0
    keys: int = 0
    rows_superseded: int = 0
    rows_deleting: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0

    def __str__(self) -> str:
        """What `compact` prints."""
        return "\n".join(result_lines(self))

    def count(self, done: Committed[UpsertOutcome]) -> None:
        """Add what one commit did. A key space that is refused is counted when it is compared again."""
        if done.snapshot is not None and done.outcome.paths:
            self.snapshots.append(done.snapshot.snapshot_id)
        elif done.snapshot is not None:
            self.notes.append(f"snapshot {done.snapshot.snapshot_id} changes no file: it says what has been compared")
        self.delete_files_removed += done.outcome.removed_deletes
        for marked in done.outcome.spaces:
            self.delete_files_added += len(marked.marks)
            for one in marked.space.inputs:
                self.files += 1
                self.files_marked += one.file.dead > 0
                self.rows_compared += one.file.live + one.file.dead
                self.keys += one.file.live
                self.rows_superseded += one.file.superseded
                self.rows_deleting += one.file.deletes
