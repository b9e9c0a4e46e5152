"""What a snapshot with rewritten groups would change on a head: pure, but for what `follow` reads and writes.

rewritten    group 1: a, c -> y       group 2: d -> z        group 3: e -> x
head         a, c, p; another writer removed d               e with new position deletes q
proposal     removed a, c, and p, which applies to nothing then; added y; group 2 is refused
             removed e and q; added x, and marks of the rows of x that q deleted in e
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.commit.proposal import REPLACE, Proposal, addition, same_rows
from deltacompact.iceberg.deletes.matching import dangling
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.settled import merged_numbers
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.lost_partitions import position_scopes
from deltacompact.iceberg.table.table_state import Scope, TableState
from deltacompact.iceberg_modes.readers import may_mark
from deltacompact.iceberg_modes.rewrite.laid_out import summary_of
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan, overlapping_bytes
from deltacompact.iceberg_modes.rewrite.stored_row_map import StoredRowMap
from deltacompact.iceberg_modes.rewrite.validation import FOLLOWED, RewriteHead, RewriteProblem


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A group, the files that were written in its place, and how many of its rows were dead.

    `row_map`: where each of its rows is now; None: unknown. `fingerprints`: of the files, if they were asked for.
    """

    group: FileGroup
    outputs: tuple[ContentFile, ...]
    dead_by_position: int
    dead_by_key: int
    row_map: StoredRowMap | None = None
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict, hash=False)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.outputs)

    @property
    def target_partitions(self) -> frozenset[Scope]:
        """The partitions that rows of the group moved to."""
        return frozenset((file.spec_id, file.partition) for file in self.outputs)


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """The groups that are in the snapshot, and the refused ones.

    `removed_deletes` counts removed delete files, which applied to nothing any more. `marks` name rows that others
    deleted meanwhile. `worn` outputs have so many dead rows that they will be written again.
    """

    groups: tuple[Rewritten, ...]
    refused: tuple[tuple[Rewritten, RewriteProblem], ...]
    removed_deletes: int
    marks: tuple[Mark, ...] = ()
    worn: frozenset[str] = frozenset()

    @property
    def paths(self) -> frozenset[str]:
        """The files that are in the snapshot."""
        outputs = (file.path for rewritten in self.groups for file in rewritten.outputs)
        return frozenset((*outputs, *(mark.file.path for mark in self.marks)))

    @property
    def marked(self) -> frozenset[str]:
        """The data files that are marked in it."""
        return frozenset(task.entry.file.path for mark in self.marks for task in mark.of)

    @property
    def group_count(self) -> int:
        return len(self.groups)


@dataclass(frozen=True, slots=True)
class Following:
    """Followed groups, by number, without outputs whose rows are all dead; and the marks in their other outputs.

    worn    outputs with a larger share of dead rows than the options allow
    why     why no group could be followed, if the reason is not what others did
    """

    groups: Mapping[int, Rewritten] = field(default_factory=dict, hash=False)
    marks: tuple[Mark, ...] = ()
    worn: frozenset[str] = frozenset()
    why: RewriteProblem | None = None


Follow: TypeAlias = Callable[[RewriteHead, Sequence[Rewritten]], Following]


def follow_nothing(head: RewriteHead, groups: Sequence[Rewritten]) -> Following:
    return Following()


class AddsUp(Protocol):
    """Whether the files to commit have the same live rows as the files to remove."""

    def __call__(
        self, state: TableState, plan: RewritePlan, written: Sequence[Rewritten], proposal: Proposal[RewriteOutcome]
    ) -> bool: ...


@dataclass(frozen=True, slots=True)
class ProposeRewrite:
    """Proposes the groups that nobody touched since the plan, and those whose rows can be followed.

    `certified`: fingerprints by snapshot id. `adds_up` checks the followed groups.
    """

    plan: RewritePlan
    rewritten: Sequence[Rewritten]
    follow: Follow = follow_nothing
    certified: Mapping[int, str] = field(default_factory=dict, hash=False)
    adds_up: AddsUp | None = None

    def __call__(self, state: TableState) -> Proposal[RewriteOutcome]:
        marks = may_mark(self.plan.options, state.metadata.format_version)
        proposal = self._proposed(state, self.follow if marks else follow_nothing)
        if self.adds_up is None or self.adds_up(state, self.plan, self.rewritten, proposal):
            return proposal
        return self._proposed(state, follow_nothing)

    def _proposed(self, state: TableState, follow: Follow) -> Proposal[RewriteOutcome]:
        head = RewriteHead(state, self.plan, [group.group for group in self.rewritten])
        problems = [(group, tuple(head.problems_of(group.group, group.target_partitions))) for group in self.rewritten]
        touched = [group for group, found in problems if found and FOLLOWED.issuperset(found)]
        followed = follow(head, touched) if touched else Following()
        whole = {group.group.number: group for group, found in problems if not found} | dict(followed.groups)
        valid = tuple(whole[group.group.number] for group, _ in problems if group.group.number in whole)
        refused = tuple(
            (group, (followed.why if group in touched else None) or found[0])
            for group, found in problems
            if group.group.number not in whole
        )
        if not valid:
            return Proposal(REPLACE, (), (), RewriteOutcome((), refused, 0))
        gone = [entry for group in valid for entry in head.live(group.group)]
        added = tuple(addition(file, head.number_of(group.group)) for group in valid for file in group.outputs)
        useless = _useless(state, gone, added)
        marks = tuple(addition(mark.file) for mark in followed.marks)
        outcome = RewriteOutcome(valid, refused, len(useless), followed.marks, followed.worn)
        summary = {**merged_numbers(gone), **same_rows(state.metadata, state.snapshot, self.certified)}
        lays_out = summary_of(self.plan.options, state.metadata)
        overlapped = sum(map(overlapping_bytes, (group.group for group in valid)))
        removed, added = (*gone, *useless), (*added, *marks)
        return Proposal(
            REPLACE,
            removed,
            added,
            outcome,
            summary,
            lays_out=lays_out,
            overlapped_bytes=overlapped,
            has_followed=bool(followed.groups),
        )


def _useless(state: TableState, gone: Sequence[ManifestEntry], added: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """The deletes, in the partitions of removed files, that apply to nothing any more."""
    next_sequence = state.metadata.next_sequence_number
    numbered = [
        replace(entry, sequence_number=next_sequence) if entry.sequence_number is None else entry for entry in added
    ]
    scope = position_scopes(state.metadata)
    touched = {scope(entry) for entry in gone}
    return [entry for entry in dangling(state, gone, numbered) if scope(entry) in touched or state.is_global(entry)]


def propose_removal(state: TableState) -> Proposal[RewriteOutcome]:
    """Proposes to remove the deletes that apply to nothing, in all partitions."""
    useless = tuple(dangling(state, (), ()))
    return Proposal(
        REPLACE, useless, (), RewriteOutcome((), (), len(useless)), same_rows(state.metadata, state.snapshot)
    )
