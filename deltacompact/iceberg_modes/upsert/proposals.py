"""Proposes a snapshot on a head: it adds the delete files that mark superseded rows. Pure.

    marked      day 3: p1 names rows of a       day 4: p2 names rows of c
    head        a, b, c, d; another writer deleted rows of d by position, and d's rows kept rows of c dead
    proposal    "overwrite": adds p1; day 4 is refused, and compared again

The operation is `overwrite` (a row delta) and not `replace`, so that other writers validate their commits against it
(rule 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.commit.proposal import OVERWRITE, REPLACE, Proposal, addition, same_rows
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.settled import COLUMNS, COMPARED, THROUGH, Memory, settled
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
from deltacompact.iceberg_modes.upsert.validation import ComparedSpace, UpsertHead, UpsertProblem


@dataclass(frozen=True, slots=True)
class MarkedSpace:
    """A key space, and the delete files that mark its superseded rows.

    `fingerprint` adds up the marked rows. None: nobody added them up.
    """

    space: ComparedSpace
    marks: tuple[Mark, ...]
    fingerprint: Fingerprint | None = None


@dataclass(frozen=True, slots=True)
class UpsertOutcome:
    """The key spaces whose marks are in the snapshot, and those that the head does not allow any more.

    `removed_deletes` counts the delete files that new deletion vectors replace.
    """

    spaces: tuple[MarkedSpace, ...]
    refused: tuple[tuple[MarkedSpace, UpsertProblem], ...]
    removed_deletes: int

    @property
    def paths(self) -> frozenset[str]:
        """The delete files that the snapshot adds."""
        return frozenset(mark.file.path for space in self.spaces for mark in space.marks)

    @property
    def marked(self) -> frozenset[str]:
        """The data files whose rows the snapshot marks."""
        return frozenset(
            task.entry.file.path for mark in (mark for space in self.spaces for mark in space.marks) for task in mark.of
        )

    @property
    def group_count(self) -> int:
        return sum(1 for space in self.spaces if space.marks)


@dataclass(frozen=True, slots=True)
class ProposeUpsert:
    """Proposes the marks of each key space, unless they would change which rows readers see as newest.

    The snapshot records the rows as settled if no key space of the plan is missing or refused, and if the head descends
    from the planned snapshot. (After a rollback, rows that an earlier upsert settled may be unsettled again.) If no row
    is marked, the snapshot changes no file. It only records that rows are settled, and other writers may merge files.
    `certified`: the fingerprints of snapshots, by id, that the snapshots do not record themselves.
    """

    plan: UpsertPlan
    marked: Sequence[MarkedSpace]
    certified: Mapping[int, str] = field(default_factory=dict, hash=False)

    def __call__(self, state: TableState) -> Proposal[UpsertOutcome]:
        head = UpsertHead(state, self.plan)
        problems = [
            (marked_space, head.problem_of(marked_space.space) if marked_space.marks else None)
            for marked_space in self.marked
        ]
        valid = tuple(marked_space for marked_space, problem in problems if problem is None)
        refused = tuple((marked_space, problem) for marked_space, problem in problems if problem is not None)
        marks = [mark for marked_space in valid for mark in marked_space.marks]
        removed = tuple(head.marked.superseded(marks))
        outcome = UpsertOutcome(valid, refused, len(removed))
        settles = self._settles(state, len(valid))
        if not marks:
            summary = same_rows(state.metadata, state.snapshot, self.certified)
            return Proposal(REPLACE, (), (), outcome, {COMPARED: str(len(self.plan.inputs)), **summary}, settles)
        summary = {COLUMNS: self.plan.recorded, THROUGH: str(self.plan.through)} if settles else {}
        summary |= self._rows_left(state, valid)
        return Proposal(OVERWRITE, removed, tuple(addition(mark.file) for mark in marks), outcome, summary, settles)

    def _rows_left(self, state: TableState, valid: Sequence[MarkedSpace]) -> dict[str, str]:
        """The fingerprint of the rows that stay alive. Empty if it is unknown, or if the head is not the planned
        snapshot: other writers may have deleted some of the marked rows."""
        marked = [marked_space for marked_space in valid if marked_space.marks]
        went = [marked_space.fingerprint for marked_space in marked if marked_space.fingerprint is not None]
        before = same_rows(state.metadata, state.snapshot, self.certified).get(RECORDED_FINGERPRINT)
        found = Fingerprint.of_text(before)
        if found is None or len(went) < len(marked) or state.snapshot_id != self.plan.snapshot_id:
            return {}
        return {RECORDED_FINGERPRINT: str(found - sum(went, Fingerprint()))}

    def _settles(self, state: TableState, valid: int) -> Memory | None:
        """What the snapshot settles. None: nothing new."""
        if valid < len(self.plan.key_spaces) or not self._descends(state):
            return None
        known = settled(state, self.plan.recorded)
        if known is not None and known.until >= self.plan.through:
            return None
        return Memory(self.plan.recorded, self.plan.through)

    def _descends(self, state: TableState) -> bool:
        line = state.metadata.ancestors(state.snapshot)
        return any(snapshot.snapshot_id == self.plan.snapshot_id for snapshot in line)


@dataclass(frozen=True, slots=True)
class ProposeMemory:
    """Proposes a snapshot that changes no file, and copies what is settled into the table's properties, if it is not
    there.

    Older versions of deltacompact recorded that in the summaries of snapshots alone. It would be lost with the
    snapshots, once they are expired.
    """

    recorded: str

    def __call__(self, state: TableState) -> Proposal[UpsertOutcome]:
        known = settled(state, self.recorded)
        settles = None if known is None or known.is_kept else Memory(self.recorded, known.until)
        summary = same_rows(state.metadata, state.snapshot)
        return Proposal(REPLACE, (), (), UpsertOutcome((), (), 0), summary, settles)
