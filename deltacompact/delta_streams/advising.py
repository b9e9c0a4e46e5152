"""Advice before work on delta streams: how files lie by some columns, what clustering would bring, and what it costs.

    now          day: depth 3.1, a reader opens 1.2 % of the files      customer: depth 240, 100 %
    clustered    day 9 %, customer 11 %, both 1 %                       by a tree over rows of some files
    cost         3 deltas, and 12 compacted files that overlap          48 core-seconds of a compaction
    gain         0.9 core-seconds for each read                         worth it from 54 reads on

Depth is counted from the footers of all files, compacted ones and deltas. Whatever has no bounds may hold any value:
CSV, JSON, a group of nulls, a footer that cannot be read. Rows come from some files. The cost is that of a compaction
by these columns, as its plan and the log tell it: it takes deltas, and compacted files that overlap.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.expected import Expected
from deltacompact.base.limits import LIMITS, READ_LIMITS
from deltacompact.base.model import DataFile, OperationType, Partition, Table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.settings import Options, Settings
from deltacompact.base.wording import column_meant, counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import clustering_of
from deltacompact.delta_streams.table_heat import heat_of_streams
from deltacompact.executors.choose import Foreseen, foresee, lane_for
from deltacompact.layout.advice import READS, Advice, Outlook, left_alone
from deltacompact.layout.boxes import Boxes, boxes_of
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.depth import depth_of
from deltacompact.layout.order import has_order
from deltacompact.layout.prospect import PartitionSample, Prospect, foreseen, outlooks
from deltacompact.layout.reads import columns_asked
from deltacompact.layout.simulation import Arrival
from deltacompact.layout.spread import spread
from deltacompact.layout.told_reads import ToldReads, told_reads
from deltacompact.layout.value_ranges import ValueRanges, column_bounds, joined, with_rows
from deltacompact.planning import sizing
from deltacompact.planning.decisions import FileAction, decide_files
from deltacompact.planning.driver_work import driver_s
from deltacompact.planning.lanes import Lane
from deltacompact.planning.marking import marking
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.simulated import PolicyOutcome, check_count, simulated
from deltacompact.planning.statistics import statistics_of
from deltacompact.planning.touched import Touched
from deltacompact.planning.work import expected_s, together_s, work_of_plan
from deltacompact.planning.worth import with_gain
from deltacompact.session.attempts import SessionTerms, plan_session
from deltacompact.steps.file_ranges import ranges_of_group
from deltacompact.storage.cold_classes import cold_among
from deltacompact.table.ports import NothingToDo
from deltacompact.tabular import schemas
from deltacompact.tabular.files import Part, read_each
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups
from deltacompact.tabular.row_groups import cells_of

FOOTERS_MAX = 4_096
"""So many footers are read. Of a larger table, one names partitions."""
PARTITIONS_SAMPLED, FILES_SAMPLED, ROWS_SAMPLED = 4, 32, 20_000
"""Of so many partitions, the largest ones, rows are looked at: in so many files of all, about so many."""

OPTIONS = Options()
"""Those of the compaction that is foreseen."""


@dataclass(frozen=True, slots=True)
class _Came:
    """A file, the number of its partition, and when it came there, in Unix seconds."""

    file: DataFile
    partition: int
    came_s: float


@dataclass(frozen=True)
class _Looked:
    """Some partitions of a table, and the files that hold rows there."""

    streams: Streams
    table: Table
    partitions: Sequence[Partition]
    files: Sequence[_Came]

    @classmethod
    def at(cls, streams: Streams, table_id: str, partition: Partition | None) -> _Looked:
        table = streams.declared(table_id)
        chosen = streams.partitions(table_id) if partition is None else [partition]
        states = side_by_side(chosen, lambda one: streams.state(table_id, one), streams.at_once)
        files = [_Came(file, number, at_s) for number, state in enumerate(states) for file, at_s in _files(state)]
        if len(files) > FOOTERS_MAX:
            many = f"table {table_id!r} has {len(files):,} files, whose footers would be read"
            raise InputError(f"{many}: name a partition")
        return cls(streams, table, chosen, files)

    @cached_property
    def ordered_columns(self) -> frozenset[str]:
        """The columns by which files may lie apart. A partition key has one value."""
        names = {field.name for one in self.files for field in one.file.schema if has_order(field.type)}
        return frozenset(names.difference(self.table.partition_keys))

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Columns with their types."""
        files = [one.file for one in self.files]
        return pa.schema([(name, _type(self.table.table_id, name, files)) for name in names])


