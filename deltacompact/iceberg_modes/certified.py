"""With the setting `certify`: our snapshots record fingerprints, and a proposal with wrong rows is not committed.

planned 9     has none, but 7 has       9's is 7's, plus the rows that came since, minus those that went
ours 10       keeps the rows of 9       records 9's fingerprint, and those of the files that were read
ours 10       deletes two rows of 9     records 9's fingerprint minus that of the two rows

head 9        a: e kills rows 1, 2      only rows that differ between head and proposal are read
proposal      p marks row 1 of a        row 2 would live again: 1:f4… would come, so nothing is committed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.proposal import Outcome, Proposal, Propose, applied, same_rows
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.file_fingerprints import FileFingerprints, read_fingerprints
from deltacompact.iceberg.fingerprints import changed_fingerprint, fingerprint_since, marked_fingerprint
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.steps import Call, Resuming

IsRight: TypeAlias = Callable[[TableState, Proposal[Outcome], Fingerprint], bool]
"""Whether a proposal may be committed. The fingerprint is that of rows that would come, minus those that would go."""


@dataclass(frozen=True, slots=True)
class Certified:
    """The fingerprints that are known of a branch: those of data files, and that of the head, by snapshot id.

    Both are empty unless the call certifies. `head` is empty, too, where there is no head, or its summary has its
    fingerprint.
    """

    files: FileFingerprints
    head: Mapping[int, str]


def certified_before(call: Call[Any, Any], table: IcebergTable, state: TableState) -> Certified:
    """The fingerprints of the branch as it was planned."""
    files = _known_files(call, state)
    return Certified(files, _certified_head(call, table, state, files))


def _known_files(call: Call[Any, Any], state: TableState) -> FileFingerprints:
    if not call.settings.certify:
        return FileFingerprints()
    return read_fingerprints(call.table.store, state.metadata, state.snapshot)


def telling(call: Call[Any, Any], propose: Propose[Outcome], known: FileFingerprints) -> Propose[Outcome]:
    """If the call certifies, its proposals also keep the known fingerprints of data files that stay or are added.

    Once the table has another schema than that of `known`, they tell no fingerprint: it would be one of other columns.
    """
    if not call.settings.certify:
        return propose

    def told(state: TableState) -> Proposal[Outcome]:
        proposal = propose(state)
        if proposal.is_empty:
            return proposal
        if state.metadata.schema_id != known.schema_id:
            summary = {name: value for name, value in proposal.summary.items() if name != RECORDED_FINGERPRINT}
            return replace(proposal, summary=summary)
        live = (entry.file.path for entry in applied(state, proposal).data)
        return replace(proposal, fingerprints={path: known.of[path] for path in live if path in known.of})

    return told


def _certified_head(
    call: Call[Any, Any], table: IcebergTable, state: TableState, known: FileFingerprints
) -> Mapping[int, str]:
    head = state.snapshot
    if not call.settings.certify or head is None or same_rows(state.metadata, head):
        return {}
    return {head.snapshot_id: str(fingerprint_since(table, state, StateReader(table.store), known))}


def certified_marks(call: Call[Any, Any], table: IcebergTable, marks: Sequence[Mark]) -> Fingerprint | None:
    """The fingerprint of the rows that marks delete; None if the call does not certify."""
    return marked_fingerprint(table, marks) if call.settings.certify else None


def adding_up(call: Call[Any, Any], propose: Propose[Outcome], is_right: IsRight[Outcome]) -> Propose[Outcome]:
    """If the call certifies, check each proposal with `is_right`. Raises CorruptionError for a wrong one."""
    if not call.settings.certify:
        return propose

    def checked(state: TableState) -> Proposal[Outcome]:
        proposal = propose(state)
        if not is_right(state, proposal, changed := _changed(call, state, proposal)):
            refuse(f"{state.metadata.table_id} would gain other rows than the mode says: {changed}")
        return proposal

    return checked


def resumed_adding_up(resuming: Resuming, resumption: Resumption, is_right: IsRight[Any]) -> Resumption:
    """If the call certifies, check what a dead session had written, and tell the fingerprints of snapshot and files.

    The dead session may not have certified: what it wrote is read. Where it is wrong, or cannot be read, propose
    nothing, with a note.
    """
    call = resuming.call
    if not call.settings.certify:
        return resumption

    def checked(planned: Planned, groups: Sequence[WrittenGroup], state: TableState) -> Proposal[Any]:
        proposal = resumption(planned, groups, state)
        if proposal.is_empty:
            return proposal
        known = _known_files(call, state)
        try:
            changed = _changed(call, state, proposal, known)
        except (NotFoundError, InputError, CorruptionError) as error:
            why = f"cannot be read to be certified: {text_of(error)}"
        else:
            if is_right(state, proposal, changed):
                return _with_fingerprints(call, state, proposal, known, changed)
            why = f"would change the rows by {changed}"
        resuming.notes.append(f"what session {resuming.dead.session} had written {why}")
        return resumption(planned, (), state)

    return checked


def _with_fingerprints(
    call: Call[Any, Any], state: TableState, proposal: Proposal[Any], known: FileFingerprints, changed: Fingerprint
) -> Proposal[Any]:
    """Add the fingerprints of the snapshot and of its files to a proposal."""
    table, head = replace(call.table, metadata=state.metadata), state.snapshot
    recorded = same_rows(state.metadata, head, _certified_head(call, table, state, known)).get(RECORDED_FINGERPRINT)
    before = Fingerprint.of_text(recorded)
    own = {} if before is None else {RECORDED_FINGERPRINT: str(before + changed)}
    certified = replace(proposal, summary={**proposal.summary, **own})
    return telling(call, lambda state: certified, known)(state)


def has_same_rows(state: TableState, proposal: Proposal[Any], changed: Fingerprint) -> bool:
    """The check of a mode that deletes no row: nothing comes, and nothing goes."""
    return changed == Fingerprint()


def _changed(
    call: Call[Any, Any], state: TableState, proposal: Proposal[Any], known: FileFingerprints | None = None
) -> Fingerprint:
    live = LiveReader(call.table.store, state.metadata)
    return changed_fingerprint(live, differing(state, applied(state, proposal)), known)


def refuse(why: str) -> NoReturn:
    """Raises CorruptionError, because the rows are not as they should be."""
    raise CorruptionError(
        f"{why}: nothing is committed. Run the compaction again; if it fails again, look at this machine's memory and "
        "disks, and report it"
    )
