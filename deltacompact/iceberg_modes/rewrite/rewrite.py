"""The mode `rewrite`: files of a branch are read with all their deletes, and written anew without them.

plan        groups of files, and why                            pure
delete keys equality deletes -> digests by hash bucket          one task for some delete files
dead rows   data files -> live bitmaps                          one task for some data files
materialize live rows -> outputs                                the engine's own step, one task for each output
commit      one `replace` snapshot for some groups              what others deleted meanwhile is marked in the outputs;
                                                                where that cannot be, groups are planned again
dangling    deletes that apply to nothing in any partition      removed, if that was asked for
"""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltacompact.base.wording import counted
from deltacompact.executors.choose import executor_for
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.commit.proposal import Propose
from deltacompact.iceberg.file_fingerprints import FileFingerprints
from deltacompact.iceberg.table.codec import codec_of
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg.table_heat import heat_of_table
from deltacompact.iceberg_modes.certified import (
    Certified,
    certified_before,
    has_same_rows,
    resumed_adding_up,
    telling,
)
from deltacompact.iceberg_modes.journal.journal import WrittenGroup
from deltacompact.iceberg_modes.journal.left_behind import SessionsLeft
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.marking import marker_of
from deltacompact.iceberg_modes.rewrite.adding_up import AddingUp
from deltacompact.iceberg_modes.rewrite.choosing import FileFacts, RewriteReason
from deltacompact.iceberg_modes.rewrite.cold_files import without_cold
from deltacompact.iceberg_modes.rewrite.expected import expected, totals_after
from deltacompact.iceberg_modes.rewrite.following import Follower
from deltacompact.iceberg_modes.rewrite.laid_out import badly_laid, with_extents
from deltacompact.iceberg_modes.rewrite.options import NAME, JobOrder, RewriteOptions
from deltacompact.iceberg_modes.rewrite.outputs import Job, Outputs
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan, plan_rewrite
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.iceberg_modes.rewrite.proposals import (
    ProposeRewrite,
    RewriteOutcome,
    Rewritten,
    propose_removal,
)
from deltacompact.iceberg_modes.rewrite.result import RewriteResult
from deltacompact.iceberg_modes.rewrite.resumption import ResumeRewrite, record_of
from deltacompact.iceberg_modes.rewrite.row_order import row_order_of
from deltacompact.iceberg_modes.rewrite.tied_bounds import tied_lines
from deltacompact.iceberg_modes.rewrite.worth import worth_of
from deltacompact.iceberg_modes.steps import Call, Reads, Resuming, Steps, Work
from deltacompact.layout.reads import columns_asked


def _planned(call: Call[RewritePlan, RewriteResult], state: TableState, left: SessionsLeft) -> RewritePlan:
    busy = frozenset[str]().union(*(live.files for live in left.live if live.plan.mode == NAME))
    return _plan(call, state, call.options, FileFacts(busy=busy))


def _plan(
    call: Call[RewritePlan, RewriteResult],
    state: TableState,
    options: RewriteOptions,
    facts: FileFacts,
) -> RewritePlan:
    """The plan of a call. `facts`: what is known before the layout is looked at."""
    codec_of(state.metadata.properties, call.settings.compression)  # a bad one is refused before any work
    row_order_of(state.metadata, options)
    places: dict[str, Any] = {}
    if options.output_spec_id is not None:
        places["partition_of"] = call.table.partition_in(options.output_spec_id)
    if options.job_order is JobOrder.HEAT_DESC:
        heat = heat_of_table(call.table.store, state.metadata).read()
        places["worth"] = worth_of(state, columns_asked(heat.known(state.metadata.ordered_columns)))
    if facts.only is not None:
        return with_extents(plan_rewrite(state, options, facts, **places), state)
    if options.where is not None:
        may_match = call.table.may_match(options.where)
        wanted = frozenset(entry.file.path for entry in state.data if may_match(entry.file))
        facts = replace(facts, wanted=lambda file: file.path in wanted)

    def planned(cold: frozenset[str]) -> RewritePlan:
        known = replace(facts, cold=cold)
        laid = badly_laid(state, options, known, places.get("worth"))
        all_facts = replace(
            known, overlapping=laid.chosen | cold, waiting=laid.waits, laid_out=laid.laid_out, merged=laid.merged
        )
        return plan_rewrite(state, options, all_facts, **places)

    if not options.arranges or options.rewrite_all:
        return with_extents(planned(frozenset()), state)
    return with_extents(without_cold(call.table.store, planned)[0], state)


@dataclass(frozen=True, slots=True)
class _FilesAgain:
    """Files to plan again: those of a group that could not be committed, with the reason, or a worn output."""

    paths: frozenset[str]
    name: str = ""
    why: str = ""


