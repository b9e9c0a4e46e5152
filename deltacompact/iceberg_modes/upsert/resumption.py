"""What a dead session's marks of superseded rows would change on the current head: pure.

    recorded    a: row 1 lost to b; b guards it; marks p1        planned at 5, by key 1
    head        a, b, append c                                   added p1
                a, b, positions q of b                           left out, as for a session that lives
                upserted through 6, by key 1                     left out: that upsert has marked the same rows

An upsert decides which rows live. So only an upsert by the same columns commits what another one had written: whoever
gives other columns, or no upsert at all, may have stopped the dead one because it compared by wrong ones.

A journal may be old, but the proof of `validation.py` does not ask how much time has passed. It needs the plan just as
it was: the deletes of each file then, the sequence number, the format version. All of that is in the journal. Columns
are compared by field id, so one that was renamed since is the same, and one that was dropped and came back is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.settled import settled
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal import recorded_marks
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.upsert.columns import UpsertColumns
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.plan import SpaceGroup, UpsertPlan
from deltacompact.iceberg_modes.upsert.plan_document import plan_of_body
from deltacompact.iceberg_modes.upsert.proposals import MarkedSpace, ProposeUpsert, UpsertOutcome
from deltacompact.iceberg_modes.upsert.validation import ComparedSpace, ComparedTask


def record_of(number: int, marked: MarkedSpace) -> WrittenGroup:
    """A key space for the journal: its marks, and what became of the rows of each input."""
    files = [[one.file.live, one.file.superseded, one.file.deletes, one.file.guards] for one in marked.space.inputs]
    return recorded_marks.record_of(number, marked.marks, {"files": files})


def is_by(planned: Planned, plan: UpsertPlan) -> bool:
    """Whether a dead session compared by the same columns as this plan, and trusted no more than it does."""
    trusts_no_more = plan.options.trusts_row_order or not planned.body["options"]["trusts_row_order"]
    return bool(planned.body["recorded"] == plan.recorded) and trusts_no_more


def resume_upsert(
    columns: UpsertColumns, planned: Planned, groups: Sequence[WrittenGroup], state: TableState
) -> Proposal[UpsertOutcome]:
    """Propose the marks of those key spaces whose view they do not change. `columns` are those of the plan."""
    plan = plan_of_body(planned.body, state, columns)
    done = settled(state, plan.recorded)
    if done is not None and done.through >= plan.through:
        return ProposeUpsert(plan, ())(state)
    spaces = plan.groups
    return ProposeUpsert(plan, [_marked(spaces[group.number], group) for group in groups])(state)


def _marked(space: SpaceGroup, group: WrittenGroup) -> MarkedSpace:
    inputs = tuple(
        ComparedTask(source, ComparedFile(Ordinal(number), live, superseded, deletes, guards, None))
        for number, (source, (live, superseded, deletes, guards)) in enumerate(
            zip(space.inputs, group.details["files"], strict=True)
        )
    )
    asked = {source.entry.file.path: source for source in space.inputs}
    return MarkedSpace(ComparedSpace(space.key_space, inputs), recorded_marks.marks_of(group, asked))
