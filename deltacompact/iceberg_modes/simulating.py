"""What policies would have cost and saved on a branch: its files, as they came, and a log of reads.

    never           0 B written            12 TB opened
    tiers           31 GB, 240 core-s      9.1 TB not opened, 18,000 core-s

A file came when the snapshot that added it was made; where that has been expired, with the oldest one there is. Costs
and savings have one unit, core-seconds, as advice has it (layout/simulation.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.reads import Read
from deltacompact.layout.simulation import Arrival, Replayed, policies, replayed
from deltacompact.planning.expected import arranged_s
from deltacompact.planning.worth import read_s

FILES_MAX = 5_000
"""So many files are replayed. Of a larger table, one simulates a branch with fewer."""


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What a policy would have written, and what readers would not have opened: against never laying anything out."""

    policy: str
    runs: int
    bytes_written: int
    cost_s: float
    files_not_opened: float
    bytes_not_opened: int
    saved_s: float

    @property
    def net_s(self) -> float:
        return self.saved_s - self.cost_s


def simulated(
    state: TableState, reads: Iterable[Read], by: Sequence[ClusterColumn], depths: Sequence[float]
) -> tuple[PolicyOutcome, ...]:
    """The outcome of each policy. Raises InputError for a table without files, or with too many."""
    data = state.data
    if not 0 < len(data) <= FILES_MAX:
        has = f"table {state.metadata.table_id!r} has {counted(len(data), 'data file')}"
        raise InputError(f"{has}: 1 to {FILES_MAX:,} are replayed")
    known = {number: one.timestamp_ms / 1000 for number, one in state.metadata.snapshots.items()}
    oldest_s = min(known.values(), default=0.0)
    arrivals = [Arrival(known.get(entry.snapshot_id or 0, oldest_s), entry.file.file_bytes) for entry in data]
    boxes = boxes_of_files(state.metadata, data, [column.name for column in by])
    asked = [(read.at_s, read.columns) for read in reads]
    file_bytes = rewrite_options({}, state.metadata.properties).target_file_bytes
    found = [replayed(policy, boxes, arrivals, asked, by, file_bytes) for policy in policies(by, depths)]
    return tuple(_outcome(one, found[0]) for one in found)


def _outcome(one: Replayed, never: Replayed) -> PolicyOutcome:
    files, size = never.files_opened - one.files_opened, never.bytes_opened - one.bytes_opened
    cost_s = arranged_s(round(one.rows_written), round(one.bytes_written))
    return PolicyOutcome(
        one.policy, one.runs, round(one.bytes_written), cost_s, files, round(size), read_s(files, size)
    )
