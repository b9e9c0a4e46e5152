"""What made each snapshot of a branch, when, and what it brought and took.

7757497569257380734    append     +3,000 rows    +1 file             somebody's
8120394857261534902    replace    0 rows         +1 file  -12        ours: session 5c5c…, attempt run-1/3/1

The summaries of the snapshots say it. Writers need not count, so a count may be None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from deltacompact.base.moments import moment_at, spelled
from deltacompact.iceberg.commit.attempts import ATTEMPT
from deltacompact.iceberg.table.metadata import SESSION, Snapshot, TableMetadata


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotMade:
    """A snapshot, and what made it: "append", "overwrite", "delete", or "replace".

    `time` is by the clock of whoever committed it. `summary` is what the snapshot says of itself, by Iceberg's names.
    Counts are of data files; None: the writer did not count.
    """

    snapshot_id: int
    time: datetime
    operation: str
    summary: Mapping[str, str]

    def __repr__(self) -> str:
        counts = ((self.rows_added, "+"), (self.rows_removed, "-"))
        rows = " ".join(f"{sign}{count:,}" for count, sign in counts if count) or "0"
        return f"snapshot {self.snapshot_id}: {self.operation} at {spelled(self.time)}, rows {rows}"

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotMade:
        time = moment_at(snapshot.timestamp_ms)
        return cls(snapshot.snapshot_id, time, snapshot.summary.get("operation", ""), snapshot.summary)

    @property
    def rows_added(self) -> int | None:
        return self._count("added-records", "total-records")

    @property
    def rows_removed(self) -> int | None:
        """Those in removed files; rows that deletes hit are not counted by writers."""
        return self._count("deleted-records", "total-records")

    @property
    def files_added(self) -> int | None:
        return self._count("added-data-files", "total-data-files")

    @property
    def files_removed(self) -> int | None:
        return self._count("deleted-data-files", "total-data-files")

    @property
    def delete_files_added(self) -> int | None:
        return self._count("added-delete-files", "total-delete-files")

    @property
    def delete_files_removed(self) -> int | None:
        return self._count("removed-delete-files", "total-delete-files")

    @property
    def bytes_added(self) -> int | None:
        return self._count("added-files-size", "total-files-size")

    @property
    def bytes_removed(self) -> int | None:
        return self._count("removed-files-size", "total-files-size")

    @property
    def session(self) -> str | None:
        """The session of ours that committed it."""
        return self.summary.get(SESSION)

    @property
    def attempt(self) -> str | None:
        """The scheduler's name of that session."""
        return self.summary.get(ATTEMPT)

    def _count(self, name: str, total: str) -> int | None:
        """A count of the summary. Writers leave out what is 0, if they count at all: then they have the total."""
        found = self.summary.get(name, "0" if total in self.summary else "")
        return int(found) if found.isdecimal() else None


def history(metadata: TableMetadata, branch: str) -> list[SnapshotMade]:
    """The snapshots of a branch that have not been expired, the oldest first."""
    return [*map(SnapshotMade.of, metadata.ancestors(metadata.branch(branch)))][::-1]
