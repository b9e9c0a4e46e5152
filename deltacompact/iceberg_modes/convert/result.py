"""What a conversion did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.convert.proposals import ConvertOutcome
from deltacompact.iceberg_modes.convert.words import result_lines
from deltacompact.iceberg_modes.result import ModeResult


@dataclass(slots=True, repr=False)
class ConvertResult(ModeResult):
    """What a conversion did.

    equality_deletes_removed    equality-delete files that are gone
    equality_deletes_left       those that stay: they may apply to data files that came meanwhile, or that were given up
    data_files_asked            data files whose keys were looked up, and their rows
    rows_marked                 rows that are newly deleted by position
    delete_files_written        position-delete files, or deletion vectors
    delete_files_superseded     deletes by position whose rows are in a new deletion vector
    """

    equality_deletes_removed: int = 0
    equality_deletes_left: int = 0
    data_files_asked: int = 0
    rows_asked: int = 0
    rows_marked: int = 0
    delete_files_written: int = 0
    delete_files_superseded: int = 0

    def __str__(self) -> str:
        """What `compact` prints."""
        return "\n".join(result_lines(self))

    def count(self, done: Committed[ConvertOutcome]) -> None:
        """Add what a commit brought."""
        self.equality_deletes_left = done.outcome.left
        if done.snapshot is None:
            return
        self.snapshots.append(done.snapshot.snapshot_id)
        self.equality_deletes_removed += done.outcome.removed
        self.rows_marked += sum(mark.new_rows for mark in done.outcome.marks)
        self.delete_files_written += len(done.outcome.marks)
        self.delete_files_superseded += done.outcome.superseded
