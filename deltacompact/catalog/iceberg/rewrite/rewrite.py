"""The driver of `rewrite`: files of a branch are read with all their deletes, and written anew without them.

resume      what sessions that died had written                 committed, or deleted where it cannot be
read        the branch of now                                   data files, delete files, sequence numbers
plan        groups of files, and why                            pure
session     written and committed under a journal               groups that others touched are planned again
dangling    deletes that apply to nothing in any partition      removed, if that was asked for
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from deltacompact.base.errors import ConflictError
from deltacompact.base.events import Event, EventSink, RewriteFinished
from deltacompact.base.settings import Settings
from deltacompact.base.wording import one_line
from deltacompact.catalog.iceberg.commit.committer import Committer
from deltacompact.catalog.iceberg.deletes.finding import Sizes
from deltacompact.catalog.iceberg.rewrite.options import RewriteOptions
from deltacompact.catalog.iceberg.rewrite.outputs import codec_of
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, RewritePlan, plan_rewrite
from deltacompact.catalog.iceberg.rewrite.plan_document import plan_from_json
from deltacompact.catalog.iceberg.rewrite.proposals import propose_removal
from deltacompact.catalog.iceberg.rewrite.result import RewriteResult
from deltacompact.catalog.iceberg.rewrite.resume import Left, landed_inputs, left_behind, resume
from deltacompact.catalog.iceberg.rewrite.session import EVERYWHERE, Session, Terms
from deltacompact.catalog.iceberg.rewrite.signs_of_life import Signs
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState

REDONE_MAX = 3
"""How often groups that others touched are planned and rewritten again."""


def no_sink(event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One call of rewrite: a branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: RewriteOptions
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    emit: EventSink = no_sink
    signs: Signs = field(default_factory=Signs)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self.table.store).read(self.table.metadata, self.branch)

    def plan(self) -> RewritePlan:
        """The plan for the branch. Writes nothing."""
        return self._plan(self.state(), self.options)

    def run(self, document: str | bytes | None = None) -> RewriteResult:
        """Rewrite, as `_run` says, and tell of the end."""
        finished = functools.partial(RewriteFinished, self.table.metadata.table_id, EVERYWHERE)
        try:
            result = self._run(document)
        except BaseException as error:
            self.emit(finished(one_line(error)))
            raise
        self.emit(finished(None))
        return result

    def _run(self, document: str | bytes | None) -> RewriteResult:
        """Rewrite and commit what a plan's document says; without one, plan first. Before that, what earlier sessions
        of the branch had written and not committed is committed.

        Groups that other writers touched are planned again. Raises ConflictError if they touched every group, again
        and again.
        """
        store = self.table.store
        reader = StateReader(store)
        result = RewriteResult(self.table.metadata.table_id, self.branch)
        table, state = self.table, reader.read(self.table.metadata, self.branch)
        left = left_behind(store, state, self.signs)
        result.notes += left.notes
        if document is None:
            plan = self._plan(state, self.options, busy=left.busy)
        else:
            plan = plan_from_json(document, state, landed_inputs(store, state, reader, left))
        if left.dead:  # only now: bad input is refused before anything is committed
            done = self._resumed(left, table, Committer(store, reader, self.branch, ""), result)
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            if document is None:
                plan = self._plan(state, self.options, busy=left.busy)
            else:
                plan = plan.of(group for group in plan.groups if not group.paths <= done)
        options, nothing_to_do = plan.options, plan.nothing_to_do
        terms = Terms(self.settings, self.sizes, self.emit, self.signs, self.before_commit)
        redone = 0
        while plan.groups:
            touched = Session.begin(store, reader, table, state, plan, terms).carried_out(result)
            if not touched:
                break
            if redone == REDONE_MAX:
                result.refused += [f"{_name(group)}: {why}" for group, why in touched]
                break
            redone += 1
            result.redone += len(touched)
            table = table.reloaded()
            state = reader.read(table.metadata, self.branch)
            reader.forget(state.manifests)
            paths = frozenset[str]().union(*(group.paths for group, _ in touched))
            plan = self._plan(state, options, paths)
        if options.remove_dangling_deletes:
            result.count(Committer(store, reader, self.branch, uuid.uuid4().hex).commit(table, propose_removal))
        if not result.snapshots:
            result.nothing_to_do = nothing_to_do
        if result.refused and not result.groups:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

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

    def _resumed(self, left: Left, table: IcebergTable, committer: Committer, result: RewriteResult) -> frozenset[str]:
        """Commit what dead sessions left. Returns the files that they rewrote."""
        done: frozenset[str] = frozenset()
        for session in left.dead:
            resumed = resume(session, table, replace(committer, session=session), self.signs)
            done |= resumed.done
            result.notes += resumed.notes
            if resumed.committed is not None:
                result.resumed += len(resumed.committed.outcome.groups)
                result.count(resumed.committed)
        return done


def _name(group: FileGroup) -> str:
    return f"{len(group.inputs)} files of partition {group.partition}" if group.partition else "a group of files"
