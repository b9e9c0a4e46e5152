"""How many hash buckets an index has, when it is rehashed, how many rows a round takes, and when it gets a run.

    46.875 G rows of 32 bytes, 8 GiB a task  ->  313 hash buckets      (paper, figure 3-1)
    6 T rows                                 ->  40,000
    10 M rows                                ->  8: enough to keep a machine busy

Every row takes a fixed number of bytes, and SHA-1 spreads rows evenly over buckets, so memory is known in advance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from deltacompact.base.batching import batched
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.planning.sizing import task_memory
from deltacompact.planning.sizing.task_counts import power_of_two

FIGURE_ROWS_PER_BUCKET = 150_000_000
FIGURE_ENTRY_BYTES = 32
FIGURE_MEMORY_BYTES = 8 * task_memory.GIB
"""Figure 3-1: 150 M rows a bucket at 32 bytes and 8 GiB a CPU. A bucket then takes about half of a task's memory."""

REHASH_ABOVE = 0.9
"""An index is rehashed if a bucket would take more than this share of a task's memory. Then it takes about half."""

COMPARED_COPIES = 5.0
"""Entries that an upsert's task holds for each row of its bucket: received, folded, winners, dead ones."""

OBJECT_STORE_SHARE = 0.5
"""Share of the object store that a round's entries may take: it holds dedupe's inputs and outputs together."""

MASKS_SHARE_OF_MEMORY = 1 / 16
"""Every task that reads an index holds the masks of its relocations. They may take this share of its memory."""


def hash_bucket_count(rows: int, entry_bytes: int, memory_per_task_bytes: int, limits: Limits = LIMITS) -> int:
    """Hash buckets for a table that will hold this many rows."""
    by_memory = math.ceil(rows / rows_per_bucket(entry_bytes, memory_per_task_bytes))
    small = min(limits.small_buckets_max, power_of_two(math.ceil(rows / limits.small_rows_per_bucket)))
    return max(1, by_memory, small)


def compared_buckets(rows: int, entry_bytes: int, memory_per_task_bytes: int) -> int:
    """The least number of hash buckets with which a task can compare all rows of a bucket."""
    free = max(memory_per_task_bytes - task_memory.TASK_BASE_BYTES, 64 << 20)
    return math.ceil(rows * entry_bytes * COMPARED_COPIES / free)


def rows_per_bucket(entry_bytes: int, memory_per_task_bytes: int) -> float:
    """Figure 3-1, scaled by entry width and memory."""
    return FIGURE_ROWS_PER_BUCKET * (memory_per_task_bytes / FIGURE_MEMORY_BYTES) * (FIGURE_ENTRY_BYTES / entry_bytes)


def must_rehash(rows: int, hash_buckets: int, entry_bytes: int, memory_per_task_bytes: int) -> bool:
    """Whether a bucket would take more than 90 % of a task's memory (in figure 3-1 it takes half)."""
    share = rows / hash_buckets / rows_per_bucket(entry_bytes, memory_per_task_bytes) / 2
    return share > REHASH_ABOVE


def round_rows_max(object_store_bytes: int, entry_bytes: int) -> int:
    """The number of delta rows whose entries fit the object store together (paper, compaction rounds, rule 1)."""
    return max(1, int(object_store_bytes * OBJECT_STORE_SHARE / entry_bytes))


def fits_held(base_entries: int, new_rows: int, entry_bytes: int, object_store_bytes: int, limits: Limits) -> bool:
    """Whether the last round's new entries and the whole folded index fit the object store together."""
    return (base_entries + 2 * new_rows) * entry_bytes <= object_store_bytes * limits.held_share


def adds_run(
    first: int,
    above: Sequence[int],
    new_rows: int,
    mask_bytes: int,
    entry_bytes: int,
    memory_per_task_bytes: int,
    limits: Limits,
) -> bool:
    """Whether to add a run to an index rather than merge it.

    first         the number of entries in its oldest run
    above         the numbers of entries in the later runs
    mask_bytes    the bytes of all masks that readers would need
    """
    few = len(above) + 1 < limits.runs_max
    small = sum(above) + new_rows <= first * limits.runs_share_max
    index_bytes = (first + sum(above)) * entry_bytes
    cheap = mask_bytes <= min(memory_per_task_bytes * MASKS_SHARE_OF_MEMORY, index_bytes * limits.masks_share_of_index)
    return few and small and cheap


def adds_round_run(first: int, above: Sequence[int], new_rows: int, limits: Limits) -> bool:
    """Whether a round adds a run to the session's index. Otherwise it merges: after 1, 3, 7, … times a round's rows."""
    return len(above) + 1 < limits.runs_max and sum(above) + new_rows <= first


def rounds(rows_by_file: Sequence[int], rows_per_round: int) -> list[int]:
    """Split files in fold order into rounds of at least one file. Returns the number of files up to each round's
    end."""
    return list(accumulate(map(len, batched(rows_by_file, int, rows_per_round))))
