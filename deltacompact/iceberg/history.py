"""The history of a branch: what made each snapshot, when, and how many rows and files it added and removed.

7757497569257380734    append     +3,000 rows    +1 file             another writer's
8120394857261534902    replace    0 rows         +1 file  -12        ours: session 5c5c…, attempt run-1/3/1

All of it is read from the snapshots' summaries. Writers need not count, so a count may be None.
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
    """A snapshot, and the operation that made it: "append", "overwrite", "delete", or "replace".

    `time` is by the committer's clock. `summary` is the snapshot's own, with Iceberg's names. Counts are of data files;
    None: the writer did not count. `former_head`: where a rollback left from.
    """

    snapshot_id: int
    time: datetime
    operation: str
    summary: Mapping[str, str]
    former_head: int | None = None

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
        """The rows in removed files. Writers do not count the rows that deletes hit."""
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
        """The deltacompact session that committed it, if one did."""
        return self.summary.get(SESSION)

    @property
    def attempt(self) -> str | None:
        """The scheduler's name of the session's attempt: "run-1/3/1"."""
        return self.summary.get(ATTEMPT)

    def _count(self, name: str, total: str) -> int | None:
        """A count of the summary. A writer that counts has `total`, and may leave out a count of 0."""
        found = self.summary.get(name, "0" if total in self.summary else "")
        return int(found) if found.isdecimal() else None


def history(metadata: TableMetadata, branch: str) -> list[SnapshotMade]:
    """The snapshots of a branch that have not been expired, the oldest first."""
    return [*map(SnapshotMade.of, metadata.ancestors(metadata.branch(branch)))][::-1]