@dataclass(frozen=True, slots=True)
class _Lying:
    """A file, the number of its partition, and its row groups with the ranges of their columns."""

    file: DataFile
    partition: int
    groups: tuple[KeyedGroup, ...]
    ranges: tuple[ValueRanges, ...]


def advice_of_streams(
    streams: Streams,
    table_id: str,
    columns: str | Sequence[str] | None = None,
    partition: Partition | None = None,
    reads: int = READS,
    settings: Settings | None = None,
    scan_reports: Iterable[Any] = (),
    spark_logs: Iterable[str | Path] = (),
) -> Advice:
    """The advice about clustering by these columns; without any, by those that reads ask for, else by those by which
    the table is clustered, else by those of its heat; where there are none, the depth of the primary keys.

    Raises InputError for a column that no file has, that lies in a struct, is a partition key, or has no order, for
    reads of which none asks for a column of the table, and for too many files.
    """
    looked = _Looked.at(streams, table_id, partition)
    table, files = looked.table, looked.files
    told = told_reads(table_id, looked.ordered_columns, time.time(), scan_reports, spark_logs)
    by = _columns(looked, columns, told)
    names = [column.name for column in by] or list(table.keys.primary if table.keys else ())
    if not names:
        raise InputError(f"table {table_id!r} has no primary keys yet: name columns, day,customer")
    size = sum(one.file.bytes for one in files)
    advice = Advice(table_id, tuple(names), len(looked.partitions), len(files), size, (), reads, notes=told.notes)
    if not files:
        return advice
    return _StreamAdviser(streams, looked, looked.schema(names), by, settings or Settings()).advice(advice)


def reads_of_streams(
    streams: Streams,
    table_id: str,
    partition: Partition | None = None,
    scan_reports: Iterable[Any] = (),
    spark_logs: Iterable[str | Path] = (),
) -> ToldReads:
    """The reads of a table that are told of, by the columns by which its files may lie apart."""
    columns = _Looked.at(streams, table_id, partition).ordered_columns
    return told_reads(table_id, columns, time.time(), scan_reports, spark_logs)


