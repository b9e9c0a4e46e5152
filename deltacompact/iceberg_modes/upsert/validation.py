"""May rows that lost at one snapshot be marked as dead on another head? Pure: two states in, a problem or None out.

    planned at 5    a: k1 k2       b: k1, newer        the row of k1 in a is dead, and b guards it
    head is 8       a, b, append c: k1                 fine: c's row wins over b's, and a's stays dead
                    a, b, equality e (7) by the key    fine: e deletes k1 in a and in b alike, or in neither
                    a, b, equality e (7) by name       refused: e may delete b's row, and then a's is the newest
                    a, b, positions p of b             refused: for the same reason
                    a, b, positions p of a             fine in version 2; in 3 the vector of a has to be written again
                    a, y instead of b                  refused: nobody knows whether y has b's row
                    b                                  refused: a's row may live on elsewhere

What must hold. The *view* of a table has, of each key, its newest visible row, or nothing if that row is a delete. A
commit of ours must not change the view of the head that it is built on: then no key is lost and no row comes back.

Take a key of which we mark rows, and its newest row w at the plan. Rows never change, and their order is fixed: by
sequence number, sort columns, path and position. A file that came after the plan has a greater sequence number than all
that was planned, unless it holds old rows (last point below).

1. w is not a delete. We mark rows older than w, and not w. If w is visible at the head, the view does not change:
   marked rows are not the newest. If w is not visible, something deleted it since the plan. It was not its file's
   removal, and not a position delete or a vector: files that guard must be live, with no new one. So it was an equality
   delete. We let it pass only if it came after the plan, has no columns besides key columns, and reaches every
   partition in which the key may lie. Then it deleted all rows of the key that we mark, and marks change nothing.
2. w is a delete. We mark all rows of the key, w too, and all their files guard or are live with the rows marked. What
   is visible of the key after the commit came after the plan, so if there is any, the newest of it was the newest
   before, too. If there is none, and w was visible, the view had nothing, and has nothing. If w was not visible, point
   1 says that an equality delete took all rows of the key.
   That needs one thing more: no old row comes back from under w. A row that was dead at the plan stays dead if all
   deletes that applied to files of the key space still do. A file with old rows that was not planned may come from a
   rollback, or be another compactor's output: we cannot tell, so it is refused.

Marks must do what they say: files with marked rows must be as they were (`marks/standing.py`).

What is compared is what is live, not what the snapshots in between say. So every snapshot counts, whatever its
operation (rule 23), and the planned snapshot may have been expired meanwhile (rule 7).
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.iceberg.deletes.since import DeletesSince
from deltacompact.iceberg.marks.standing import MarkedHead, Standing
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState, scope_of
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.options import Reach
from deltacompact.iceberg_modes.upsert.plan import KeySpace, UpsertPlan, UpsertTask


class UpsertProblem(enum.StrEnum):
    """Why rows of a key space cannot be marked any more."""

    FILE_GONE = "file_gone"
    ROWS_DELETED_BY_POSITION = "rows_deleted_by_position"
    ROWS_DELETED_BY_KEY = "rows_deleted_by_key"
    OLD_ROWS_CAME = "old_rows_came"
    FORMAT_CHANGED = "format_changed"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    UpsertProblem.FILE_GONE: "another commit removed a file that has rows of these keys",
    UpsertProblem.ROWS_DELETED_BY_POSITION: "another commit deleted rows by position where rows of these keys are",
    UpsertProblem.ROWS_DELETED_BY_KEY: "another commit deleted the newest rows of some keys, maybe not the older ones",
    UpsertProblem.OLD_ROWS_CAME: "another commit brought back rows that are older than the deletes of their keys",
    UpsertProblem.FORMAT_CHANGED: "another commit changed the table's format version",
}


@dataclass(frozen=True, slots=True)
class ComparedTask:
    """A data file that was compared, and what became of its rows."""

    task: UpsertTask
    file: ComparedFile


@dataclass(frozen=True, slots=True)
class ComparedSpace:
    """A key space with all its inputs."""

    key_space: KeySpace
    inputs: tuple[ComparedTask, ...]

    @property
    def dead(self) -> int:
        return sum(compared.file.dead for compared in self.inputs)

    @property
    def purges(self) -> bool:
        """Whether the marks may include a delete, and with it all rows of its key."""
        return any(compared.file.deletes for compared in self.inputs)


def compared_spaces(plan: UpsertPlan, files: Sequence[ComparedFile]) -> list[ComparedSpace]:
    """The key spaces of a plan, in the order of their first inputs."""
    found: dict[KeySpace, list[ComparedTask]] = defaultdict(list)
    for source, file in zip(plan.inputs, files, strict=True):
        found[source.key_space].append(ComparedTask(source, file))
    return [ComparedSpace(key_space, tuple(inputs)) for key_space, inputs in found.items()]


class UpsertHead:
    """The branch as it is now. Key spaces are checked against it."""

    def __init__(self, state: TableState, plan: UpsertPlan) -> None:
        self.marked = MarkedHead(state)
        self._state = state
        self._plan = plan
        self._data = {entry.file.path: entry for entry in state.data}
        self._since = DeletesSince(state, [source.deletes for source in plan.inputs])
        self._takes_all: dict[tuple[int, KeySpace], bool] = {}
        planned = {source.entry.file.path for source in plan.inputs}
        self._unplanned = {
            scope_of(entry)
            for entry in state.data
            if entry.sequence <= plan.sequence_number and entry.file.path not in planned
        }
        """The partitions of old files that were not planned."""

    def problem_of(self, space: ComparedSpace) -> UpsertProblem | None:
        """Why the key space's rows cannot be marked; None: they can."""
        if self._state.metadata.format_version != self._plan.format_version:
            return UpsertProblem.FORMAT_CHANGED
        for compared in space.inputs:
            if compared.file.dead or compared.file.guards:
                match self.marked.standing(compared.task.entry, compared.task.deletes):
                    case Standing.GONE:
                        return UpsertProblem.FILE_GONE
                    case Standing.CHANGED:
                        return UpsertProblem.ROWS_DELETED_BY_POSITION
            if compared.file.guards and (problem := self._unguarded(compared, space)):
                return problem
        if space.purges and self._has_old_rows(space):
            return UpsertProblem.OLD_ROWS_CAME
        return None

    def _unguarded(self, compared: ComparedTask, space: ComparedSpace) -> UpsertProblem | None:
        """A problem, if a row that keeps others dead may have been deleted, and the others not."""
        new = self._since.new_to(compared.task.entry, compared.task.deletes)
        if new.by_position:
            return UpsertProblem.ROWS_DELETED_BY_POSITION
        shared = id(new.equality), space.key_space
        if shared not in self._takes_all:  # thousands of data files have the same new deletes
            self._takes_all[shared] = all(self._takes_whole_keys(entry, space) for entry in new.equality)
        return None if self._takes_all[shared] else UpsertProblem.ROWS_DELETED_BY_KEY

    def _takes_whole_keys(self, delete: ManifestEntry, space: ComparedSpace) -> bool:
        """Whether an equality delete removes all planned rows of a key, or none of them."""
        by_key = set(delete.file.equality_ids) <= self._plan.columns.key_ids
        is_newer = delete.sequence > self._plan.sequence_number
        return by_key and is_newer and (self._state.is_global(delete) or self._lies_in_one_partition(space))

    def _lies_in_one_partition(self, space: ComparedSpace) -> bool:
        if self._plan.reach is Reach.PARTITION:
            return True
        return (
            len(
                {
                    scope_of(compared.task.entry)
                    for compared in space.inputs
                    if compared.file.dead or compared.file.guards
                }
            )
            == 1
        )

    def _has_old_rows(self, space: ComparedSpace) -> bool:
        """Whether rows may be visible now that were absent or dead at the plan."""
        if self._unplanned if space.key_space is None else space.key_space in self._unplanned:
            return True
        for compared in space.inputs:
            live = self._data.get(compared.task.entry.file.path)
            if live is None:
                continue
            is_as_it_was = live.sequence_number == compared.task.entry.sequence_number
            then = compared.task.deletes
            has_new_vector = self._since.new_to(live, then).vector is not None
            if not is_as_it_was or has_new_vector or self._since.has_lost(then):
                return True
        return False
