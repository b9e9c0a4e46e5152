"""What a snapshot that marks superseded rows would change on a head: pure.

    marked      day 3: p1 names rows of a       day 4: p2 names rows of c
    head        a, b, c; somebody deleted rows of d by position, which guarded rows of c
    proposal    "overwrite": added p1; day 4 is refused, and compared again

It is a row delta (`overwrite`), and not a `replace`: so others check their own work against it (rule 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.catalog.iceberg.commit.proposal import OVERWRITE, Proposal, addition
from deltacompact.catalog.iceberg.marks.marking import Mark
from deltacompact.catalog.iceberg.table.table_state import TableState
from deltacompact.catalog.iceberg.upsert.history import COLUMNS, THROUGH
from deltacompact.catalog.iceberg.upsert.plan import UpsertPlan
from deltacompact.catalog.iceberg.upsert.validation import ComparedSpace, Head, Problem


@dataclass(frozen=True, slots=True)
class MarkedSpace:
    """A key space, and the delete files that mark its superseded rows."""

    space: ComparedSpace
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class UpsertOutcome:
    """The key spaces that are in the snapshot, and those that cannot be any more.

    `removed_deletes` counts the delete files that new vectors took the place of.
    """

    spaces: tuple[MarkedSpace, ...]
    refused: tuple[tuple[MarkedSpace, Problem], ...]
    removed_deletes: int

    @property
    def paths(self) -> frozenset[str]:
        """The files that are in the snapshot."""
        return frozenset(mark.file.path for one in self.spaces for mark in one.marks)

    @property
    def group_count(self) -> int:
        return sum(1 for one in self.spaces if one.marks)


@dataclass(frozen=True, slots=True)
class ProposeUpsert:
    """Proposes the marks of those key spaces whose view they do not change.

    The snapshot says that everything is settled if no key space of the plan is missing or refused, and if the head
    descends from the planned snapshot: after a rollback, what an earlier upsert had settled may not be any more.
    """

    plan: UpsertPlan
    marked: Sequence[MarkedSpace]

    def __call__(self, state: TableState) -> Proposal[UpsertOutcome]:
        head = Head(state, self.plan)
        problems = [(one, head.problem_of(one.space) if one.marks else None) for one in self.marked]
        valid = tuple(one for one, problem in problems if problem is None)
        refused = tuple((one, problem) for one, problem in problems if problem is not None)
        marks = [mark for one in valid for mark in one.marks]
        removed = tuple(head.marked.superseded(marks))
        is_settled = len(valid) == len(self.plan.key_spaces) and self._descends(state)
        summary = {COLUMNS: self.plan.recorded, THROUGH: str(self.plan.through)} if is_settled else {}
        outcome = UpsertOutcome(valid, refused, len(removed))
        return Proposal(OVERWRITE, removed, tuple(addition(mark.file) for mark in marks), outcome, summary)

    def _descends(self, state: TableState) -> bool:
        line = state.metadata.ancestors(state.snapshot)
        return any(snapshot.snapshot_id == self.plan.snapshot_id for snapshot in line)