def simulated_streams(
    streams: Streams,
    table_id: str,
    told: ToldReads,
    columns: str | Sequence[str] | None = None,
    partition: Partition | None = None,
    depths: Sequence[float] = (),
) -> tuple[PolicyOutcome, ...]:
    """What policies would have cost and saved. Deltas came as they were committed, compacted files with their version.

    Raises InputError as `advice_of_streams`, and for a table without files, or with too many.
    """
    looked = _Looked.at(streams, table_id, partition)
    check_count(table_id, len(looked.files))
    by = _columns(looked, columns, told) if columns else told.columns_asked()
    adviser = _StreamAdviser(streams, looked, looked.schema([column.name for column in by]), by, Settings())
    arrivals = [Arrival(one.came_s, one.file.bytes) for one in looked.files]
    target = sizing.target_file_bytes(sum(one.file.bytes for one in looked.files) // len(looked.partitions))
    return simulated(adviser.now([]).files, arrivals, told.reads, by, target, depths)


def _columns(looked: _Looked, columns: str | Sequence[str] | None, told: ToldReads) -> tuple[ClusterColumn, ...]:
    """Those that were chosen, else those that reads ask for, else those by which the table is clustered, else those of
    its heat."""
    if columns is not None:
        if not (found := cluster_columns("columns", columns)):
            raise InputError("columns is empty: name some, day*3,customer")
    elif told.sources:
        found = told.columns_asked()
    elif not (found := cluster_columns("columns", looked.table.cluster_by or "")):
        heat = heat_of_streams(looked.streams, looked.table.table_id).read()
        found = columns_asked(heat.known(looked.ordered_columns))
    clustering_of([column.name for column in found], looked.table.partition_keys)
    return found


def _files(state: StreamState) -> Iterator[tuple[DataFile, float]]:
    """The files that hold rows, and when each came."""
    made_s = (state.opened.time_ms or 0) / 1000
    yield from ((file, made_s) for file in (state.compacted.files if state.compacted else ()))
    times_s = {delta.position: commit.time_ms / 1000 for commit in state.commits for delta in commit.deltas}
    for delta in state.deltas:
        if delta.operation is OperationType.UPSERT:
            yield from ((file, times_s.get(delta.position, made_s)) for file in delta.files)


def _lying(streams: Streams, came: _Came, columns: pa.Schema) -> _Lying:
    file = came.file
    try:
        groups = keyed_groups(streams.store, replace(file, ranges=()), columns.names)  # no reader sees those of texts
    except (ValueError, OverflowError):  # moments that Python does not have
        groups = (KeyedGroup(file.live_rows, file.bytes),)
    return _Lying(file, came.partition, groups, tuple(ranges_of_group(one, file.schema, columns) for one in groups))


def _type(table_id: str, name: str, files: Sequence[DataFile]) -> pa.DataType:
    """The type of a column, as the last file has it."""
    known = [file.schema.field(name).type for file in files if name in file.schema.names]
    if not known:
        why = "name one at the top level" if "." in name else column_meant(name, files[-1].schema.names)
        raise InputError(f"no file of table {table_id!r} has a column {name!r}: {why}")
    if not has_order(known[-1]):
        raise InputError(f"column {name!r} of table {table_id!r} is {known[-1]}, whose values have no order")
    return known[-1]


@dataclass(frozen=True)
class _StreamAdviser:
    """Gives the advice. `columns`: those that are of interest; `by`: by which to cluster."""

    streams: Streams
    looked: _Looked
    columns: pa.Schema
    by: Sequence[ClusterColumn]
    settings: Settings

    @property
    def table(self) -> Table:
        return self.looked.table

    @property
    def partitions(self) -> Sequence[Partition]:
        return self.looked.partitions

    @cached_property
    def lying(self) -> Sequence[_Lying]:
        """The files with what their footers say."""
        return side_by_side(
            self.looked.files, lambda one: _lying(self.streams, one, self.columns), self.streams.at_once
        )

    def advice(self, advice: Advice) -> Advice:
        advice = replace(advice, notes=(*advice.notes, *self._notes()))
        if not self.by:
            now = self.now([])
            places = range(len(self.columns))
            found = [Outlook(depth_of(now.files.of(place), now.groups.of(place))) for place in places]
            together = [Outlook(depth_of(now.files, now.groups))] if len(places) > 1 else []
            return replace(advice, outlooks=(*found, *together), boxes=now.files)
        samples = self._samples()
        now = self.now(samples)
        then = foreseen([one for _, one in samples], self.by, self._cells_per_file(samples))
        advice = replace(advice, outlooks=outlooks(now, then), boxes=now.files)
        if self.table.keys is None:
            return advice
        planned = [one for one in side_by_side(self.partitions, self._planned, self.streams.at_once) if one]
        cold = sum(len(plan.input.cold) for plan in planned)
        return with_gain(replace(advice, notes=(*advice.notes, *left_alone(cold))), self.by, *self._cost(planned))

    def _notes(self) -> Iterator[str]:
        for name in self.columns.names:
            if unknown := sum(name not in joined(one.ranges) for one in self.lying):
                yield f"{counted(unknown, 'file')} without bounds of column {name!r}: readers open them always"
        if self.by and self.table.keys is None:
            yield "it has no primary keys yet: what a compaction takes is not known"

    def now(self, samples: Sequence[tuple[int, PartitionSample]]) -> Prospect:
        """The boxes of files, of row groups, and of rows."""
        groups = [(one.partition, group, known) for one in self.lying for group, known in _zipped(one)]
        ranges = [*(joined(one.ranges) for one in self.lying), *(known for *_, known in groups)]
        rows = [self.columns.empty_table(), *(one.sample for _, one in samples)]
        sizes = [*(one.file.live_rows for one in self.lying), *(group.rows for _, group, _ in groups)]
        of_rows = [number for number, one in samples for _ in range(one.sample.num_rows)]
        partitions = [*(one.partition for one in self.lying), *(number for number, *_ in groups), *of_rows]
        bounds = [
            with_rows(column_bounds(ranges, field.name, field.type), pa.concat_tables(rows)[field.name])
            for field in self.columns
        ]
        names, ones = self.columns.names, [1] * len(of_rows)
        together = boxes_of(names, bounds, np.array(partitions, np.int64), [*sizes, *ones])
        ends = [0, *accumulate((len(self.lying), len(groups), len(of_rows)))]
        return Prospect(*(_between(together, *pair) for pair in pairwise(ends)))

    def _samples(self) -> list[tuple[int, PartitionSample]]:
        """Rows of the largest partitions: of some files, as far from each other as they can be."""
        rows = np.bincount([one.partition for one in self.lying], [one.file.live_rows for one in self.lying])
        largest = np.argsort(-rows, kind="stable")[:PARTITIONS_SAMPLED].tolist()
        there = [one for one in self.lying if one.partition in largest and one.file.rows]
        chosen = [there[place] for place in spread(len(there), FILES_SAMPLED).tolist()]
        cold = cold_among(self.streams.store, [one.file.path for one in chosen])  # what is archived cannot be read
        looked = [one for one in chosen if one.file.path not in cold]
        step = max(1, sum(one.file.rows for one in looked) // ROWS_SAMPLED)
        each = [_LookedAtRows.at(one, number, step) for number, one in enumerate(looked)]
        found = read_each(self.streams.store, [look.part(self.columns) for look in each], READ_LIMITS)
        tables: dict[int, list[pa.Table]] = {}
        for look, slices in zip(each, found, strict=True):
            partition = self.partitions[look.partition]
            tables.setdefault(look.partition, []).extend(
                schemas.align(look.of(first, rows), self.columns, partition, look.file.path) for first, rows in slices
            )
        return [(number, self._sample(number, of_partition)) for number, of_partition in tables.items()]

    def _sample(self, number: int, tables: Sequence[pa.Table]) -> PartitionSample:
        files = [one.file for one in self.lying if one.partition == number]
        rows, size = sum(file.live_rows for file in files), sum(file.bytes for file in files)
        rows_max, target = int(OPTIONS.rows_per_compacted_file * sizing.FULL), sizing.target_file_bytes(size)
        count = sizing.output_files(rows, size, rows_max, target, LIMITS)
        return PartitionSample(pa.concat_tables([self.columns.empty_table(), *tables]), rows, count)

    def _cells_per_file(self, samples: Sequence[tuple[int, PartitionSample]]) -> int:
        decoded = sum(one.file.decoded_bytes or 4 * one.file.bytes for one in self.lying)
        rows = sum(one.file.rows for one in self.lying)
        per_file = sum(one.rows for _, one in samples) / max(1, sum(one.files for _, one in samples))
        return cells_of(per_file, decoded / max(1, rows), OPTIONS.row_group_rows)

    # What it costs

    def _cost(self, planned: Sequence[CompactionPlan]) -> tuple[int, int, Expected]:
        """Files that compactions by these columns write anew, their bytes, and what that is expected to take."""
        written = [(plan, self._written(plan)) for plan in planned]
        there, slots = self._foreseen, self._foreseen.capacity.slots
        seconds = [self._seconds(plan, sources) for plan, sources in written]
        in_turn = lane_for(self.settings, *self._size) is Lane.POOL
        core_s = sum(core for _, core in seconds)
        cost = Expected(together_s(seconds, slots, in_turn), core_s, (), slots, there.start_s)
        files = [source.file for _, sources in written for source in sources]
        return len(files), sum(file.bytes for file in files), cost

    def _planned(self, partition: Partition) -> CompactionPlan | None:
        """The plan of a compaction of a partition. None: it would find nothing to do."""
        table, by = self.table, clustering_of([str(column) for column in self.by], self.table.partition_keys)
        assert table.keys is not None, "whoever asks has looked"
        stream = DeltaStreamPartition(self.streams, table, table.table_id, partition, table.keys, cluster_by=by)
        snapshot = stream.fetch()
        if isinstance(snapshot, NothingToDo):
            return None
        options = marking(replace(OPTIONS, cluster_by=by), table.readers)
        terms = SessionTerms(table.keys, table.partition_keys, options, table.tombstone_retention)
        return plan_session(stream.ports, snapshot, terms, self._foreseen.capacity)

    def _written(self, plan: CompactionPlan) -> list[SourceFile]:
        """The files whose rows it writes anew, if none of them dies."""
        live = np.array([source.file.live_rows for source in plan.sources], np.int64)
        known = {one.file.path: joined(one.ranges) for one in self.lying}
        ranges = {source.ordinal: known.get(source.file.path, {}) for source in plan.sources}
        rewritten = (one.ordinal for one in decide_files(plan, live, ranges) if one.action is FileAction.REWRITE)
        return [plan.sources[ordinal] for ordinal in rewritten]

    def _seconds(self, plan: CompactionPlan, written: Sequence[SourceFile]) -> tuple[float, float]:
        """What a session takes by itself, and on one slot."""
        base = sum(source.file.rows for source in plan.sources if source.in_base)
        share = sum(source.file.rows for source in written if source.in_base) / max(1, base)
        given = replace(statistics_of(plan), laid_out=share, touched=Touched(share, share, 0.0))
        there = self._foreseen
        driver = 0.0 if there.executor == "local" else driver_s(plan.input.delta_rows + plan.base_rows, there.capacity)
        alone, core = (expected_s(work_of_plan(plan, slots, driver, given)) for slots in (there.capacity.slots, 1))
        return alone, core

    @property
    def _size(self) -> tuple[int, int]:
        return sum(one.file.rows for one in self.lying), sum(one.file.bytes for one in self.lying)

    @cached_property
    def _foreseen(self) -> Foreseen:
        return foresee(self.settings, lane_for(self.settings, *self._size))


@dataclass(frozen=True, slots=True)
class _LookedAtRows:
    """Rows of a file to look at: every `step`th of them, all from one row group."""

    file: DataFile
    partition: int
    rows: tuple[int, int]
    step: int

    @classmethod
    def at(cls, lying: _Lying, number: int, step: int) -> _LookedAtRows:
        """The first row group, of the next file the second: heads alone would tell of few values."""
        rows = [group.rows for group in lying.groups] if len(lying.groups) > 1 else [lying.file.rows]
        group = number % len(rows)
        start = sum(rows[:group])
        return cls(lying.file, lying.partition, (start, start + rows[group]), max(1, step * rows[group] // sum(rows)))

    def part(self, columns: pa.Schema) -> Part:
        return Part(self.file, columns.names, self.rows)

    def of(self, first: int, table: pa.Table) -> pa.Table:
        """Those of some rows of the file, the first of which has this number."""
        return table.take(pa.array(np.arange((self.rows[0] - first) % self.step, table.num_rows, self.step)))


def _zipped(one: _Lying) -> Iterator[tuple[KeyedGroup, ValueRanges]]:
    return zip(one.groups, one.ranges, strict=True)


def _between(boxes: Boxes, start: int, stop: int) -> Boxes:
    return boxes.take(np.arange(start, stop))
