"""Measures what the conditions of policies ask: of a partition from its log, of an Iceberg branch from its manifests.

Nobody reads data or footers, or lists files, for this. Each measure has the name of the condition's field.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
from deltacompact.base.partitions import side_by_side
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.log.log import genesis_state
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.sizes import StreamSizes, sizes_of, sizes_of_parts
from deltacompact.delta_streams.snapshots import choose
from deltacompact.delta_streams.table_heat import heat_of_streams
from deltacompact.layout.heat import Heat
from deltacompact.planning.depth_in_log import gain_in_log
from deltacompact.table.ports import NothingToDo
from sessions.documents.streams import branch_of
from sessions.metrics.tables import TableSizes

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.iceberg_modes.watching import BranchSizes


class Statistics(Protocol):
    """Statistics of what one session would compact. `mark` names the last write: the same mark, nothing came since."""

    @property
    def partition(self) -> dict[str, str | None]: ...

    @property
    def mark(self) -> str: ...

    def is_settled(self, purge: bool, compacted: str | None) -> bool:
        """Whether there is nothing to compact. `compacted`: the mark that was compacted last; None: unknown."""

    def measured(self, now_s: float, sealed_s: float | None, small_file_bytes: int | None) -> Mapping[str, float]:
        """The measures, by the names of a condition's fields. `sealed_s`: when a sealed partition's window ended."""

    @property
    def table_sizes(self) -> TableSizes:
        """The part that the gauges of the table show."""


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """One partition. Files and bytes are those of compacted files and deltas together; times are Unix seconds.

    `rows` are those of compacted files, dead ones too. `mark` names the last delta and the version: if it is the same,
    nothing was committed or compacted since. `layout_depth`: how many compacted files hold a value of the clustering
    columns; 0: nobody asked, or a session would leave all files as they lie. `layout_gain`: what clustering would save
    the reads of the table's heat, as a multiple of its cost.
    """

    partition: dict[str, str | None]
    mark: str
    deltas: int = 0
    delta_rows: int = 0
    delta_bytes: int = 0
    oldest_delta_s: float | None = None
    written_s: float | None = None
    files: int = 0
    bytes: int = 0
    rows: int = 0
    dead_rows: int = 0
    compacted_s: float | None = None
    layout_depth: float = 0.0
    layout_gain: float = 0.0

    def is_settled(self, purge: bool, compacted: str | None) -> bool:
        lies_well = not self.layout_depth or compacted == self.mark
        return not self.deltas and not (purge and self.dead_rows) and lies_well

    def measured(self, now_s: float, sealed_s: float | None, small_file_bytes: int | None) -> Mapping[str, float]:
        oldest_s = max(self.oldest_delta_s or now_s, sealed_s or 0.0)
        return {
            "deltas": self.deltas,
            "delta_rows": self.delta_rows,
            "delta_bytes": self.delta_bytes,
            "oldest_delta_age": now_s - oldest_s,
            "files": self.files,
            "layout_depth": self.layout_depth,
            "layout_gain": self.layout_gain,
            "idle": now_s - self.written_s if self.written_s is not None else 0.0,
            **({"average_file_bytes_below": self.bytes / self.files} if self.files else {}),
        }

    @property
    def table_sizes(self) -> TableSizes:
        return TableSizes(
            oldest_delta_s=self.oldest_delta_s,
            deltas=self.deltas,
            backlog_rows=self.delta_rows,
            backlog_bytes=self.delta_bytes,
            rows=self.rows,
            dead_rows=self.dead_rows,
            data_files=self.files,
            compacted_s=self.compacted_s,
        )


@dataclass(frozen=True, slots=True)
class WatchedIcebergBranch:
    """One branch of an Iceberg table. Only reading the data tells how many rows are dead, so each row of a delete file
    counts as one."""

    partition: dict[str, str | None]
    sizes: BranchSizes

    @property
    def mark(self) -> str:
        return str(self.sizes.head)

    def is_settled(self, purge: bool, compacted: str | None) -> bool:
        return compacted == self.mark or not (self.sizes.data_files or self.sizes.delete_files)

    def measured(self, now_s: float, sealed_s: float | None, small_file_bytes: int | None) -> Mapping[str, float]:
        sizes = self.sizes
        files = sizes.data_files + sizes.delete_files
        compacted_s = sizes.known_since_s if sizes.compacted_s is None else sizes.compacted_s
        found: dict[str, float] = {
            "files": files,
            "delete_files": sizes.delete_files,
            "delete_file_share": sizes.delete_files / files if files else 0.0,
            "dead_row_share": min(1.0, sizes.delete_rows / sizes.data_rows) if sizes.data_rows else 0.0,
            "small_files": sizes.small_files(small_file_bytes),
            "new_bytes": sizes.new_bytes,
            "compaction_age": now_s - compacted_s if compacted_s is not None else 0.0,
            "layout_depth": sizes.layout_depth,
            "layout_gain": sizes.layout_gain,
            "idle": now_s - sizes.written_s if sizes.written_s is not None else 0.0,
        }
        if sizes.data_files:
            found["average_file_bytes_below"] = float(sizes.data_file_bytes.mean())
        return found

    @property
    def table_sizes(self) -> TableSizes:
        return TableSizes(
            backlog_bytes=self.sizes.new_bytes,
            rows=self.sizes.data_rows,
            dead_rows=self.sizes.delete_rows,
            data_files=self.sizes.data_files,
            delete_files=self.sizes.delete_files,
            snapshots=self.sizes.snapshots,
            compacted_s=self.sizes.compacted_s,
        )


def branch_statistics(branch: str, sizes: BranchSizes) -> WatchedIcebergBranch:
    return WatchedIcebergBranch(branch_of({"branch": branch}), sizes)


def statistics_of(
    catalog: DeltaStreamCatalog, table_id: str, now_s: float, layout: bool = False, into: str | None = None
) -> list[WatchedPartition]:
    """Every partition of a table. Asked again, the same catalog reads only what was added to the table's logs, unless
    the table was replaced. `into`: the table that it is compacted into; None: itself.

    If a writer's clock puts a commit after `now_s`, the store's time of it counts. `layout`: measure how files lie too.

    Raises NotFoundError where the table does not exist.
    """
    table = catalog.current_table(table_id)
    by = table.cluster_by if layout else None
    heat = heat_of_streams(catalog, table_id).read().now(now_s) if by else Heat()
    if into is not None:
        with contextlib.suppress(NotFoundError):  # the first compaction makes it
            catalog.current_table(into)
    partitions = catalog.partitions(table_id)
    looked = side_by_side(
        partitions, lambda partition: _of_partition(catalog, table_id, partition, now_s, into), catalog.at_once
    )
    rows = sum(base.rows for base, _ in looked if base)
    found = []
    for base, watched in looked:
        if base and by:
            gain = gain_in_log(base.files, by, base.schema)
            share = base.rows / max(1, rows)  # of the reads, for all partitions are asked
            watched = replace(watched, layout_depth=gain.depth, layout_gain=share * gain.by_heat(heat.columns))
        found.append(watched)
    return found


def _of_partition(
    catalog: DeltaStreamCatalog, table_id: str, partition: Partition, now_s: float, into: str | None
) -> tuple[CompactedDelta | None, WatchedPartition]:
    state = catalog.state(table_id, partition)
    log = catalog.log(into or table_id, partition)
    done = state if into is None else log.active() if log.exists() else genesis_state()
    sizes = sizes_of(state) if into is None else _sizes_into(into, table_id, partition, state, done)
    times_s: Sequence[float] = sizes.delta_times_s
    written_s = max(times_s, default=None)
    if (written_s is None and (sizes.files or sizes.deltas)) or max(times_s, default=0.0) > now_s:
        # A writer whose clock is ahead would keep its deltas young until that time comes.
        written_s = catalog.log(table_id, partition).written_s(state)
        times_s = [min(time_s, written_s) for time_s in times_s]
    return done.compacted, WatchedPartition(
        partition=dict(partition.values),
        mark=f"{state.version}/{state.last_position}" + ("" if into is None else f"/{done.version}"),
        deltas=sizes.deltas,
        delta_rows=sizes.delta_rows,
        delta_bytes=sizes.delta_bytes,
        oldest_delta_s=min(times_s, default=written_s if sizes.deltas else None),
        written_s=written_s,
        files=sizes.files + sizes.delta_files,
        bytes=sizes.bytes + sizes.delta_bytes,
        rows=sizes.rows + sizes.dead_rows,
        dead_rows=sizes.dead_rows,
        compacted_s=sizes.compacted_s,
    )


def _sizes_into(into: str, table_id: str, partition: Partition, state: StreamState, done: StreamState) -> StreamSizes:
    """What a session would fold into another table. If it would build that anew, the source's rows are a delta, too."""
    chosen = choose(table_id, into, partition, state, done)
    if isinstance(chosen, NothingToDo):
        return replace(sizes_of(done), deltas=0)
    compacted_s = done.opened.time_ms / 1000 if done.compacted and done.opened.time_ms else None
    sizes = sizes_of_parts(done.compacted, chosen.deltas, state.commits, compacted_s)
    base = chosen.base if not chosen.owned else None
    files = base.files if base else ()
    return replace(
        sizes,
        deltas=max(1, sizes.deltas + bool(base)),
        delta_files=sizes.delta_files + len(files),
        delta_rows=sizes.delta_rows + sum(file.live_rows for file in files),
        delta_bytes=sizes.delta_bytes + sum(file.bytes for file in files),
    )
