"""What an upsert did: counts, and the lines that `compact` prints.

1,000 rows of 12 files = 700 keys + 280 superseded + 20 deleting rows
marked in 9 files: 9 delete files, snapshot 8123
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.wording import counted
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.upsert.proposals import UpsertOutcome
from deltacompact.iceberg_modes.words import snapshots_of, whole_result


@dataclass(slots=True, repr=False)
class UpsertResult(ModeResult):
    """What an upsert did: rows_compared = keys + rows_superseded + rows_deleting.

    keys               rows that live: one for each key
    rows_superseded    rows with a newer row of their key, which may be a delete
    rows_deleting      rows that delete their key
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

    @property
    def rows_read(self) -> int:
        return self.rows_compared

    def __str__(self) -> str:
        """What `compact` prints."""
        parts = f"{counted(self.keys, 'key')} + {self.rows_superseded:,} superseded + {self.rows_deleting:,} deleting"
        added = counted(self.delete_files_added, "delete file")
        lines = [
            f"{counted(self.rows_compared, 'row')} of {counted(self.files, 'file')} = {parts} rows",
            f"marked in {counted(self.files_marked, 'file')}: {added}, snapshot {snapshots_of(self)}",
        ]
        if self.delete_files_removed:
            lines.append(f"superseded: {counted(self.delete_files_removed, 'delete file')}")
        return "\n".join(whole_result(self, lines, "not marked"))

    def count(self, done: Committed[UpsertOutcome]) -> None:
        """Add what one commit did. A refused key space is counted when it has been compared again."""
        if done.snapshot is not None and done.outcome.paths:
            self.snapshots.append(done.snapshot.snapshot_id)
        elif done.snapshot is not None:
            self.notes.append(f"snapshot {done.snapshot.snapshot_id} changes no file: it says what has been compared")
        self.delete_files_removed += done.outcome.removed_deletes
        for marked in done.outcome.spaces:
            self.delete_files_added += len(marked.marks)
            for compared in marked.space.inputs:
                self.files += 1
                self.files_marked += compared.file.dead > 0
                self.rows_compared += compared.file.live + compared.file.dead
                self.keys += compared.file.live
                self.rows_superseded += compared.file.superseded
                self.rows_deleting += compared.file.deletes
