"""The mode `upsert`: the newest row of each key lives.

plan        files to compare with each other, by key space      pure
compare     live rows -> which are superseded                   with the digests, entries and fold of delta streams
mark        superseded rows -> position deletes or vectors      `marks/`; no data file is written
commit      one row delta                                       key spaces that other writers changed are compared again

Marked rows are dead for every reader. The mode `rewrite` takes them out of the files.
"""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.commit.proposal import Proposal, Propose
from deltacompact.iceberg.key_index.indexes import KeyIndexes, is_enabled
from deltacompact.iceberg.marks.marking import FileToMark, Mark, Marker
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.certified import (
    adding_up,
    certified_before,
    certified_marks,
    resumed_adding_up,
    telling,
)
from deltacompact.iceberg_modes.expected import expected, hashed_s
from deltacompact.iceberg_modes.journal.journal import WrittenGroup
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.marking import marker_of
from deltacompact.iceberg_modes.steps import Call, Resuming, Steps, Work
from deltacompact.iceberg_modes.totals import totals_marked
from deltacompact.iceberg_modes.upsert.comparing import KeyComparison
from deltacompact.iceberg_modes.upsert.plan import KeySpace, SpaceGroup, UpsertPlan, plan_upsert
from deltacompact.iceberg_modes.upsert.plan_document import plan_document, plan_from_json
from deltacompact.iceberg_modes.upsert.proposals import MarkedSpace, ProposeMemory, ProposeUpsert, UpsertOutcome
from deltacompact.iceberg_modes.upsert.result import UpsertResult
from deltacompact.iceberg_modes.upsert.resumption import is_by, record_of, resume_upsert
from deltacompact.iceberg_modes.upsert.validation import ComparedSpace, compared_spaces


@dataclass(slots=True)
class Upserting(Work[UpsertPlan, SpaceGroup, tuple[SpaceGroup, MarkedSpace], UpsertOutcome, UpsertResult]):
    """The work of a plan. `touched`: key spaces that other writers changed meanwhile, and what they did."""

    def written(
        self, groups: Sequence[SpaceGroup], session: str, folder: str
    ) -> Iterator[Sequence[tuple[SpaceGroup, MarkedSpace]]]:
        store, metadata = self.call.table.store, self.state.metadata
        sizes = self.call.sizes
        tasks, limits, indexes = Tasks(store, self.executor), self.call.settings.limits, None
        if is_enabled(self.plan.options.key_index, metadata.properties):
            indexes = KeyIndexes.of(tasks, self.state.data, limits, folder, self.result.notes, sizes.block_entries)
        marker = marker_of(self.call, session, lambda: self.executor)(metadata)
        comparison = KeyComparison(store, metadata, self.plan, self.executor, limits, sizes, folder, indexes)
        marked = _marked_spaces(compared_spaces(self.plan, comparison.compared()), marker)
        yield list(zip(groups, marked, strict=True))

    def record(self, written: tuple[SpaceGroup, MarkedSpace]) -> WrittenGroup:
        group, marked = written
        return record_of(group.number, marked)

    def propose(
        self, groups: Sequence[SpaceGroup], written: Sequence[tuple[SpaceGroup, MarkedSpace]]
    ) -> Propose[UpsertOutcome]:
        call, table = self.call, self.table
        spaces = [
            replace(marked_space, fingerprint=certified_marks(call, table, marked_space.marks))
            for _, marked_space in written
        ]
        certified = certified_before(call, table, self.state)
        propose = ProposeUpsert(self.plan, spaces, certified.head)
        return telling(call, adding_up(call, propose, self._is_right), certified.files)

    def _is_right(self, state: TableState, proposal: Proposal[UpsertOutcome], changed: Fingerprint) -> bool:
        """Whether the proposal removes superseded rows, and no others. On the planned snapshot it must remove all.

        Fingerprints under two schemas cannot be compared.
        """
        marked = (
            marked_space.fingerprint for marked_space in proposal.outcome.spaces if marked_space.fingerprint is not None
        )
        planned = self.plan.snapshot_id, self.state.metadata.schema_id
        if (state.snapshot_id, state.metadata.schema_id) != planned:
            return _loses_superseded(state, proposal, changed)
        return changed == Fingerprint() - sum(marked, Fingerprint()) and -changed.rows == _superseded(proposal)

    def count(self, done: Committed[UpsertOutcome], groups: Sequence[SpaceGroup]) -> None:
        self.result.count(done)
        self.touched += done.outcome.refused

    def again(self, state: TableState) -> UpsertPlan:
        former = self.plan
        plan = plan_upsert(
            state, former.options, only=frozenset(marked_space.space.key_space for marked_space, _ in self.touched)
        )
        if plan.reach is not former.reach or not self._has_stayed(state):
            return plan_upsert(state, former.options)  # with a new spec, a key's rows may lie in several partitions
        return replace(plan, through=former.through)

    def _has_stayed(self, state: TableState) -> bool:
        """Whether the head descends from the planned snapshot and from our commits. If not, marked rows may live."""
        line = {snapshot.snapshot_id for snapshot in state.metadata.ancestors(state.snapshot)}
        return line.issuperset({self.plan.snapshot_id, *self.result.snapshots})

    @property
    def given_up(self) -> list[str]:
        return [f"{self._name(marked_space.space)}: {problem.words}" for marked_space, problem in self.touched]

    def _name(self, space: ComparedSpace) -> str:
        return "the table" if space.key_space is None else self.plan.named(space.key_space)


