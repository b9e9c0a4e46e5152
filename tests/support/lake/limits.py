"""Makes limits so small that tiny tables reach them, as only large tables do else: runs, relocations, kept delta files,
copied rows, files that tasks exchange, checkpoints, stubs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deltacompact.base.limits import Limits, ReadLimits
from deltacompact.delta_streams.log.objects import LogLimits

SMALL_READS = ReadLimits(
    batch_bytes=64,
    batch_rows_max=2,
    run_bytes=100,
    read_ahead_bytes=200,
    request_bytes=64,
    gap_bytes=8,
    tail_bytes=64,
    whole_bytes=300,
)


@dataclass(frozen=True)
class LakeLimits:
    """The limits of a lake's compactions, reads and logs. They stay the same as long as the lake exists."""

    runs_max: float = math.inf
    runs_share_max: float = math.inf
    chunk_entries: int = 2
    kept_bytes_min: int = 1
    exchange_share: float = 0.0
    held_share: float = 0.0
    group_share_min: float = 0.25
    entry_bytes_max: int = 2000
    checkpoint_after: int = 5
    groups: int = 3
    task_rows_max: int = 1 << 40
    nodes: tuple[int, ...] = (1, 2)
    remote: bool = False

    @property
    def of_compactions(self) -> Limits:
        return Limits(
            runs_max=self.runs_max,
            runs_share_max=self.runs_share_max,
            masks_share_of_index=math.inf,
            small_rows_per_bucket=4,
            small_buckets_max=4,
            task_rows_min=1,
            task_rows_max=self.task_rows_max,
            groups=self.groups,
            delta_kept_bytes_min=self.kept_bytes_min,
            output_parallel_bytes_min=1,
            results_max=2,
            relay_nodes_min=3,
            exchange_share=self.exchange_share,
            held_share=self.held_share,
            chunk_entries=self.chunk_entries,
            copied_group_share_min=self.group_share_min,
            local_nodes=self.nodes,
            reading=SMALL_READS,
        )

    @property
    def of_logs(self) -> LogLimits:
        return LogLimits(
            self.entry_bytes_max, self.checkpoint_after, probes_before_listing=2, streams_listed_min=1, keys_in_a_page=9
        )
