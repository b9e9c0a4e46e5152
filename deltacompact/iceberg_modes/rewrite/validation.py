"""May a group that was planned at one snapshot be committed onto another? Pure: two states in, problems out.

    planned at 5    input a, deletes p        output y has sequence number 5
    head is 8       a, p, append b            fine: nobody touched what we read
                    a, p, equality e (7)      fine: e applies to y as it does to a, 5 < 7 (rule 6)
                    a, p, positions q         q names rows of a, and would not follow them to y
                    b                         a is gone
                    a (7)                     a is gone, too: another file was added under its name, and stays
                    a                         p is gone, so rows that it deleted may live again
                    a with row ids            refused: the upgrade to version 3 gave its rows ids, which y lacks

We compare live files, not what the snapshots in between say about themselves. So every snapshot counts, whatever its
operation: a `replace` that turned an equality delete into position deletes shows as new position deletes (rule 23). And
the planned snapshot may expire meanwhile (rule 7). Marks in the outputs may solve the first three problems
(following.py).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes, EqualityDeletes, FileScanTask, OncePerTuple
from deltacompact.iceberg.deletes.since import DeletesSince
from deltacompact.iceberg.settled import compared_through
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.iceberg_modes.rewrite.choosing import may_not_be_merged
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan


class RewriteProblem(enum.StrEnum):
    """Why a group cannot be committed any more."""

    INPUT_GONE = "input_gone"
    NEW_ROW_IDS = "new_row_ids"
    NEW_POSITION_DELETE = "new_position_delete"
    NEW_EQUALITY_DELETE = "new_equality_delete"
    DELETE_GONE = "delete_gone"
    NOT_COMPARED = "not_compared"
    TOO_MANY_POSITIONS = "too_many_positions"

    @property
    def words(self) -> str:
        return _WORDS[self]


FOLLOWED = frozenset((RewriteProblem.INPUT_GONE, RewriteProblem.NEW_POSITION_DELETE, RewriteProblem.DELETE_GONE))
"""Problems that may be solved by marks in the outputs: others deleted rows of the group by position, or whole files."""

_WORDS = {
    RewriteProblem.INPUT_GONE: "another commit removed a file of the group",
    RewriteProblem.NEW_ROW_IDS: "another commit gave the rows of the group ids",
    RewriteProblem.NEW_POSITION_DELETE: "another commit deleted rows of the group by position",
    RewriteProblem.NEW_EQUALITY_DELETE: "another commit deleted rows of the group by key, and that would not follow "
    "them",
    RewriteProblem.DELETE_GONE: "another commit removed a delete file that the group had applied",
    RewriteProblem.NOT_COMPARED: "rows of the group have not been compared by an upsert: another commit rolled that "
    "back",
    RewriteProblem.TOO_MANY_POSITIONS: "other commits deleted more rows by position than are held in memory",
}


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """A data file that others touched: as it was planned, and as the head has it (None: it is gone).

    `deletes`: the head's deletes by position. `lost`: planned deletes that are gone.
    """

    planned: FileScanTask
    now: ManifestEntry | None
    deletes: Deletes
    lost: Deletes

    @property
    def path(self) -> str:
        return self.planned.entry.file.path

    @property
    def by_position(self) -> tuple[ManifestEntry, ...]:
        """All deletes that have to be read."""
        return (*self.deletes.by_position, *self.lost.by_position)


class RewriteHead:
    """The current head, against which groups of a plan are checked."""

    def __init__(self, state: TableState, plan: RewritePlan, groups: Iterable[FileGroup]) -> None:
        self._plan = plan
        self._state = state
        self._through = compared_through(state)
        self._data = {entry.file.path: entry for entry in state.data}
        planned = [source.deletes for group in groups for source in group.inputs]
        self._since = DeletesSince(state, planned, self._does_not_follow)
        equality = (entry for entry in state.deletes if entry.file.is_equality_delete and not state.is_global(entry))
        self._of_partitions = EqualityDeletes(equality, state.metadata.columns)
        self._newest = OncePerTuple(_newest_by_partition)

    @property
    def metadata(self) -> TableMetadata:
        return self._state.metadata

    @property
    def options(self) -> RewriteOptions:
        return self._plan.options

    @property
    def next_number(self) -> int:
        """The sequence number of the next snapshot."""
        return self._state.metadata.next_sequence_number

    def problems_of(self, group: FileGroup, targets: Set[Scope]) -> Iterator[RewriteProblem]:
        """Every reason why the group cannot be committed as it was written. `targets`: the outputs' partitions."""
        for source in group.inputs:
            now = self._now(source)
            if now is None:
                yield RewriteProblem.INPUT_GONE
                continue
            if now.file.first_row_id != source.entry.file.first_row_id:
                yield RewriteProblem.NEW_ROW_IDS
            if may_not_be_merged(now, self._plan.options, self._through):
                yield RewriteProblem.NOT_COMPARED
            new = self._since.new_to(now, source.deletes)
            if new.by_position:
                yield RewriteProblem.NEW_POSITION_DELETE
            if new.equality or self._is_hit_elsewhere(now, targets, group):
                yield RewriteProblem.NEW_EQUALITY_DELETE
            if self._since.has_lost(source.deletes):
                yield RewriteProblem.DELETE_GONE

    def is_gone(self, group: FileGroup) -> bool:
        """Whether no data file of the group is left."""
        return all(self._now(source) is None for source in group.inputs)

    def changed(self, group: FileGroup) -> Iterator[ChangedSource]:
        """The data files of the group that are gone, or whose deletes by position have changed."""
        for source in group.inputs:
            now = self._now(source)
            if now is None:
                yield ChangedSource(source, None, Deletes(), Deletes())
                continue
            lost = self._since.lost(source.deletes)
            if len(lost) or self._since.new_to(now, source.deletes).by_position:
                yield ChangedSource(source, now, replace(self._by_position.applying_to(now), equality=()), lost)

    def _now(self, source: FileScanTask) -> ManifestEntry | None:
        """The data file as the head has it; None: it is gone, or was added again as another file of its name."""
        now = self._data.get(source.entry.file.path)
        return now if now is not None and now.sequence_number == source.entry.sequence_number else None

    @functools.cached_property
    def _by_position(self) -> DeleteIndex:
        deletes = tuple(entry for entry in self._state.deletes if not entry.file.is_equality_delete)
        return DeleteIndex(replace(self._state, deletes=deletes))

    def _does_not_follow(self, delete: ManifestEntry) -> bool:
        """Whether a new delete hits inputs, but would not hit the same rows in outputs."""
        follows = delete.file.is_equality_delete and self._plan.options.use_starting_sequence_number
        return not follows or delete.sequence <= self._plan.sequence_number

    def _is_hit_elsewhere(self, now: ManifestEntry, targets: Set[Scope], group: FileGroup) -> bool:
        """Whether equality deletes would hit other rows once rows move to other partitions (rules 2 and 17).

        Newer deletes of the old partition would not follow the rows. Deletes of the new partition were not meant for
        them; older ones apply, too, if the outputs' sequence number is below the plan's. All other deletes were applied
        to the rows, or reach every partition.
        """
        here = scope_of(now)
        if targets <= {here}:
            return False
        planned = self._plan.sequence_number
        number = planned if (own := self.number_of(group)) is None else own
        newest = self._newest(self._of_partitions.applying_to(replace(now, sequence_number=number)))
        return newest.get(here, 0) > planned or any(scope in targets for scope in newest if scope != here)

    def number_of(self, group: FileGroup) -> int | None:
        """The data sequence number of the group's outputs. None: that of their snapshot.

        It is the plan's, so that later equality deletes keep applying (rule 5). But rows that an upsert has compared
        must stay older than all rows that it has not, so their number is at most `through` of `settled.py`. Equality
        deletes between the two numbers were applied to each input, so applying them again changes nothing.
        """
        planned = self._plan.sequence_number
        if self._through is not None and not group.has_lineage and _newest(group) <= self._through:
            return min(planned, self._through)
        return planned if self._plan.options.use_starting_sequence_number else None

    def live(self, group: FileGroup) -> list[ManifestEntry]:
        """The group's inputs as the head has them; those that are gone are left out."""
        found = [self._now(source) for source in group.inputs]
        return [entry for entry in found if entry is not None]


def _newest(group: FileGroup) -> int:
    return max(source.entry.sequence for source in group.inputs)


def _newest_by_partition(deletes: tuple[ManifestEntry, ...]) -> dict[Scope, int]:
    return {scope_of(entry): entry.sequence for entry in deletes}  # by sequence number: the last one is the newest