@dataclass(slots=True)
class Rewriting(Work[RewritePlan, FileGroup, Rewritten, RewriteOutcome, RewriteResult]):
    """The work of a plan."""

    session: str = field(init=False)
    certified: Certified | None = field(init=False, default=None)

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
        self.session = session
        certified = self.certified = self.certified or certified_before(self.call, self.table, self.state)
        job = Job(self.call.table.store, self.table, self.state, self.plan, session, certified.files.of)
        work = Outputs(job, self.executor, self.call.settings, self.call.sizes, folder)
        for rewritten in work.written(groups):
            certified.files.of.update(rewritten.fingerprints)
            yield [rewritten]

    def record(self, written: Rewritten) -> WrittenGroup:
        return record_of(written)

    def propose(self, groups: Sequence[FileGroup], written: Sequence[Rewritten]) -> Propose[RewriteOutcome]:
        marker = marker_of(self.call, self.session, lambda: self.executor, self.reserved)
        follower = Follower(self.call.table.store, marker, self.call.settings.limits.reading, self.result.notes)
        assert self.certified is not None, "groups are written before they are proposed"
        adds_up = _adding_up(self.call, self.result.notes, True, self.certified.files)
        propose = ProposeRewrite(self.plan, written, follower, self.certified.head, adds_up)
        return telling(self.call, propose, self.certified.files)

    def count(self, done: Committed[RewriteOutcome], groups: Sequence[FileGroup]) -> None:
        self.result.count(done)
        by = row_order_of(self.state.metadata, self.plan.options)
        written = [file for group in done.outcome.groups for file in group.outputs]
        tied = tied_lines(self.state.metadata, by.bounded if by else (), written)
        self.result.notes += [line for line in tied if line not in self.result.notes]
        self.touched += [
            _FilesAgain(group.group.paths, _name(self.plan, group.group), problem.words)
            for group, problem in done.outcome.refused
        ]
        self.touched += [_FilesAgain(frozenset((path,))) for path in sorted(done.outcome.worn)]

    def again(self, state: TableState) -> RewritePlan:
        paths = frozenset[str]().union(*(touched.paths for touched in self.touched))
        overlapping = (task.entry.file.path for task in self.plan.inputs if task.reason is RewriteReason.OVERLAPS)
        options = self.plan.options
        merged = {path: group.number for group in self.plan.groups for path in group.paths} if options.arranges else {}
        facts = FileFacts(paths, overlapping=frozenset(overlapping), merged=merged)
        return _plan(self.call, state, options, facts)

    @property
    def given_up(self) -> list[str]:
        return [f"{group.name}: {group.why}" for group in self.touched if group.why]


def _resume(resuming: Resuming, plan: RewritePlan | None) -> Resumption:
    here = functools.partial(executor_for, resuming.call.settings, 0, 0)
    call, marker = resuming.call, marker_of(resuming.call, resuming.dead.session, here)
    follow = Follower(call.table.store, marker, call.settings.limits.reading, resuming.notes)
    adds_up = _adding_up(resuming.call, resuming.notes, False, FileFingerprints())
    resumption = ResumeRewrite(resuming.reader, follow, resuming.compares, adds_up)
    return resumed_adding_up(resuming, resumption, has_same_rows)


def _adding_up(call: Call[Any, Any], notes: list[str], is_fatal: bool, known: FileFingerprints) -> AddingUp | None:
    return AddingUp(call.table.store, notes, is_fatal, known) if call.settings.certify else None


def _name(plan: RewritePlan, group: FileGroup) -> str:
    if not group.partition:
        return "a group of files"
    return f"{counted(len(group.inputs), 'file')} of {plan.named((group.spec_id, group.partition))}"


def _reads(plan: Callable[[], RewritePlan], state: Callable[[], TableState]) -> Reads:
    """The files that are written anew."""
    inputs = plan().inputs
    return Reads(inputs, sum(source.reason is RewriteReason.TOO_SMALL for source in inputs), writes_inputs=True)


def _without_dangling_deletes(
    call: Call[RewritePlan, RewriteResult],
    table: IcebergTable,
    reader: StateReader,
    plan: RewritePlan,
    result: RewriteResult,
) -> None:
    if plan.options.remove_dangling_deletes:
        result.count(Committer(table.store, reader, call.branch, uuid.uuid4().hex).commit(table, propose_removal))


STEPS = Steps(
    plan=_planned,
    approved=lambda document, state, left, done: plan_from_json(document, state, done),
    document=plan_document,
    result=lambda call, plan: RewriteResult(
        call.table.metadata.table_id, call.branch, notes=plan.left if plan.groups else []
    ),
    work=Rewriting,
    resume=_resume,
    expected=expected,
    reads=_reads,
    totals_after=totals_after,
    afterwards=_without_dangling_deletes,
)
