"""Proposes, on the current head, the groups that a dead session had rewritten.

recorded    group 0: a, c -> y      group 1: b -> z      where their rows went
head        a, c, d                 another writer removed b, so group 1 is left out; group 0 is validated as always
            a with a vector, d      c is gone: rows of both are marked in y, as if the session had lived

An upsert commits no group with rows that have never been compared, because it could not tell later which are newer.

The files and deletes of the plan are looked up in the planned snapshot. If that has expired, they are looked up in the
head: then a group can be committed only if all of them are there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.errors import ConflictError, CorruptionError, InputError, NotFoundError
from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.settled import compared_through
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.rewrite.choosing import may_not_be_merged
from deltacompact.iceberg_modes.rewrite.plan_document import plan_of_body
from deltacompact.iceberg_modes.rewrite.proposals import AddsUp, Follow, ProposeRewrite, RewriteOutcome, Rewritten
from deltacompact.iceberg_modes.rewrite.stored_row_map import row_map_document, stored_row_map


def record_of(rewritten: Rewritten) -> WrittenGroup:
    """A group for the journal."""
    details = {"dead_by_position": rewritten.dead_by_position, "dead_by_key": rewritten.dead_by_key}
    row_map = None if rewritten.row_map is None else row_map_document(rewritten.row_map)
    return WrittenGroup(rewritten.group.number, rewritten.outputs, details, row_map)


@dataclass(frozen=True, slots=True)
class ResumeRewrite:
    """Proposes the groups that nobody touched since their plan, and those whose rows can be followed.

    `compares`: the call compares afterwards which of two rows came later.
    """

    reader: StateReader
    follow: Follow
    compares: bool = False
    adds_up: AddsUp | None = None

    def __call__(self, planned: Planned, groups: Sequence[WrittenGroup], state: TableState) -> Proposal[RewriteOutcome]:
        then, plan = self._then(planned, state), plan_of_body(planned.body, state, ())
        through = compared_through(state) or 0
        found = []
        for group in groups:
            with contextlib.suppress(ConflictError):  # another commit removed one of its files: it cannot be committed
                (as_planned,) = plan_of_body(planned.body, then, [group.number]).groups
                if self.compares and any(
                    may_not_be_merged(task.entry, plan.options, through) for task in as_planned.inputs
                ):
                    continue
                row_map = None if group.row_map is None else stored_row_map(group.row_map)
                found.append(Rewritten(as_planned, group.outputs, **group.details, row_map=row_map))
        return ProposeRewrite(plan, found, self.follow, adds_up=self.adds_up)(state)

    def _then(self, planned: Planned, state: TableState) -> TableState:
        """The branch as of the plan's snapshot; as of the head if that cannot be read."""
        snapshot = state.metadata.snapshots.get(planned.body["snapshot_id"])
        with contextlib.suppress(NotFoundError, CorruptionError, InputError):
            if snapshot is not None:
                return self.reader.at(state.metadata, state.branch, snapshot)
        return state
