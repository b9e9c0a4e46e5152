"""A compaction session: one partition stream, from its plan to the switch.

    plan       sessions/<id>/plan.json              base version, exact deltas, sizes: later attempts adopt it
    round 1    sessions/<id>/round-00001.json       position 80, index in terms of session ordinals
    round 2    sessions/<id>/round-00002.json       the last: what becomes of each file, pointers, the next index, masks
    outputs    sessions/<id>/outputs-00001.json     a batch of compacted files
    switch     a sealed entry in the base version's log
    published  sessions/<id>/published.json         the last completion, with size and version

Every record is put if absent, and the loser adopts the winner's record. So a session can be killed anywhere and
resumed, and two live attempts cannot publish a mix. Tasks write under names that are used once, and delete nothing:
running a task twice is harmless.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.events import ColumnsAdded, Event, EventSink, FilesDecided, RoundCompleted, SessionStarted
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.executors.executor import Executor
from deltacompact.planning.decisions import account_after, counted_reasons
from deltacompact.planning.outputs import OutputPlan
from deltacompact.planning.plan import CompactionPlan, Round
from deltacompact.session.arranged_outputs import forget_runs
from deltacompact.session.compacted_files import compacted_files
from deltacompact.session.last_round import LastRound, fold_last_round, resumed_last_round
from deltacompact.session.records import PUBLISHED, SessionRecords, completion, session_id
from deltacompact.session.rounds import BetweenRounds, before_the_rounds, fold_round, resumed_round
from deltacompact.session.stages import SessionMeasures, Stages
from deltacompact.session.workbench import Workbench
from deltacompact.steps.dedupe import FoldCounts
from deltacompact.storage.throttle import paced
from deltacompact.table.ports import CompactionOutput, Ports


@dataclass(frozen=True, slots=True)
class PublishedSession:
    """The version that a session put into force, with its files and counts."""

    version: str
    compacted: CompactedDelta
    counts: FoldCounts
    outputs: OutputPlan


class CompactionSession:
    """Executes one CompactionPlan. `number` says how many sessions for the same work were given up before.

    `records` are the session's records, if the plan has been recorded already.
    """

    def __init__(
        self,
        ports: Ports,
        plan: CompactionPlan,
        executor: Executor,
        emit: EventSink,
        number: int = 0,
        records: SessionRecords | None = None,
    ) -> None:
        self.id = session_id(plan, number)
        self.plan = plan
        self.rounds_resumed = 0
        self._emit = emit
        self._bench = Workbench(
            self.id,
            plan,
            executor,
            Stages(executor, self._tell),
            records or SessionRecords(ports.store, ports.workspace, self.id),
            ports.target,
            ports.workspace,
            ports.store,
            paced(ports.store, executor.pace, executor.stopped),
        )

    @property
    def measured(self) -> SessionMeasures:
        return self._bench.stages.measured

    def execute(self) -> PublishedSession:
        """Fold every round, materialize once, publish. Raises ConflictError if another session sealed the base."""
        plan = self.plan
        base, planned = plan.input.moment.destination_version, plan.input
        self._tell(SessionStarted, self.id, len(plan.rounds), planned.delta_rows, planned.why, base)
        if plan.new_columns:
            self._tell(ColumnsAdded, plan.new_columns)
        folding = before_the_rounds(self._bench)
        for round_ in plan.rounds[:-1]:
            folding = self._round(round_, folding)
            self._tell(RoundCompleted, round_.number, len(plan.rounds), folding.counts.live)
        last = self._last_round(folding)
        self._tell(RoundCompleted, len(plan.rounds), len(plan.rounds), last.counts.live)
        self._tell(FilesDecided, counted_reasons(last.outputs.decision.files))
        return self._publish(last, compacted_files(self._bench, last))

    def _round(self, round_: Round, before: BetweenRounds) -> BetweenRounds:
        self._check_before_resuming()
        resumed = resumed_round(self._bench, round_)
        self.rounds_resumed += resumed is not None
        return resumed or fold_round(self._bench, round_, before)

    def _last_round(self, before: BetweenRounds) -> LastRound:
        self._check_before_resuming()
        resumed = resumed_last_round(self._bench)
        self.rounds_resumed += resumed is not None
        return resumed or fold_last_round(self._bench, before)

    def _check_before_resuming(self) -> None:
        """Raise ConflictError if the session cannot publish: a vacuum may have deleted its files.

        Only for an attempt that may resume: a round that is folded checks this itself.
        """
        if not self._bench.records.begun_here:
            self._bench.check_may_publish()

    def _publish(self, last: LastRound, files: tuple[DataFile, ...]) -> PublishedSession:
        """Put the result into force through the commit target, and record it."""
        plan = self.plan
        next_number = max([plan.next_file_number, *(output.number + 1 for output in last.outputs.outputs)])
        decision = last.outputs.decision
        account = account_after(plan, decision.files, last.outputs.live, decision.arranged is not None)
        result = CompactionOutput(plan.keys, files, last.index, ChainFileNumber(next_number), plan.schema, account)
        in_force = self._bench.target.publish(plan.input, self.id, result)
        done = {
            **completion(plan, plan.rounds[-1], last.index),
            "compacted_stream_version": in_force.version,
            "compacted_bytes": in_force.compacted.bytes,
        }
        with contextlib.suppress(Exception):  # the version is in force: nothing depends on this record
            self._bench.records.put(PUBLISHED, done)
        forget_runs(self._bench, last.outputs.decision.arranged)
        return PublishedSession(in_force.version, in_force.compacted, last.counts, last.outputs)

    def _tell(self, kind: type[Event], *values: Any) -> None:
        self._emit(kind(self.plan.input.source_table_id, self.plan.input.partition, *values))
