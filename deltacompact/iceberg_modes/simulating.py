"""What policies would have cost and saved on a branch, computed from when its files came and from a log of reads.

A file came with the snapshot that added it; if that has expired, with the oldest snapshot that is left
(planning/simulated.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.reads import Read
from deltacompact.layout.simulation import Arrival
from deltacompact.planning.simulated import PolicyOutcome, check_count, simulated


def simulated_branch(
    state: TableState, reads: Iterable[Read], by: Sequence[ClusterColumn], depths: Sequence[float]
) -> tuple[PolicyOutcome, ...]:
    """The outcome of each policy. Raises InputError for a table without files, or with too many."""
    data = state.data
    check_count(state.metadata.table_id, len(data))
    known = {number: snapshot.timestamp_ms / 1000 for number, snapshot in state.metadata.snapshots.items()}
    oldest_s = min(known.values(), default=0.0)
    arrivals = [Arrival(known.get(entry.snapshot_id or 0, oldest_s), entry.file.file_bytes) for entry in data]
    boxes = boxes_of_files(state.metadata, data, [column.name for column in by])
    file_bytes = rewrite_options({}, state.metadata.properties).target_file_bytes
    return simulated(boxes, arrivals, reads, by, file_bytes, depths)
