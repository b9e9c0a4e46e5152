"""What a snapshot with rewritten groups would change on a head: pure.

rewritten    group 1: a, c -> y       group 2: d -> z
head         a, c, p; d was removed by somebody
proposal     removed a, c and p, which applies to nothing any more; added y; group 2 is refused
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltacompact.iceberg.commit.proposal import REPLACE, Proposal, addition
from deltacompact.iceberg.deletes.matching import dangling
from deltacompact.iceberg.settled import merged_numbers
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg.table.lost_partitions import position_scopes
from deltacompact.iceberg.table.table_state import Scope, TableState
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan
from deltacompact.iceberg_modes.rewrite.validation import RewriteHead, RewriteProblem


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A group, the files that were written in its place, and how many of its rows were dead."""

    group: FileGroup
    outputs: tuple[ContentFile, ...]
    dead_by_position: int
    dead_by_key: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.outputs)

    @property
    def went_to(self) -> frozenset[Scope]:
        """The partitions that rows of the group moved to."""
        return frozenset((file.spec_id, file.partition) for file in self.outputs)


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """The groups that are in the snapshot, and those that cannot be any more.

    `removed_deletes` counts the delete files that applied to nothing any more and were removed.
    """

    groups: tuple[Rewritten, ...]
    refused: tuple[tuple[Rewritten, RewriteProblem], ...]
    removed_deletes: int

    @property
    def paths(self) -> frozenset[str]:
        """The files that are in the snapshot."""
        return frozenset(file.path for rewritten in self.groups for file in rewritten.outputs)

    @property
    def group_count(self) -> int:
        return len(self.groups)


@dataclass(frozen=True, slots=True)
class ProposeRewrite:
    """Proposes those groups that nobody touched since the plan."""

    plan: RewritePlan
    rewritten: Sequence[Rewritten]

    def __call__(self, state: TableState) -> Proposal[RewriteOutcome]:
        head = RewriteHead(state, self.plan, [group.group for group in self.rewritten])
        problems = [(group, head.problem_of(group.group, group.went_to)) for group in self.rewritten]
        valid = tuple(group for group, problem in problems if problem is None)
        refused = tuple((group, problem) for group, problem in problems if problem is not None)
        gone = [entry for group in valid for entry in head.live(group.group)]
        added = tuple(addition(file, head.number_of(group.group)) for group in valid for file in group.outputs)
        next_sequence = state.metadata.next_sequence_number
        numbered = [
            replace(entry, sequence_number=next_sequence) if entry.sequence_number is None else entry for entry in added
        ]
        scope = position_scopes(state.metadata)
        touched = {scope(entry) for entry in gone}
        useless = [
            entry for entry in dangling(state, gone, numbered) if scope(entry) in touched or state.is_global(entry)
        ]
        if not valid:
            return Proposal(REPLACE, (), (), RewriteOutcome((), refused, 0))
        outcome = RewriteOutcome(valid, refused, len(useless))
        return Proposal(REPLACE, (*gone, *useless), added, outcome, merged_numbers(gone))


def propose_removal(state: TableState) -> Proposal[RewriteOutcome]:
    """Proposes to remove the deletes that apply to nothing, in all partitions."""
    useless = tuple(dangling(state, (), ()))
    return Proposal(REPLACE, useless, (), RewriteOutcome((), (), len(useless)))
