"""Checks that the marks in outputs delete the same rows that others deleted in the sources, by adding up both.

Only rows that died since the plan are read.

planned     a: rows 0 1 2    c: rows 0 1      written     y: a 0, a 1, a 2, c 0, c 1
head        a with a vector of row 1          went        a 1, c 0, c 1: their fingerprint is 3:0c…
            c was added again, and stays      marked      rows 1, 3, 4 of y: 3:0c…, too, so they may be committed

The proposal says which sources go. If it wrongly removed the new c, too, c's rows would not count as gone, but rows of
y would be marked for them, and the sums would differ. Deletes by key that are newer than the plan hit both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.proposal import Proposal, addition
from deltacompact.iceberg.deletes.matching import FileScanTask, each_delete
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.file_fingerprints import FileFingerprints
from deltacompact.iceberg.fingerprints import changed_fingerprint
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.certified import refuse
from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
from deltacompact.iceberg_modes.rewrite.proposals import RewriteOutcome, Rewritten
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class AddingUp:
    """Tells whether followed groups may be committed. If not, they are written again, with a note.

    `is_fatal`: wrong marks are an error; not for a dead session, which may have been of another release. `known`:
    fingerprints of data files, which are not read again.
    """

    store: ObjectStore
    notes: list[str]
    is_fatal: bool
    known: FileFingerprints

    def __call__(
        self, state: TableState, plan: RewritePlan, written: Sequence[Rewritten], proposal: Proposal[RewriteOutcome]
    ) -> bool:
        """Whether both sums are equal. If not, and `is_fatal`: raises CorruptionError."""
        live = LiveReader(self.store, state.metadata)
        sources, outputs = _sides(state, plan, written, proposal)
        try:
            went, marked = (changed_fingerprint(live, sides, self.known) for sides in (sources, outputs))
        except (NotFoundError, InputError, CorruptionError) as error:
            self.notes.append(f"deletes of others could not be read, so groups are written again: {text_of(error)}")
            return False
        if went == marked:
            return True
        if self.is_fatal:
            refuse(
                f"the rows that others deleted from files of {plan.table_id} have the fingerprint {went}, those that "
                f"were marked in the outputs {marked}"
            )
        self.notes.append(f"marks that another session would commit say {marked}, not {went}: groups are written again")
        return False


_Sides = tuple[list[FileScanTask], list[FileScanTask]]


def _sides(
    state: TableState, plan: RewritePlan, written: Sequence[Rewritten], proposal: Proposal[RewriteOutcome]
) -> tuple[_Sides, _Sides]:
    """(changed sources as planned, and as of the head), (outputs as written, and with the proposed marks)."""
    numbers = {rewritten.group.number for rewritten in proposal.outcome.groups}
    groups = [rewritten for rewritten in written if rewritten.group.number in numbers]
    inputs = [source for rewritten in groups for source in rewritten.group.inputs]
    then = {entry.file.key: entry for entry in each_delete(source.deletes for source in inputs)}
    now = tuple(entry for entry in state.deletes if not _follows(entry, plan))
    removed = tuple(entry for entry in proposal.removed if entry.file.is_data)
    added = [replace(entry, sequence_number=0) for entry in proposal.added if entry.file.is_data]
    marks = [replace(entry, sequence_number=0) for entry in proposal.added if not entry.file.is_data]
    outputs = [addition(file, 0) for rewritten in groups for file in rewritten.outputs]
    sources = differing(
        replace(state, data=tuple(source.entry for source in inputs), deletes=tuple(then.values())),
        replace(state, data=removed, deletes=now),
    )
    return sources, differing(
        replace(state, data=tuple(outputs), deletes=()), replace(state, data=tuple(added), deletes=tuple(marks))
    )


def _follows(entry: ManifestEntry, plan: RewritePlan) -> bool:
    return entry.file.is_equality_delete and entry.sequence > plan.sequence_number
