"""What earlier upserts of a branch have done already, as its snapshots say: pure.

    5 append      through -       6 append, landed while we worked
    7 ours        "deltacompact.upserted-through": 5, "deltacompact.upserted": "key 1; scope table"
    head is 7     6 added rows after 5: its files have to be compared
    head is 8     replaced files: nothing was added
    head is 9     an append, too: files with a file sequence number above 5 are new

A snapshot of ours says up to which sequence number all rows have been compared with each other, and by which columns.
Rows that lost stay dead, so another run by the same columns compares only what came later, with everything of the same
keys. Only ancestors of the head count: after a rollback behind our snapshot, it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from deltacompact.catalog.iceberg.table.content_files import Entry
from deltacompact.catalog.iceberg.table.metadata import Snapshot, TableMetadata

THROUGH = "deltacompact.upserted-through"
"""In a snapshot's summary: the sequence number up to which all rows have been compared."""
COLUMNS = "deltacompact.upserted"
"""In a snapshot's summary: by which columns, and within what a key is unique."""


@dataclass(frozen=True, slots=True)
class Settled:
    """All rows of files up to this file sequence number have been compared. `snapshot_id` is the one that says so.

    No rows have come up to the sequence number `until`. `has_grown`: later ones may have come since.
    """

    through: int
    snapshot_id: int
    until: int
    has_grown: bool


def settled(metadata: TableMetadata, head: Snapshot | None, recorded: str) -> Settled | None:
    """What the newest upsert by the same columns has settled. None: there is none among the head's ancestors."""
    line = list(metadata.ancestors(head))
    ours = next((snapshot for snapshot in line if snapshot.summary.get(COLUMNS) == recorded), None)
    if ours is None:
        return None
    through = int(ours.summary[THROUGH])
    later = list(takewhile(lambda snapshot: snapshot.sequence_number > through, line))
    if line[-1].sequence_number > through + 1:  # snapshots in between have been expired
        return Settled(through, ours.snapshot_id, through, True)
    growing = [snapshot.sequence_number for snapshot in later if _may_add_rows(snapshot)]
    until = min(growing) - 1 if growing else line[0].sequence_number
    return Settled(through, ours.snapshot_id, until, bool(growing))


def has_merged_commits(metadata: TableMetadata, entry: Entry) -> bool:
    """Whether the file may have rows of several commits without saying of which: it replaced others.

    Its file sequence number is greater than that of its rows, or the snapshot that added it removed data files. In
    version 3 each row has the number of its own commit.
    """
    if entry.file.first_row_id is not None:
        return False
    if entry.file_sequence_number is not None and entry.file_sequence_number > entry.sequence:
        return True
    adding = metadata.snapshots.get(entry.snapshot_id or 0)
    return adding is not None and int(adding.summary.get("deleted-data-files", "0")) > 0


def _may_add_rows(snapshot: Snapshot) -> bool:
    """Whether rows may have come with the snapshot. Our own modes say what they add."""
    if snapshot.summary.get("operation") in ("replace", "delete"):
        return False
    return not snapshot.is_ours or int(snapshot.summary.get("added-data-files", "0")) > 0
