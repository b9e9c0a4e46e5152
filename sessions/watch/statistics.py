"""What a policy asks of a partition, from its log alone: no data, no footer, no listing of files is read."""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.model import Partition
from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One partition. Files and bytes are those of compacted files and deltas together; times are Unix seconds.

    `mark` names the last delta and the version: where it is the same, nothing was committed or compacted since.
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
    dead_rows: int = 0

    @property
    def average_file_bytes(self) -> float | None:
        return self.bytes / self.files if self.files else None


def statistics_of(catalog: DeltaStreamCatalog, table_id: str) -> list[PartitionStatistics]:
    """Every partition of a table. A catalog that is asked again reads only what was added to the logs.

    Raises NotFoundError where the table does not exist.
    """
    return [_of_partition(catalog, table_id, partition) for partition in catalog.partitions(table_id)]


def _of_partition(catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> PartitionStatistics:
    state = catalog.state(table_id, partition)
    deltas = state.deltas
    waiting = {delta.position for delta in deltas}
    times_s = [commit.time_ms / 1000 for commit in state.commits if any(d.position in waiting for d in commit.deltas)]
    compacted = state.compacted.files if state.compacted else ()
    files = [*compacted, *(file for delta in deltas for file in delta.files)]
    written_s = max(times_s, default=None)
    if written_s is None and compacted:
        written_s = catalog.log(table_id, partition).written_s(state)
    return PartitionStatistics(
        partition=dict(partition.values),
        mark=f"{state.version}/{state.last_position}",
        deltas=len(deltas),
        delta_rows=sum(delta.rows for delta in deltas),
        delta_bytes=sum(delta.bytes for delta in deltas),
        oldest_delta_s=min(times_s, default=None),
        written_s=written_s,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        dead_rows=sum(file.rows - file.live_rows for file in compacted),
    )
