"""Advice before work: how a branch's files lie by some columns, what clustering by them would bring, and what it costs.

    now         day: depth 3.1, a reader opens 1.2 % of the files      customer: depth 240, 100 %
    clustered   day 9 %, customer 11 %, both 1 %                       by a tree over rows of some files
    cost        240 files, 12 GB, 96 core-seconds
    gain        0.9 core-seconds for each read                         worth it from 107 reads on

Depth is counted from the bounds of all files; nothing else is read of them. Row groups and rows come from a few.

A read costs some round trips for each file that it opens, and decoding for each byte. Both are told in seconds of one
core, so that saving and cost have the same unit. A read asks for a range of one column; weights say how often each
column is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.iceberg.boxes import boxes_of_files, has_bounds, ordered_column, without_bounds
from deltacompact.iceberg.deletes.readable import check_readable
from deltacompact.iceberg.looks import LOOKS, Look, looks_into
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.iceberg_modes.rewrite.choosing import FileFacts
from deltacompact.iceberg_modes.rewrite.cold_files import cold_among, without_cold
from deltacompact.iceberg_modes.rewrite.expected import expected
from deltacompact.iceberg_modes.rewrite.laid_out import badly_laid
from deltacompact.iceberg_modes.rewrite.options import CLUSTER_PROPERTY, rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import RewritePlan, expected_output_files, plan_rewrite
from deltacompact.layout.advice import READS, Advice, Outlook, left_alone
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.collected_reads import CollectedReads
from deltacompact.layout.depth import depth_of
from deltacompact.layout.prospect import PartitionSample, Prospect, foreseen, outlooks
from deltacompact.layout.reads import Read, columns_asked
from deltacompact.layout.simulation import Arrival
from deltacompact.layout.spread import spread
from deltacompact.planning.plan import Capacity
from deltacompact.planning.simulated import PolicyOutcome, check_count, simulated
from deltacompact.planning.worth import with_gain
from deltacompact.storage.objects import ObjectStore

PARTITIONS_SAMPLED = 4
"""Rows are looked at in so many partitions, the largest ones."""
COLUMNS_SHOWN = 16


def columns_of(
    metadata: TableMetadata, chosen: str | Sequence[str] | None, collected: CollectedReads, heat: Mapping[str, float]
) -> tuple[ClusterColumn, ...]:
    """The chosen columns; else those that the given reads ask for; else those that the table is clustered by; else
    those of its heat.

    Raises InputError for bad columns, and if no given read asks this table for a column that it has.
    """
    if chosen is not None:
        if not (found := cluster_columns("columns", chosen)):
            raise InputError("columns is empty: name some, day*3,customer")
        return found
    if collected.sources:
        return collected.columns_asked()
    by_property = cluster_columns(CLUSTER_PROPERTY, metadata.properties.get(CLUSTER_PROPERTY, ""))
    return by_property or columns_asked(heat)


def columns_with_bounds(state: TableState) -> list[str]:
    """The columns that have bounds in at least one file."""
    bounded = {number for entry in state.data for number in entry.file.lower_bounds}
    named = {
        column.field.name
        for number, column in state.metadata.columns.items()
        if number in bounded and column.is_top_level
    }
    return [name for name in state.metadata.ordered_columns if name in named]


@dataclass(frozen=True, slots=True)
class Adviser:
    """Looks at a branch. `capacity`: the slots that would do the work. `said`: lines to begin with."""

    store: ObjectStore
    state: TableState
    capacity: Capacity
    reads: int = READS
    said: tuple[str, ...] = ()

    def advice(self, by: Sequence[ClusterColumn]) -> Advice:
        """The advice about clustering by these columns; without any, the depth of all that have bounds.

        Raises InputError for a column that is unknown, nested or without order, and for a file that we cannot read.
        """
        data = self.state.data
        names = [column.name for column in by] or columns_with_bounds(self.state)[:COLUMNS_SHOWN]
        notes = [*self.said, *self._notes(names)]
        files = boxes_of_files(self.state.metadata, data, names)
        advice = Advice(
            self.state.metadata.table_id,
            tuple(names),
            len(set(files.partitions.tolist())),
            len(data),
            sum(entry.file.file_bytes for entry in data),
            (),
            self.reads,
            notes=tuple(notes),
            boxes=files,
        )
        if not data:
            return advice
        if not by:
            return replace(advice, outlooks=tuple(Outlook(depth_of(files.of(place))) for place in range(len(names))))
        return self._with_gain(self._with_outlooks(advice, files, by), by)

    def _notes(self, names: Sequence[str]) -> Iterator[str]:
        """A line for each thing that keeps readers from skipping files, however rows are laid out."""
        data = self.state.data
        for name in names:
            number, _ = ordered_column(self.state.metadata, name)
            unknown = without_bounds(data, number)
            if unknown and not any(has_bounds(entry.file, number) for entry in data):
                yield f"no file has bounds of column {name!r}: readers open all by it now; clustering writes its bounds"
            elif unknown:
                yield f"{counted(unknown, 'file')} without bounds of column {name!r}: readers always open them"

    def _with_outlooks(self, advice: Advice, files: Boxes, by: Sequence[ClusterColumn]) -> Advice:
        looks = self._looks(files, advice.columns)
        entries = [*self.state.data, *(group for look in looks for group in look.groups)]
        rows = [(scope_of(look.entry), look.rows) for look in looks]
        together = boxes_of_files(self.state.metadata, entries, advice.columns, rows)
        ends = 0, files.files, len(entries), together.files
        now = Prospect(*(together.take(np.arange(start, stop)) for start, stop in pairwise(ends)))
        then = foreseen(self._samples(looks), by, _groups_per_file(looks))
        return replace(advice, outlooks=outlooks(now, then))

    def _looks(self, files: Boxes, columns: Sequence[str]) -> list[Look]:
        """Looks into some files of the largest partitions, but none that S3 has archived: it cannot be read."""
        rows = np.bincount(files.partitions, files.rows)
        largest = set(np.argsort(-rows, kind="stable")[:PARTITIONS_SAMPLED].tolist())
        own = [entry for entry, of in zip(self.state.data, files.partitions.tolist(), strict=True) if of in largest]
        chosen = [own[place] for place in spread(len(own), LOOKS).tolist()]
        cold = cold_among(self.store, [entry.file.path for entry in chosen])
        warm = [entry for entry in chosen if entry.file.path not in cold]
        check_readable(self.state.metadata, warm)
        return list(looks_into(self.store, self.state.metadata, warm, columns))

    def _samples(self, looks: Sequence[Look]) -> list[PartitionSample]:
        options = rewrite_options({}, self.state.metadata.properties)
        seen: dict[Scope, list[pa.Table]] = defaultdict(list)
        for look in looks:
            seen[scope_of(look.entry)].append(look.rows)
        sizes: dict[Scope, list[ManifestEntry]] = defaultdict(list)
        for entry in self.state.data:
            sizes[scope_of(entry)].append(entry)
        return [
            PartitionSample(
                pa.concat_tables(tables),
                sum(entry.file.rows for entry in sizes[scope]),
                expected_output_files(sum(entry.file.file_bytes for entry in sizes[scope]), options),
            )
            for scope, tables in seen.items()
        ]

    def _with_gain(self, advice: Advice, by: Sequence[ClusterColumn]) -> Advice:
        plan, cold = self._plan(by)
        advice = with_gain(advice, by, len(plan.inputs), plan.bytes, expected(plan, self.capacity))
        return replace(advice, notes=(*advice.notes, *left_alone(len(cold)), *_divided_anew(advice)))

    def _plan(self, by: Sequence[ClusterColumn]) -> tuple[RewritePlan, frozenset[str]]:
        """The rewrite of the files that overlap, and those that a layout leaves where they are."""
        options = rewrite_options({"cluster-by": ",".join(map(str, by))}, self.state.metadata.properties)

        def planned(cold: frozenset[str]) -> RewritePlan:
            laid = badly_laid(self.state, options, FileFacts(cold=cold))
            return plan_rewrite(self.state, options, FileFacts(laid.chosen | laid.waits))

        return without_cold(self.store, planned)


def _divided_anew(advice: Advice) -> Iterator[str]:
    """A line on what else could be done where no files overlap."""
    if not advice.rewrite_files and (advice.saved_s or 0) > 0:
        yield f"files can be divided anew with rewrite-all=true: a read takes {advice.saved_s:,.2f} core-seconds less"


def _groups_per_file(looks: Sequence[Look]) -> int:
    return max(1, round(sum(len(look.groups) for look in looks) / max(1, len(looks))))


def simulated_branch(
    state: TableState, reads: Iterable[Read], by: Sequence[ClusterColumn], depths: Sequence[float]
) -> tuple[PolicyOutcome, ...]:
    """What each policy would have cost and saved on a branch. Raises InputError for a table without files, or with too
    many.

    A file came with the snapshot that added it; if that has expired, with the oldest snapshot that is left
    (planning/simulated.py).
    """
    data = state.data
    check_count(state.metadata.table_id, len(data))
    known = {number: snapshot.timestamp_ms / 1000 for number, snapshot in state.metadata.snapshots.items()}
    oldest_s = min(known.values(), default=0.0)
    arrivals = [Arrival(known.get(entry.snapshot_id or 0, oldest_s), entry.file.file_bytes) for entry in data]
    boxes = boxes_of_files(state.metadata, data, [column.name for column in by])
    file_bytes = rewrite_options({}, state.metadata.properties).target_file_bytes
    return simulated(boxes, arrivals, reads, by, file_bytes, depths)
