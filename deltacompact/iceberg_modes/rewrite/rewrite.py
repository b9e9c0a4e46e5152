"""The mode `rewrite`: files of a branch are read with all their deletes, and written anew without them.

plan        groups of files, and why                            pure
delete keys equality deletes -> digests by hash bucket          one task for some delete files
dead rows   data files -> live bitmaps                          one task for some data files
materialize live rows -> outputs                                the engine's own step, one task for each output
commit      one `replace` snapshot for some groups              groups that others touched are planned again
dangling    deletes that apply to nothing in any partition      removed, if that was asked for
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltacompact.base.modes import REWRITE
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import WrittenGroup
from deltacompact.iceberg_modes.journal.left_behind import Left
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.rewrite import outputs
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions
from deltacompact.iceberg_modes.rewrite.outputs import Job, codec_of
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan, plan_rewrite
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.iceberg_modes.rewrite.proposals import (
    ProposeRewrite,
    RewriteOutcome,
    Rewritten,
    propose_removal,
)
from deltacompact.iceberg_modes.rewrite.result import RewriteResult
from deltacompact.iceberg_modes.rewrite.resumption import record_of


class Rewrite(Mode[RewriteOptions, RewritePlan, "Rewriting", RewriteResult]):
    """One call of rewrite."""

    __slots__ = ()

    name = REWRITE

    def _planned(self, state: TableState, left: Left) -> RewritePlan:
        busy = frozenset[str]().union(*(live.files for live in left.live if live.plan.mode == REWRITE))
        return self._plan(state, self.options, busy=busy)

    def _approved(self, document: str | bytes, state: TableState, left: Left, done: frozenset[str]) -> RewritePlan:
        return plan_from_json(document, state, done)

    def _again(self, state: TableState, work: Rewriting) -> RewritePlan:
        paths = frozenset[str]().union(*(group.paths for group, _ in work.touched))
        return self._plan(state, work.plan.options, paths)

    def _plan(
        self,
        state: TableState,
        options: RewriteOptions,
        only: frozenset[str] | None = None,
        busy: frozenset[str] = frozenset(),
    ) -> RewritePlan:
        codec_of(state.metadata, self.settings)  # a bad one is refused before any work
        choices: dict[str, Any] = {}
        if options.where is not None and only is None:
            choices["wanted"] = self.table.may_match(options.where)
        if options.output_spec_id is not None:
            choices["partition_of"] = self.table.partition_in(options.output_spec_id)
        return plan_rewrite(state, options, only, busy, **choices)

    def _result(self, plan: RewritePlan) -> RewriteResult:
        return RewriteResult(self.table.metadata.table_id, self.branch)

    def _work(
        self,
        table: IcebergTable,
        state: TableState,
        plan: RewritePlan,
        former: Rewriting | None,
        result: RewriteResult,
    ) -> Rewriting:
        executor = executor_for(self.settings, plan.rows, plan.bytes)
        result.executor = executor.name
        return Rewriting(self, table, state, plan, executor, result)

    def _afterwards(self, table: IcebergTable, reader: StateReader, plan: RewritePlan, result: RewriteResult) -> None:
        if plan.options.remove_dangling_deletes:
            result.count(
                Committer(self.table.store, reader, self.branch, uuid.uuid4().hex).commit(table, propose_removal)
            )


@dataclass(slots=True)
class Rewriting:
    """The work of a plan. `touched` are the groups that others touched, and what they did."""

    call: Rewrite
    table: IcebergTable
    state: TableState
    plan: RewritePlan
    executor: Executor
    result: RewriteResult
    touched: list[tuple[FileGroup, str]] = field(default_factory=list)
    mode = REWRITE

    @property
    def document(self) -> Mapping[str, Any]:
        return plan_document(self.plan)

    @property
    def commits(self) -> Sequence[Sequence[FileGroup]]:
        """All groups in one, or some in each with partial progress."""
        groups, options = self.plan.groups, self.plan.options
        if not options.partial_progress:
            return [groups]
        share = math.ceil(len(groups) / options.max_commits)
        return [groups[start : start + share] for start in range(0, len(groups), share)]

    @property
    def failed_commits_max(self) -> int:
        return self.plan.options.max_failed_commits if self.plan.options.partial_progress else 0

    def written(self, groups: Sequence[FileGroup], session: str, folder: str) -> Iterator[Sequence[Rewritten]]:
        job = Job(self.call.table.store, self.table, self.state, self.plan, session)
        work = outputs.Work(job, self.executor, self.call.settings, self.call.sizes, folder)
        for rewritten in work.written(groups):
            yield [rewritten]

    def record(self, written: Rewritten) -> WrittenGroup:
        return record_of(written)

    def propose(self, groups: Sequence[FileGroup], written: Sequence[Rewritten]) -> ProposeRewrite:
        return ProposeRewrite(self.plan, written)

    def count(self, done: Committed[RewriteOutcome], groups: Sequence[FileGroup]) -> None:
        self.result.count(done)
        self.touched += [(rewritten.group, problem.words) for rewritten, problem in done.outcome.refused]

    @property
    def given_up(self) -> list[str]:
        return [f"{_name(group)}: {why}" for group, why in self.touched]


def _name(group: FileGroup) -> str:
    return f"{len(group.inputs)} files of partition {group.partition}" if group.partition else "a group of files"
