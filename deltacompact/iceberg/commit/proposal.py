"""What one snapshot would change on one head: pure values.

    head 8      a, b, c live, p deletes rows of a
    proposal    "replace"    removed a, p    added y with sequence number 5    outcome: the groups that are in it

A mode gives the committer a function from the current head to a proposal. The committer calls it on the head of each
attempt, so it must be pure and quick: the slow work is done before. If it has to read what others deleted, it keeps
that for the next head, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.settled import Memory
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry, Status
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT, Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import TableState

REPLACE = "replace"
"""The operation of a snapshot after which the branch has the same rows as before."""
OVERWRITE = "overwrite"
"""The operation of a snapshot that others must check their own work against."""
APPEND = "append"
"""The operation of a snapshot that only adds data files."""
DELETE = "delete"
"""The operation of a snapshot that only removes rows."""

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Proposal(Generic[Outcome]):
    """Entries of the head to remove, entries to add, and an `outcome` that the proposer gets back after the commit.

    An added entry has the sequence number of its snapshot unless it has one of its own.

    summary             the mode's own properties in the snapshot's summary
    lays_out            how rows lie in the added files: kept in the summary and in table properties
    overlapped_bytes    bytes that were rewritten to lay rows out
    fingerprints        those of the added data files, if known
    has_followed        what others deleted was read for it, which takes time
    settles             what upserts have compared now. It is worth a snapshot that changes no file; without it, the
                        snapshot repeats what is known
    """

    operation: str
    removed: tuple[ManifestEntry, ...]
    added: tuple[ManifestEntry, ...]
    outcome: Outcome
    summary: Mapping[str, str] = field(default_factory=dict, hash=False)
    settles: Memory | None = None
    lays_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    overlapped_bytes: int = 0
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict, hash=False)
    has_followed: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.removed and not self.added and self.settles is None


def applied(state: TableState, proposal: Proposal[Any]) -> TableState:
    """The branch as it would be after this proposal."""
    gone = {entry.file.key for entry in proposal.removed}
    number = state.metadata.next_sequence_number
    numbered = [
        replace(entry, sequence_number=number) if entry.sequence_number is None else entry for entry in proposal.added
    ]
    data, deletes = (
        tuple(
            entry
            for entry in (*(entry for entry in former if entry.file.key not in gone), *numbered)
            if entry.file.is_data is is_data
        )
        for former, is_data in ((state.data, True), (state.deletes, False))
    )
    return replace(state, data=data, deletes=deletes)


Propose: TypeAlias = Callable[[TableState], Proposal[Outcome]]
"""Maps the current head to what a snapshot would change on it."""


def same_rows(
    metadata: TableMetadata, head: Snapshot | None, certified: Mapping[int, str] | None = None
) -> dict[str, str]:
    """The summary line that repeats the head's fingerprint, if it is known: the new snapshot has the same rows.

    `certified`: fingerprints by snapshot id, for snapshots that have none in their summaries.
    """
    if head is None:
        return {}
    found = metadata.recorded_fingerprint(head) or (certified or {}).get(head.snapshot_id)
    return {RECORDED_FINGERPRINT: found} if found else {}


def addition(file: ContentFile, sequence_number: int | None = None) -> ManifestEntry:
    """A file to add. With a sequence number of its own, newer deletes keep applying to it (rules 3 and 5)."""
    return ManifestEntry(Status.ADDED, None, sequence_number, None, file)
