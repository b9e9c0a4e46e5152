"""The memory of a task, how many tasks share a process, and how a node's memory is divided. Pure.

    libraries          192 MiB
    hashing            its rows' entries, three times
    folding            its bucket's entries, two and a half times, and four chunks of the index
    writing            four row groups, decoded

The constants were measured, or follow from how tasks work. Thresholds that tests lower are in Limits.
"""

from __future__ import annotations

import math

from deltacompact.base.limits import Limits

GIB = 1 << 30
HASH_BUCKET_COPIES = 3.0
"""Entries that a hash bucket task holds for each row of its input: packed, grouped, and the columns they come from."""

SPLIT_BYTES = 24
"""Bytes of a survivor's pointer on the way to its group of files: the collected copy and the sent copy."""

DEDUPE_COPIES = 2.5
"""Entries that a dedupe task holds for each new entry: the received one, the sorted one and the merged one."""

TASK_BASE_BYTES = 192 << 20
"""Interpreter and libraries of a task's process. Measured: 64 MiB after a task, 28 for S3, 47 for Ray."""

KEPT_BY_HEAPS, KEPT_ROW_BYTES = 1.75, 512
"""How much more a process of a user takes than its tasks hold, if rows have at least so many bytes: Arrow, NumPy and
the kernels each keep what they free, where a program of ours has one heap (base/one_heap.py). Measured with 400 to
1,600 MB of rows: 0.8 to 1.55 with rows of 1 to 100 KB, once more than 1.6 on a loaded machine; 0.6 to 0.9 with smaller
ones."""

SESSION_BYTES = 32 << 20
"""The memory of a session beside its entries: its log, plan, records, connections and buffers. A task takes at least as
much: twelve small sessions side by side, each with its own tasks, took 25 MiB each."""

ROOMS_OF_A_READER = 2
"""A reader of a remote file holds what it fetched ahead, and as much again for a read that does not wait for room."""

UPLOAD_BYTES = 40 << 20
"""Blocks of a file that is uploaded while it is written: those under way, and the block that fills."""

ROW_BYTES_MAX = 64 << 20
ROW_COPIES = 20
"""The widest row that plans allow for, and how many copies memory holds at the peak, measured: decoded, filtered,
waiting for its row group, in a page, compressed, in row groups that wait to be written, and kept by the allocator."""

NODE_HEAP_SHARE = 0.6
NODE_OBJECT_STORE_SHARE = 0.3
SHARED_SLOTS_MEMORY = 0.25
"""Tasks that share slots may take this share of the memory of all slots. One task for each slot may take all of it."""


def node_memory(memory_bytes: int) -> tuple[int, int]:
    """Divide a worker node's memory into heap for tasks and object store. The system gets a tenth."""
    return int(memory_bytes * NODE_HEAP_SHARE), int(memory_bytes * NODE_OBJECT_STORE_SHARE)


def peak_task_bytes(
    task_rows: int,
    bucket_rows: int,
    entry_bytes: int,
    read_bytes: int,
    limits: Limits,
    pointer_rows: int = 0,
    base_entries: float = math.inf,
    remote_bytes: float = math.inf,
) -> int:
    """Planned peak memory of the largest task: it hashes rows, folds a bucket, or reads and writes row groups.

    read_bytes      decoded bytes of a row group
    pointer_rows    survivors of a bucket group, whose pointers or ranks a task holds
    base_entries    entries of the table's index
    remote_bytes    bytes of files and index behind a network: a task fetches ahead from there, and uploads
    """
    base_chunk, chunk = (min(limits.chunk_entries, rows) for rows in (base_entries, base_entries + pointer_rows))
    hashing = task_rows * entry_bytes * HASH_BUCKET_COPIES
    folding = bucket_rows * entry_bytes * DEDUPE_COPIES + 4 * base_chunk * entry_bytes
    pointing = pointer_rows * SPLIT_BYTES + 4 * chunk * entry_bytes
    read_ahead = min(ROOMS_OF_A_READER * limits.reading.read_ahead_bytes, remote_bytes)
    under_way = read_ahead + min(UPLOAD_BYTES, remote_bytes)
    return int(TASK_BASE_BYTES + under_way + max(hashing, folding, pointing, 4 * read_bytes, SESSION_BYTES))


def task_places(slots: int, tasks_per_slot: int, task_bytes: int, memory_per_task_bytes: int) -> int:
    """How many tasks of a process may run side by side: one for each slot, or more if these fit a share of the memory.

    2 slots of 12 GiB, 4 tasks a slot, tasks of 0.7 GiB beside the process's own    8: they take 5.6 GiB
    the same with tasks of 2.5 GiB                                                  2
    """
    fit = int(slots * memory_per_task_bytes * SHARED_SLOTS_MEMORY) // max(1, task_bytes - TASK_BASE_BYTES)
    return max(slots, min(slots * tasks_per_slot, fit))


def bounded_places(slots: int, undivided_bytes: int, memory_per_task_bytes: int) -> int:
    """How many tasks of a process whose memory is bounded may run side by side. They read less, the less a slot has.

    undivided_bytes    what a task holds however little it reads at once

    2 slots of 133 MiB beside the process's own, rows of 1 KiB      2
    the same with rows of 10 MiB, of which a task holds 20          1
    """
    all_bytes = slots * (memory_per_task_bytes - TASK_BASE_BYTES)
    return max(1, min(slots, all_bytes // max(1, undivided_bytes)))