def _marked_spaces(spaces: Sequence[ComparedSpace], marker: Marker) -> list[MarkedSpace]:
    """Each key space with the marks of its dead rows."""
    dead = [
        FileToMark(compared.task, LiveBitmap(compared.file.masks_path, compared.file.ordinal))
        for space in spaces
        for compared in space.inputs
        if compared.file.masks_path is not None
    ]
    marks_of: dict[KeySpace, list[Mark]] = defaultdict(list)
    space_of = {compared.task.entry.file.path: space.key_space for space in spaces for compared in space.inputs}
    for mark in marker.marks(dead):
        marks_of[space_of[mark.of[0].entry.file.path]].append(mark)
    return [MarkedSpace(space, tuple(marks_of[space.key_space])) for space in spaces]


def _resume(resuming: Resuming, plan: UpsertPlan | None) -> Resumption | None:
    is_known = plan is not None and is_by(resuming.dead.plan, plan)
    if plan is None or not is_known:
        return None
    return resumed_adding_up(resuming, functools.partial(resume_upsert, plan.columns), _loses_superseded)


def _loses_superseded(state: TableState, proposal: Proposal[UpsertOutcome], changed: Fingerprint) -> bool:
    """Whether the proposal removes at most the superseded rows. Other writers may have deleted some of them."""
    return 0 <= -changed.rows <= _superseded(proposal)


def _superseded(proposal: Proposal[UpsertOutcome]) -> int:
    return sum(marked_space.space.dead for marked_space in proposal.outcome.spaces)


def _remember(
    call: Call[UpsertPlan, UpsertResult],
    table: IcebergTable,
    reader: StateReader,
    plan: UpsertPlan,
    result: UpsertResult,
) -> None:
    if not plan.inputs and plan.settled is not None and not plan.settled.is_kept:
        committer = Committer(table.store, reader, call.branch, uuid.uuid4().hex)
        result.count(committer.commit(table, ProposeMemory(plan.recorded)))


STEPS = Steps(
    plan=lambda call, state, left: plan_upsert(state, call.options),
    approved=lambda document, state, left, done: plan_from_json(document, state),
    document=plan_document,
    result=lambda call, plan: UpsertResult(plan.table_id, call.branch, compared_by=plan.words),
    work=Upserting,
    resume=_resume,
    expected=lambda plan, capacity: expected(plan, capacity, lambda group: hashed_s(group.rows)),
    totals_after=lambda plan, state: totals_marked(state, plan.inputs),
    nothing_found="no two rows have the same key, and none deletes one",
    afterwards=_remember,
)
