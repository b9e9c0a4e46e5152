"""What a rewrite did, counted as its snapshots are committed, and in words.

12 files -> 1 file, 46.9 KiB -> 30.3 KiB, snapshot 8123
1,200 rows = 1,150 live + 30 deleted by position + 20 deleted by key; 4 delete files removed
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltacompact.base.wording import counted, size
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.rewrite.proposals import RewriteOutcome
from deltacompact.iceberg_modes.words import snapshots_of, whole_result


@dataclass(slots=True, repr=False)
class RewriteResult(ModeResult):
    """What a rewrite did. Rows of the inputs = rows that live in the outputs + rows dead by position + by key.

    `dead_meanwhile`: rows of the outputs that others deleted before the commit, so that they are marked there.
    """

    groups: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_by_position: int = 0
    dead_by_key: int = 0
    dead_meanwhile: int = 0
    delete_files_removed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def rows_read(self) -> int:
        return self.rows_in

    def __str__(self) -> str:
        """What `compact` prints."""
        files = f"{counted(self.files_in, 'file')} -> {counted(self.files_out, 'file')}"
        dead = f"{self.dead_by_position:,} deleted by position + {self.dead_by_key:,} deleted by key"
        removed = counted(self.delete_files_removed, "delete file")
        lines = [
            f"{files}, {size(self.bytes_in)} -> {size(self.bytes_out)}, snapshot {snapshots_of(self)}",
            f"{counted(self.rows_in, 'row')} = {self.rows_out:,} live + {dead}; {removed} removed",
        ]
        if self.dead_meanwhile:
            lines.append(
                f"{counted(self.dead_meanwhile, 'row')} that others deleted meanwhile: marked in the new files"
            )
        return "\n".join(whole_result(self, lines, "not rewritten"))

    def count(self, done: Committed[RewriteOutcome]) -> None:
        """Add what a commit brought."""
        ModeResult.count(self, done)
        if done.snapshot is None:
            return
        self.delete_files_removed += done.outcome.removed_deletes
        self.dead_meanwhile += sum(mark.new_rows for mark in done.outcome.marks)
        for rewritten in done.outcome.groups:
            self.groups += 1
            self.files_in += len(rewritten.group.inputs)
            self.files_out += len(rewritten.outputs)
            self.bytes_in += rewritten.group.bytes
            self.bytes_out += sum(file.file_bytes for file in rewritten.outputs)
            self.rows_in += rewritten.group.rows
            self.rows_out += rewritten.rows
            self.dead_by_position += rewritten.dead_by_position
            self.dead_by_key += rewritten.dead_by_key
            for source in rewritten.group.inputs:
                reason = source.reason.value
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
