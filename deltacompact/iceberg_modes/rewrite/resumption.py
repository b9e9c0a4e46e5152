"""What a dead session's rewritten groups would change on the current head: pure.

recorded    group 0: a, c -> y      group 1: b -> z
head        a, c, d                 b was removed by somebody, so group 1 is left out; group 0 is judged as always
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from deltacompact.base.errors import ConflictError
from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.rewrite.plan_document import plan_of_body
from deltacompact.iceberg_modes.rewrite.proposals import ProposeRewrite, RewriteOutcome, Rewritten


def record_of(rewritten: Rewritten) -> WrittenGroup:
    """A group for the journal."""
    details = {"dead_by_position": rewritten.dead_by_position, "dead_by_key": rewritten.dead_by_key}
    return WrittenGroup(rewritten.group.number, rewritten.outputs, details)


def resume_rewrite(planned: Planned, groups: Sequence[WrittenGroup], state: TableState) -> Proposal[RewriteOutcome]:
    """Propose the groups of which all files and deletes are there."""
    found = []
    for group in groups:
        with contextlib.suppress(ConflictError):  # another commit removed one of them: it cannot be committed
            (as_planned,) = plan_of_body(planned.body, state, [group.number]).groups
            found.append(Rewritten(as_planned, group.outputs, **group.details))
    return ProposeRewrite(plan_of_body(planned.body, state, ()), found)(state)
