"""How many tasks each stage of a round has, and how many rows a task takes.

hash bucket      up to four waves over the cluster, if memory allows
bucket groups    up to two waves: hashing makes the tasks equal
source groups    one wave: a task holds a bit for each row, and 24 bytes a survivor while it ranks
"""

from __future__ import annotations

import math

from deltacompact.base.limits import Limits
from deltacompact.planning.sizing import driver_time, task_memory

HASH_BUCKET_WAVES = 4
BUCKET_GROUPS_MIN = 8
EXCHANGE_BYTES = 16
"""Bytes of a survivor in the exchange: its file ordinal and row go to pointer assignment, its rank comes back."""

POINTERS_SHARE_OF_MEMORY = 0.25
"""Share of a task's memory that its survivors and ranks may take."""

SOURCE_GROUP_ROWS_MIN = 1_000_000
RANKED_BYTES = 24
"""Bytes of a survivor while it is ranked: its pointer, its rank, and the copy of the rank that is sent."""

MASKED_BYTES = 1
"""Bytes of a row, at most, if only its bit is held: the bits, the ranks of their lines, and masks being written."""


def exchanges_in_files(rows: int, nodes: int, object_store_bytes: int, limits: Limits) -> bool:
    """Whether the pointers and ranks of this number of survivors go through files.

    The object store has no room for them, or the driver would name more parcels for so many nodes than it has time for:
    there is no relay, because the ranks go back to where the pointers came from.
    """
    return nodes >= limits.relay_nodes_min or rows * EXCHANGE_BYTES > object_store_bytes * limits.exchange_share


def task_rows(
    rows: int, slots: int, nodes: int, hash_buckets: int, entry_bytes: int, memory_per_task_bytes: int, limits: Limits
) -> int:
    """Most rows of a hash bucket task: up to four waves over the cluster, if memory allows."""
    groups = min(hash_buckets, bucket_groups_max(slots))
    even = math.ceil(
        rows / driver_time.stage_tasks(rows, HASH_BUCKET_WAVES * slots, driver_time.sender_s(nodes, groups, limits))
    )
    by_memory = int(
        max(memory_per_task_bytes - task_memory.TASK_BASE_BYTES, 64 << 20)
        / (entry_bytes * task_memory.HASH_BUCKET_COPIES)
    )
    return max(1, min(max(even, limits.task_rows_min), by_memory, limits.task_rows_max))


def bucket_groups(
    hash_buckets: int, rows: int, slots: int, nodes: int, tasks: int, limits: Limits, returns: int = 1
) -> int:
    """The number of bucket groups. Each is a task. At most two waves over the cluster: hashing makes the tasks equal.

    `tasks`: the number of tasks in the stage before, each of which sends to each group. `returns`: the objects that a
    group's task returns.
    """
    if limits.groups is not None:
        return min(hash_buckets, limits.groups)
    got = math.ceil(tasks / driver_time.relayed_senders(tasks, slots, nodes, limits))
    wanted = driver_time.stage_tasks(rows, bucket_groups_max(slots), driver_time.driver_s(returns, got))
    whole_waves = wanted // slots * slots or wanted  # a wave that does not fill the slots takes as long as a full one
    return min(hash_buckets, max(BUCKET_GROUPS_MIN, whole_waves))


def bucket_groups_max(slots: int) -> int:
    return max(BUCKET_GROUPS_MIN, 2 * slots)


def pointer_groups(rows: int, hash_buckets: int, memory_per_task_bytes: int) -> int:
    """The least number of bucket groups with which a task can hold its survivors' pointers or ranks."""
    bytes_max = max(1 << 20, int(memory_per_task_bytes * POINTERS_SHARE_OF_MEMORY))
    return max(1, min(hash_buckets, math.ceil(rows * task_memory.SPLIT_BYTES / bytes_max)))


def source_groups(
    rows: int,
    slots: int,
    nodes: int,
    bucket_groups: int,
    memory_per_task_bytes: int,
    limits: Limits,
    in_files: bool = False,
) -> int:
    """The number of groups of source files. A task holds a bit for each row, and 24 bytes a survivor while it ranks.

    Each group gets survivors from all `bucket_groups` and returns their ranks. `in_files`: these go through files, one
    message after another.
    """
    if limits.groups is not None:
        return max(1, min(limits.groups, rows))
    row_bytes, task_s = (
        (MASKED_BYTES, driver_time.driver_s(1, 2))
        if in_files
        else (RANKED_BYTES, driver_time.driver_s(nodes, 2 * bucket_groups))
    )
    rows_max = max(SOURCE_GROUP_ROWS_MIN, int(memory_per_task_bytes * POINTERS_SHARE_OF_MEMORY) // row_bytes)
    wanted = max(driver_time.stage_tasks(rows, slots, task_s), math.ceil(rows / min(rows_max, 2**32 - 1)))
    return max(1, min(math.ceil(rows / SOURCE_GROUP_ROWS_MIN), wanted))


def power_of_two(count: int) -> int:
    """The least power of two that is not below the count: so many buckets or files load cores evenly."""
    return 1 << max(0, count - 1).bit_length()
