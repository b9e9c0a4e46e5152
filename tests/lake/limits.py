"""Limits that only large tables meet, made so small that tiny tables meet them: runs, relocations, kept delta files,
rows that are copied, files that tasks exchange, checkpoints, stubs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import pytest

from deltacompact.catalog.delta_stream import log
from deltacompact.executors import local
from deltacompact.index import index_files
from deltacompact.planning import plan, sizing
from deltacompact.session import rehash
from deltacompact.steps import assign_pointers as pointers
from deltacompact.tabular import parquet_read
from deltacompact.tabular import row_group_copy as parquet_copy


@dataclass(frozen=True)
class Limits:
    """What is patched for the life of a lake."""

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
    nodes: tuple[int, ...] = (1, 2)
    remote: bool = False


def applied(limits: Limits, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sizing, "RUNS_MAX", limits.runs_max)
    patch.setattr(sizing, "RUNS_SHARE_MAX", limits.runs_share_max)
    patch.setattr(sizing, "MASKS_SHARE_OF_INDEX", math.inf)
    patch.setattr(sizing, "SMALL_ROWS_PER_BUCKET", 4)
    patch.setattr(sizing, "SMALL_BUCKETS_MAX", 4)
    patch.setattr(sizing, "TASK_ROWS_MIN", 3)
    patch.setattr(sizing, "DELTA_KEPT_BYTES_MIN", limits.kept_bytes_min)
    patch.setattr(sizing, "OUTPUT_PARALLEL_BYTES_MIN", 1)
    patch.setattr(sizing, "EXCHANGE_SHARE", limits.exchange_share)
    patch.setattr(sizing, "HELD_SHARE", limits.held_share)
    patch.setattr(sizing, "source_groups", lambda rows, *_: max(1, min(limits.groups, rows)))
    for module in (sizing, rehash):
        patch.setattr(module, "bucket_groups", lambda buckets, *_: min(buckets, limits.groups))
    patch.setattr(local, "Capacity", functools.partial(plan.Capacity, nodes=limits.nodes))
    for module in (index_files, plan, pointers):
        patch.setattr(module, "CHUNK_ENTRIES", limits.chunk_entries)
    patch.setattr(parquet_read, "BATCH_ROWS_MAX", 2)
    patch.setattr(parquet_read, "BATCH_BYTES", 64)
    patch.setattr(parquet_read, "RUN_BYTES", 100)
    patch.setattr(parquet_read, "READ_AHEAD_BYTES", 64)
    patch.setattr(parquet_read, "TAIL_BYTES", 64)
    patch.setattr(parquet_copy, "GROUP_SHARE_MIN", limits.group_share_min)
    patch.setattr(log, "ENTRY_BYTES_MAX", limits.entry_bytes_max)
    patch.setattr(log, "ENTRIES_BETWEEN_CHECKPOINTS", limits.checkpoint_after)
    patch.setattr(log, "_PROBES_BEFORE_LISTING", 2)
