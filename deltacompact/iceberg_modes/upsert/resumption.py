"""Proposes, on the current head, the marks that a dead session wrote and did not commit. Pure.

    recorded    a: row 1 lost to b; b guards it; marks p1        planned at 5, by key 1
    head        a, b, append c                                   adds p1
                a, b, positions q of b                           leaves it out, as a live session would
                upserted through 6, by key 1                     leaves it out: that upsert has marked the same rows

An upsert decides which rows live. So a dead upsert's marks are committed only by an upsert with the same columns. A
user who asks for other columns, or for another mode, may have stopped the dead one because its columns were wrong.

A journal may be old, but the proof in `validation.py` holds for any time between plan and commit. It needs the plan as
it was: the deletes of each file, the sequence number, the format version. The journal has all of these. Columns are
compared by field id: a renamed column is the same, a column that was dropped and added again is another.
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
    """The journal's record of a key space: its marks, and what became of each input's rows."""
    files = [
        [compared.file.live, compared.file.superseded, compared.file.deletes, compared.file.guards]
        for compared in marked.space.inputs
    ]
    return recorded_marks.record_of(number, marked.marks, {"files": files})


def is_by(planned: Planned, plan: UpsertPlan) -> bool:
    """Whether the dead session used the same columns as `plan`, and trusted the order of rows only if `plan` does."""
    trusts_no_more = plan.options.trusts_row_order or not planned.body["options"]["trusts_row_order"]
    return bool(planned.body["recorded"] == plan.recorded) and trusts_no_more


def resume_upsert(
    columns: UpsertColumns, planned: Planned, groups: Sequence[WrittenGroup], state: TableState
) -> Proposal[UpsertOutcome]:
    """Propose the marks of the key spaces that the current head still allows. `columns`: those of the dead session."""
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
