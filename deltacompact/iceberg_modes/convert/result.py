"""What a conversion did, in numbers and in words.

585 equality-delete files -> 4 delete files with 17 rows, snapshot 8123
keys of 4 data files with 4,000,000 rows were looked up
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.wording import counted
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.convert.proposals import ConvertOutcome
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.words import snapshots_of, whole_result


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

    @property
    def rows_read(self) -> int:
        return self.rows_asked

    def __str__(self) -> str:
        """What `compact` prints."""
        removed = counted(self.equality_deletes_removed, "equality-delete file")
        written = counted(self.delete_files_written, "delete file")
        files = counted(self.data_files_asked, "data file")
        lines = [
            f"{removed} -> {written} with {counted(self.rows_marked, 'row')}, snapshot {snapshots_of(self)}",
            f"keys of {files} with {counted(self.rows_asked, 'row')} were looked up",
        ]
        if self.delete_files_superseded:
            lines.append(f"superseded: {counted(self.delete_files_superseded, 'delete file')}")
        if self.equality_deletes_left:
            lines.append(
                f"stay: {counted(self.equality_deletes_left, 'equality-delete file')}, other commits came meanwhile"
            )
        return "\n".join(whole_result(self, lines, "not converted"))

    def count(self, done: Committed[ConvertOutcome]) -> None:
        """Add what a commit brought."""
        ModeResult.count(self, done)
        self.equality_deletes_left = done.outcome.left
        if done.snapshot is None:
            return
        self.equality_deletes_removed += done.outcome.removed
        self.rows_marked += sum(mark.new_rows for mark in done.outcome.marks)
        self.delete_files_written += len(done.outcome.marks)
        self.delete_files_superseded += done.outcome.superseded
