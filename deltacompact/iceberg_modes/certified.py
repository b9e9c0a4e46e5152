"""Fingerprints where they are asked for: what snapshots of ours tell, and what keeps them from being committed.

planned 9     tells none, 7 does      what came and went since 7 is added up
ours 10       the rows of 9           it tells the fingerprint of 9, and those of its files that were read
ours 10       the rows of 9 but two   that of 9, less that of the two

head 9        a: e kills rows 1, 2    of the rows that differ before and after, those that went are subtracted
proposal      p marks row 1 of a      row 2 would live again: 1:f4… came, and nothing is committed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from deltacompact.base.errors import CorruptionError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.commit.proposal import Outcome, Proposal, Propose, applied, same_rows
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.file_fingerprints import FileFingerprints, read_fingerprints
from deltacompact.iceberg.fingerprints import changed_fingerprint, fingerprint_since, marked_fingerprint
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.steps import Call, Resuming

IsRight: TypeAlias = Callable[[TableState, Proposal[Outcome], Fingerprint], bool]
"""Whether a proposal may be committed. It is told what would come minus what would go."""


def known_files(call: Call[Any, Any], state: TableState) -> FileFingerprints:
    """What is known of data files, if it is wanted."""
    if not call.settings.certify:
        return FileFingerprints()
    return read_fingerprints(call.table.store, state.metadata, state.snapshot)


def telling(call: Call[Any, Any], propose: Propose[Outcome], known: FileFingerprints) -> Propose[Outcome]:
    """Proposes to keep the fingerprints of all data files that are known, and are there afterwards, if it is wanted."""
    if not call.settings.certify:
        return propose

    def told(state: TableState) -> Proposal[Outcome]:
        proposal = propose(state)
        if proposal.is_empty:
            return proposal
        live = (entry.file.path for entry in applied(state, proposal).data)
        return replace(proposal, fingerprints={path: known.of[path] for path in live if path in known.of})

    return told


def certified_head(
    call: Call[Any, Any], table: IcebergTable, state: TableState, known: FileFingerprints
) -> Mapping[int, str]:
    """By the id of the snapshot; nothing, if it is not wanted, or the snapshot itself tells it."""
    head = state.snapshot
    if not call.settings.certify or head is None or same_rows(state.metadata, head):
        return {}
    return {head.snapshot_id: str(fingerprint_since(table, state, StateReader(table.store), known))}


def certified_marks(call: Call[Any, Any], table: IcebergTable, marks: Sequence[Mark]) -> Fingerprint | None:
    """The fingerprint of the rows that marks delete; None, if it is not wanted."""
    return marked_fingerprint(table, marks) if call.settings.certify else None


def adding_up(call: Call[Any, Any], propose: Propose[Outcome], is_right: IsRight[Outcome]) -> Propose[Outcome]:
    """Proposes only rows that are right, where that is wanted. Raises CorruptionError where they are not."""
    if not call.settings.certify:
        return propose

    def checked(state: TableState) -> Proposal[Outcome]:
        proposal = propose(state)
        if not is_right(state, proposal, changed := _changed(call, state, proposal)):
            refuse(f"{state.metadata.table_id} would gain other rows than the mode says: {changed}")
        return proposal

    return checked


def resumed_adding_up(resuming: Resuming, resumption: Resumption, is_right: IsRight[Any]) -> Resumption:
    """The same of what a dead session had written. Where it is not right, nothing of it is proposed, with a note."""
    if not resuming.call.settings.certify:
        return resumption

    def checked(planned: Planned, groups: Sequence[WrittenGroup], state: TableState) -> Proposal[Any]:
        proposal = resumption(planned, groups, state)
        if is_right(state, proposal, changed := _changed(resuming.call, state, proposal)):
            return proposal
        resuming.notes.append(f"what session {resuming.dead.session} had written would change the rows by {changed}")
        return resumption(planned, (), state)

    return checked


def has_same_rows(state: TableState, proposal: Proposal[Any], changed: Fingerprint) -> bool:
    """Right for a mode that deletes no row."""
    return changed == Fingerprint()


def _changed(call: Call[Any, Any], state: TableState, proposal: Proposal[Any]) -> Fingerprint:
    return changed_fingerprint(LiveReader(call.table.store, state.metadata), differing(state, applied(state, proposal)))


def refuse(why: str) -> NoReturn:
    """Raises CorruptionError: the rows are not those that they should be."""
    raise CorruptionError(
        f"{why}: nothing is committed. Run the compaction again; if it fails again, look at this machine's memory and "
        "disks, and report it"
    )
