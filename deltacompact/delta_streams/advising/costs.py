"""What compactions by some columns cost, by their plans and the log: no file is read.

partition 0    3 deltas, and 12 compacted files that overlap      rewritten         48 core-seconds
partition 1    nothing to do                                      left out
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from deltacompact.base.expected import Expected
from deltacompact.base.model import Partition
from deltacompact.base.partitions import side_by_side
from deltacompact.base.settings import Options, Settings
from deltacompact.delta_streams.advising.examined_files import ExaminedFiles, RangedFile
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.delta_streams.snapshots import OtherWork
from deltacompact.delta_streams.table_documents import clustering_of
from deltacompact.executors.choose import Foreseen, foresee, lane_for
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.value_ranges import ValueRanges, joined
from deltacompact.planning.decisions import FileAction, decide_files
from deltacompact.planning.driver_work import driver_s
from deltacompact.planning.lanes import Lane
from deltacompact.planning.marking import marking
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.statistics import statistics_of
from deltacompact.planning.terms import SessionTerms
from deltacompact.planning.touched import Touched
from deltacompact.planning.work import expected_s, together_s, work_of_plan
from deltacompact.session.planned import plan_session
from deltacompact.table.ports import NothingToDo
from deltacompact.tabular.coarse_times import needs_micros


@dataclass(frozen=True)
class ForeseenCompactions:
    """Compactions of the partitions of a table with keys, with rows clustered by these columns."""

    examined: ExaminedFiles
    files: Sequence[RangedFile]
    by: Sequence[ClusterColumn]
    options: Options
    settings: Settings

    @cached_property
    def plans(self) -> Sequence[CompactionPlan]:
        """The plans of the partitions in which a compaction would find something to do."""
        found = side_by_side(self.examined.partitions, self._plan, self.examined.streams.at_once)
        return [plan for plan in found if plan]

    @cached_property
    def _ranges(self) -> Mapping[str, ValueRanges]:
        """The ranges of each file, by its path."""
        return {ranged.file.path: joined(ranged.ranges) for ranged in self.files}

    @property
    def cold_files(self) -> int:
        """The number of files in S3's classes for infrequent access or archives: a compaction leaves them alone."""
        return sum(len(plan.input.cold) for plan in self.plans)

    def cost(self) -> tuple[int, int, Expected]:
        """(files to rewrite, their bytes, the expected seconds)."""
        written = [(plan, self._written(plan)) for plan in self.plans]
        there, slots = self._there, self._there.capacity.slots
        seconds = [self._seconds(plan, sources) for plan, sources in written]
        in_turn = lane_for(self.settings, *self._size) is Lane.POOL
        core_s = sum(core for _, core in seconds)
        cost = Expected(together_s(seconds, slots, in_turn), core_s, (), slots, there.start_s)
        sources = [source.file for _, sources in written for source in sources]
        return len(sources), sum(file.bytes for file in sources), cost

    def _plan(self, partition: Partition) -> CompactionPlan | None:
        """The plan of a compaction of a partition, where no file has to wait. None: it would find nothing to do."""
        streams, table = self.examined.streams, self.examined.table
        by = clustering_of([str(column) for column in self.by], table.partition_keys)
        assert table.keys is not None, "the adviser asks for costs of tables with keys alone"
        other = OtherWork(cluster_by=by, amplification_max=math.inf)
        stream = DeltaStreamPartition(streams, table, table.table_id, partition, table.keys, other)
        snapshot = stream.fetch()
        if isinstance(snapshot, NothingToDo):
            return None
        options = marking(replace(self.options, cluster_by=by, write_amplification_max=math.inf), table.readers)
        micros = needs_micros(table.publication)
        terms = SessionTerms(table.keys, table.partition_keys, options, table.tombstone_retention, micros)
        return plan_session(stream.ports, snapshot, terms, self._there.capacity)

    def _written(self, plan: CompactionPlan) -> list[SourceFile]:
        """The files that the session rewrites, if no row dies."""
        live = np.array([source.file.live_rows for source in plan.sources], np.int64)
        ranges = {source.ordinal: self._ranges.get(source.file.path, {}) for source in plan.sources}
        rewritten = (
            decision.ordinal for decision in decide_files(plan, live, ranges) if decision.action is FileAction.REWRITE
        )
        return [plan.sources[ordinal] for ordinal in rewritten]

    def _seconds(self, plan: CompactionPlan, written: Sequence[SourceFile]) -> tuple[float, float]:
        """The seconds of a session that runs by itself, and those on one slot."""
        base = sum(source.file.rows for source in plan.sources if source.in_base)
        share = sum(source.file.rows for source in written if source.in_base) / max(1, base)
        given = replace(statistics_of(plan), laid_out=share, touched=Touched(share, share, 0.0))
        there = self._there
        driver = 0.0 if there.executor == "local" else driver_s(plan.input.delta_rows + plan.base_rows, there.capacity)
        alone, core = (expected_s(work_of_plan(plan, slots, driver, given)) for slots in (there.capacity.slots, 1))
        return alone, core

    @property
    def _size(self) -> tuple[int, int]:
        return sum(ranged.file.rows for ranged in self.files), sum(ranged.file.bytes for ranged in self.files)

    @cached_property
    def _there(self) -> Foreseen:
        """The executor that would run the compactions, and its capacity."""
        return foresee(self.settings, lane_for(self.settings, *self._size))
