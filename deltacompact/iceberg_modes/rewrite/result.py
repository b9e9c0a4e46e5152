"""What a rewrite did, counted as its snapshots are committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.rewrite.proposals import RewriteOutcome
from deltacompact.iceberg_modes.rewrite.words import result_lines


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

    def __str__(self) -> str:
        """What `compact` prints."""
        return "\n".join(result_lines(self))

    def count(self, done: Committed[RewriteOutcome]) -> None:
        """Add what a commit brought."""
        if done.snapshot is None:
            return
        self.snapshots.append(done.snapshot.snapshot_id)
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
