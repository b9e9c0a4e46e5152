"""May a group that was planned at one snapshot be committed onto another? Pure: two states in, a problem or None out.

    planned at 5    input a, deletes p        output y has sequence number 5
    head is 8       a, p, append b            fine: nobody touched what we read
                    a, p, equality e (7)      fine: e applies to y as it does to a, 5 < 7 (rule 6)
                    a, p, positions q         refused: q names rows of a, and would not follow them to y
                    b                         refused: a is gone
                    a                         refused: p is gone, so rows that it deleted may live again
                    a with row ids            refused: the upgrade to version 3 gave its rows ids, which y lacks

What is compared is what is live, not what the snapshots in between say that they did. So every snapshot counts,
whatever its operation: a `replace` that turned an equality delete into position deletes shows as new position deletes
(rule 23). And it does not matter whether the planned snapshot has been expired meanwhile (rule 7).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import replace

from deltacompact.catalog.iceberg.deletes.matching import DeleteIndex, Deletes
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, RewritePlan
from deltacompact.catalog.iceberg.table.content_files import Entry
from deltacompact.catalog.iceberg.table.table_state import Scope, TableState, scope_of


class Problem(enum.StrEnum):
    """Why a group cannot be committed any more."""

    INPUT_GONE = "input_gone"
    NEW_ROW_IDS = "new_row_ids"
    NEW_POSITION_DELETE = "new_position_delete"
    NEW_EQUALITY_DELETE = "new_equality_delete"
    DELETE_GONE = "delete_gone"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Problem.INPUT_GONE: "another commit removed a file of the group",
    Problem.NEW_ROW_IDS: "another commit gave the rows of the group ids",
    Problem.NEW_POSITION_DELETE: "another commit deleted rows of the group by position",
    Problem.NEW_EQUALITY_DELETE: "another commit deleted rows of the group by key, and that would not follow them",
    Problem.DELETE_GONE: "another commit removed a delete file that the group had applied",
}


class Head:
    """The branch as it is now, as groups are checked against it."""

    def __init__(self, state: TableState) -> None:
        self.state = state
        self._data = {entry.file.path: entry for entry in state.data}
        self._deletes = DeleteIndex(state)

    def problem_of(self, group: FileGroup, plan: RewritePlan, went_to: Collection[Scope]) -> Problem | None:
        """Why the group, whose rows went to these partitions, cannot be committed; None: it can."""
        for source in group.inputs:
            now = self._data.get(source.entry.file.path)
            if now is None or now.sequence_number != source.entry.sequence_number:
                return Problem.INPUT_GONE
            if now.file.first_row_id != source.entry.file.first_row_id:
                return Problem.NEW_ROW_IDS
            deletes = self._deletes.applying_to(now)
            planned = source.deletes
            positions_then = _keys([*planned.positions, *([planned.vector] if planned.vector else [])])
            positions_now = _keys([*deletes.positions, *([deletes.vector] if deletes.vector else [])])
            if positions_now - positions_then:
                return Problem.NEW_POSITION_DELETE
            elsewhere = [scope for scope in went_to if scope != scope_of(now)]
            if any(self._is_hit_elsewhere(now, deletes, scope, plan) for scope in elsewhere):
                return Problem.NEW_EQUALITY_DELETE
            equality_now = _keys(
                entry
                for entry in deletes.equality
                if entry.sequence <= plan.sequence_number or not plan.options.use_starting_sequence_number
            )
            if equality_now - _keys(planned.equality):
                return Problem.NEW_EQUALITY_DELETE
            if (positions_then - positions_now) or (_keys(planned.equality) - equality_now):
                return Problem.DELETE_GONE
        return None

    def _is_hit_elsewhere(self, now: Entry, deletes: Deletes, scope: Scope, plan: RewritePlan) -> bool:
        """Whether later equality deletes are other ones in a partition that the rows move to (rules 2 and 17).

        Those of the old partition would not follow the rows, and those of the new one were not meant for them.
        """
        here = _keys(entry for entry in deletes.equality if entry.sequence > plan.sequence_number)
        spec_id, partition = scope
        moved = replace(now.file, spec_id=spec_id, partition=partition)
        there = replace(now, sequence_number=plan.sequence_number, file=moved)
        return here != _keys(self._deletes.applying_to(there).equality)

    def live(self, group: FileGroup) -> list[Entry]:
        """The group's inputs as the head has them; those that are gone are left out."""
        found = [self._data.get(source.entry.file.path) for source in group.inputs]
        return [entry for entry in found if entry is not None]


def _keys(entries: Iterable[Entry]) -> set[tuple[str, int | None]]:
    return {entry.file.key for entry in entries}
