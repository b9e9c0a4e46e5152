"""What one snapshot would change on one head: pure values.

    head 8      a, b, c live, p deletes rows of a
    proposal    "replace"    removed a, p    added y with sequence number 5    outcome: the groups that are in it

A mode gives the committer a function from the current head to a proposal. The committer calls it again on the head of
each attempt, so it must be pure and quick: what takes long has been done before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.settled import Memory
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry, Status
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
    """Entries of the head to remove, entries to add, and what the proposer wants to be told once it has landed.

    An added entry has the sequence number of its snapshot unless it has one of its own. `summary` has properties of
    the mode's own for the snapshot's summary. `lays_out` says how rows lie in its files, there and in properties of the
    table; `overlapped_bytes` were rewritten for that. `fingerprints`: of its data files, as far as they are known.
    `settles` is news, worth a snapshot that changes no file. Without news, a snapshot carries on what is known.
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

    @property
    def is_empty(self) -> bool:
        return not self.removed and not self.added and self.settles is None


def applied(state: TableState, proposal: Proposal[Any]) -> TableState:
    """The files of a branch as they would be."""
    gone = {entry.file.key for entry in proposal.removed}
    number = state.metadata.next_sequence_number
    numbered = [
        replace(entry, sequence_number=number) if entry.sequence_number is None else entry for entry in proposal.added
    ]
    data, deletes = (
        tuple(
            entry
            for entry in (*(entry for entry in former if entry.file.key not in gone), *numbered)
            if (entry.file.content is Content.DATA) is is_data
        )
        for former, is_data in ((state.data, True), (state.deletes, False))
    )
    return replace(state, data=data, deletes=deletes)


Propose: TypeAlias = Callable[[TableState], Proposal[Outcome]]
"""From the current head to what a snapshot would change on it."""


def same_rows(
    metadata: TableMetadata, head: Snapshot | None, certified: Mapping[int, str] | None = None
) -> dict[str, str]:
    """For the summary of a snapshot with the rows of its head: the fingerprint that the head has, if it is known.

    `certified`: fingerprints by the ids of snapshots, which these do not tell themselves.
    """
    if head is None:
        return {}
    found = metadata.recorded_fingerprint(head) or (certified or {}).get(head.snapshot_id)
    return {RECORDED_FINGERPRINT: found} if found else {}


def addition(file: ContentFile, sequence_number: int | None = None) -> ManifestEntry:
    """A file to add. With a sequence number of its own, newer deletes keep applying to it (rules 3 and 5)."""
    return ManifestEntry(Status.ADDED, None, sequence_number, None, file)
