"""Computes counts and sizes from rows and bytes, before any task runs.

    46.875 G rows of 32 bytes, 8 GiB a task  ->  313 hash buckets      (paper, figure 3-1)
    6 T rows                                 ->  40,000
    10 M rows                                ->  8: enough to keep a machine busy

Every row takes a fixed number of bytes, and SHA-1 spreads rows evenly over buckets, so memory is known in advance. The
constants here were measured, or follow from how tasks work. Thresholds that tests lower are in Limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from deltacompact.base.batching import batched
from deltacompact.base.limits import LIMITS, Limits

GIB = 1 << 30
FIGURE_ROWS_PER_BUCKET = 150_000_000
FIGURE_ENTRY_BYTES = 32
FIGURE_MEMORY_BYTES = 8 * GIB
"""Figure 3-1: 150 M rows a bucket at 32 bytes and 8 GiB a CPU. A bucket then takes about half of a task's memory."""

FULL = 0.8
"""Files of laid out rows are planned with this share of the rows that they may have, because none gets exactly the
planned size."""

REHASH_ABOVE = 0.9
"""An index is rehashed if a bucket would take more than this share of a task's memory. Then it takes about half."""

DRIVER_TASK_S = 0.0008
DRIVER_OBJECT_S = 0.00022
DRIVER_ARGUMENT_S = 0.00001
"""The driver's time for each task, for each object that a task returns, and for each object that it gets as argument.

Measured: 1,000 no-op tasks take 0.7 to 0.9 s, an object 0.18 to 0.26 ms, submitting 300 tasks with the same 300
objects as arguments 0.9 s.
"""

STAGE_ROW_S = 2e-7
"""Core-seconds for a row in a stage before materialize, roughly: hashing takes 1.5e-7, folding 2.4e-7."""

HASH_BUCKET_WAVES = 4
BUCKET_GROUPS_MIN = 8

RELAYED_SENDERS = 4
"""Relays on a quarter of the slots already use the whole network between the nodes."""

HASH_BUCKET_COPIES = 3.0
"""Entries that a hash bucket task holds for each row of its input: packed, grouped, and the columns they come from."""

DEDUPE_COPIES = 2.5
"""Entries that a dedupe task holds for each new entry: the received one, the sorted one and the merged one."""

COMPARED_COPIES = 5.0
"""Entries that an upsert's task holds for each row of its bucket: received, folded, winners, dead ones."""

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

OBJECT_STORE_SHARE = 0.5
"""Share of the object store that a round's entries may take: it holds dedupe's inputs and outputs together."""

EXCHANGE_BYTES = 16
"""Bytes of a survivor in the exchange: its file ordinal and row go to pointer assignment, its rank comes back."""

SPLIT_BYTES = 24
"""Bytes of a survivor's pointer on the way to its group of files: the collected copy and the sent copy."""

POINTERS_SHARE_OF_MEMORY = 0.25
"""Share of a task's memory that its survivors and ranks may take."""

SOURCE_GROUP_ROWS_MIN = 1_000_000
RANKED_BYTES = 24
"""Bytes of a survivor while it is ranked: its pointer, its rank, and the copy of the rank that is sent."""

MASKED_BYTES = 1
"""Bytes of a row, at most, if only its bit is held: the bits, the ranks of their lines, and masks being written."""

OUTPUT_SLOTS, OUTPUT_WAVES = 200, 8
"""So many slots write about 20 outputs a second, which takes 2 % of the driver's time. With more slots, a task writes
several outputs."""

NODE_HEAP_SHARE = 0.6
NODE_OBJECT_STORE_SHARE = 0.3

MASKS_SHARE_OF_MEMORY = 1 / 16
"""Every task that reads an index holds the masks of its relocations. They may take this share of its memory."""

MOVED_BYTES, DESTINATION_BYTES = 24, 4
"""Bytes of a row that is laid out: while its destination is computed, and the destination alone."""

RUN_BYTES_MIN, RUN_BYTES_MAX, RUN_COPIES = 16 << 20, 256 << 20, 4
"""The bytes of laid out rows that are sorted at once, and their copies: as read, as one table, sorted, and decoded
ahead."""

HELD_VALUES_MAX = 10_000
"""The most values that tasks hand over in memory: each routing task hands over one for each leaf."""

HELD_SHARE_OF_MEMORY = 0.25
"""Share of a task's memory that the rows may take that it routes and holds until it hands them over."""

ROUTED_BYTES_MIN = 128 << 20
"""A task that routes rows of 1 KB gets at least so many decoded bytes. By the least number of rows alone it got 1 GB,
and of a table of 2 GB one of two slots had half as much to do as the other."""

CELL_ROWS = 2_000
"""About the rows of each cell among the rows that are sorted at once, if they stay in memory."""

SHARED_SLOTS_MEMORY = 0.25
"""Tasks that share slots may take this share of the memory of all slots. One task for each slot may take all of it."""

TARGET_FILE_BYTES_MIN = 256 << 20
TARGET_FILE_BYTES_MAX = 512 << 20
TARGET_FILES = 64
"""A partition has so many files before its files grow. An update of a row rewrites its whole file, so small tables have
smaller files."""


def hash_bucket_count(rows: int, entry_bytes: int, memory_per_task_bytes: int, limits: Limits = LIMITS) -> int:
    """Hash buckets for a table that will hold this many rows."""
    by_memory = math.ceil(rows / rows_per_bucket(entry_bytes, memory_per_task_bytes))
    small = min(limits.small_buckets_max, _power_of_two(math.ceil(rows / limits.small_rows_per_bucket)))
    return max(1, by_memory, small)


def compared_buckets(rows: int, entry_bytes: int, memory_per_task_bytes: int) -> int:
    """The least number of hash buckets with which a task can compare all rows of a bucket."""
    free = max(memory_per_task_bytes - TASK_BASE_BYTES, 64 << 20)
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


def exchanges_in_files(rows: int, nodes: int, object_store_bytes: int, limits: Limits) -> bool:
    """Whether the pointers and ranks of this number of survivors go through files.

    The object store has no room for them, or the driver would name more parcels for so many nodes than it has time for:
    there is no relay, because the ranks go back to where the pointers came from.
    """
    return nodes >= limits.relay_nodes_min or rows * EXCHANGE_BYTES > object_store_bytes * limits.exchange_share


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


def driver_s(nodes: int, arguments: int) -> float:
    """The driver's seconds for a task that returns an object for each node. `arguments`: the objects that it gets."""
    return DRIVER_TASK_S + nodes * DRIVER_OBJECT_S + arguments * DRIVER_ARGUMENT_S


def parcels_each(nodes: int, limits: Limits) -> int:
    """How many parcels a task hands over for a stage on so many nodes: one for each node.

    On many nodes it hands over about the square root of that: each is for several nodes, and relays divide it. Then a
    sender and a relay hand over 18 objects each where the sender alone would hand over 313.
    """
    return nodes if nodes < limits.relay_nodes_min else math.ceil(math.sqrt(nodes))


def relayed_senders(senders: int, slots: int, nodes: int, limits: Limits) -> int:
    """The number of senders whose parcels a relay takes. 1: there are no relays, receivers take the parcels themselves.

    A relay takes as much as RELAYED_SENDERS senders hand over, or more where these come in several waves.
    """
    parcels = parcels_each(nodes, limits)
    return 1 if parcels == nodes else parcels * max(RELAYED_SENDERS, senders // slots)


def sender_s(nodes: int, receivers: int, limits: Limits) -> float:
    """The driver's seconds for one more task that sends to so many receivers on so many nodes: with its share of the
    relays, and of what receivers take from these."""
    parcels = parcels_each(nodes, limits)
    if parcels == nodes:
        return driver_s(nodes, receivers)
    each = parcels * RELAYED_SENDERS
    return driver_s(parcels, math.ceil(receivers / each)) + driver_s(nodes // parcels, each) / RELAYED_SENDERS


def stage_tasks(rows: int, tasks_max: int, task_s: float) -> int:
    """The number of tasks of a stage. Each task costs the driver `task_s` seconds.

    n tasks work for rows x STAGE_ROW_S / n seconds, the driver for n x task_s seconds. The sum is least if both are
    equal. On a small cluster, this n is above `tasks_max`, which is a few waves, to balance the load. On a large
    cluster it is less than one wave.
    """
    return max(1, min(tasks_max, int(math.sqrt(rows * STAGE_ROW_S / task_s))))


def task_rows(
    rows: int, slots: int, nodes: int, hash_buckets: int, entry_bytes: int, memory_per_task_bytes: int, limits: Limits
) -> int:
    """Most rows of a hash bucket task: up to four waves over the cluster, if memory allows."""
    groups = min(hash_buckets, bucket_groups_max(slots))
    even = math.ceil(rows / stage_tasks(rows, HASH_BUCKET_WAVES * slots, sender_s(nodes, groups, limits)))
    by_memory = int(max(memory_per_task_bytes - TASK_BASE_BYTES, 64 << 20) / (entry_bytes * HASH_BUCKET_COPIES))
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
    got = math.ceil(tasks / relayed_senders(tasks, slots, nodes, limits))
    wanted = stage_tasks(rows, bucket_groups_max(slots), driver_s(returns, got))
    whole_waves = wanted // slots * slots or wanted  # a wave that does not fill the slots takes as long as a full one
    return min(hash_buckets, max(BUCKET_GROUPS_MIN, whole_waves))


def bucket_groups_max(slots: int) -> int:
    return max(BUCKET_GROUPS_MIN, 2 * slots)


def pointer_groups(rows: int, hash_buckets: int, memory_per_task_bytes: int) -> int:
    """The least number of bucket groups with which a task can hold its survivors' pointers or ranks."""
    bytes_max = max(1 << 20, int(memory_per_task_bytes * POINTERS_SHARE_OF_MEMORY))
    return max(1, min(hash_buckets, math.ceil(rows * SPLIT_BYTES / bytes_max)))


def moving_groups(rows: int, memory_per_task_bytes: int) -> int:
    """The least number of groups of source files, if rows are laid out: a task holds the destinations of its group."""
    return math.ceil(rows * MOVED_BYTES / (memory_per_task_bytes * POINTERS_SHARE_OF_MEMORY))


def may_move(rows: int, memory_per_task_bytes: int) -> bool:
    """Whether the destinations of `rows` moved rows, which a task maps from a file, stay in memory beside the index."""
    return rows * DESTINATION_BYTES <= memory_per_task_bytes * MASKS_SHARE_OF_MEMORY


def run_bytes(memory_per_task_bytes: int) -> int:
    """Decoded bytes of the rows that are sorted by cell at once."""
    return max(RUN_BYTES_MIN, min(RUN_BYTES_MAX, memory_per_task_bytes // (2 * RUN_COPIES)))


def load_bytes(cells: int, row_bytes: float, run_bytes: int) -> int:
    """Decoded bytes of the rows that are sorted by cell at once, if they stay in memory: few, but some of each cell."""
    return max(1, min(int(CELL_ROWS * cells * row_bytes), run_bytes))


def routed_rows(rows: int, row_bytes: float, slots: int, limits: Limits) -> int:
    """Most rows that a task sends to their cells: about two tasks for each slot, but no small ones. Rows have
    `row_bytes` decoded."""
    least = min(limits.task_rows_min, int(ROUTED_BYTES_MIN / max(1.0, row_bytes)))
    return max(1, least, math.ceil(rows / max(1, 2 * slots)))


def held_rows(rows: int, row_bytes: float, slots: int, memory_per_task_bytes: int, limits: Limits) -> int:
    """The same, if the task holds them until it hands them over."""
    fitting = int(memory_per_task_bytes * HELD_SHARE_OF_MEMORY / max(1.0, row_bytes))
    return max(1, min(routed_rows(rows, row_bytes, slots, limits), fitting))


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
        (MASKED_BYTES, driver_s(1, 2)) if in_files else (RANKED_BYTES, driver_s(nodes, 2 * bucket_groups))
    )
    rows_max = max(SOURCE_GROUP_ROWS_MIN, int(memory_per_task_bytes * POINTERS_SHARE_OF_MEMORY) // row_bytes)
    wanted = max(stage_tasks(rows, slots, task_s), math.ceil(rows / min(rows_max, 2**32 - 1)))
    return max(1, min(math.ceil(rows / SOURCE_GROUP_ROWS_MIN), wanted))


def target_file_bytes(data_bytes: int) -> int:
    """The largest size of a compacted file, roughly, in a partition of `data_bytes`, unless the caller chooses it.

    A session rewrites whole files: in a table of 1.6 GB with files of 512 MiB, an update of one row rewrites a quarter
    of the table. Readers split files at 128 MiB anyway.
    """
    return min(TARGET_FILE_BYTES_MAX, max(TARGET_FILE_BYTES_MIN, data_bytes // TARGET_FILES))


def output_files(rows: int, data_bytes: int, rows_max: int, bytes_max: int, limits: Limits) -> int:
    """The number of compacted files for `rows`, which take an estimated `data_bytes`.

    A small number of large files is rounded up to a power of two, to load cores evenly; no file becomes smaller than
    half the limit. The number depends only on the data, so both executors write the same files.
    """
    if rows == 0:
        return 0
    count = max(1, math.ceil(rows / rows_max), math.ceil(data_bytes / bytes_max))
    even = _power_of_two(count)
    if 1 < count < limits.small_buckets_max and data_bytes / even >= limits.output_parallel_bytes_min:
        count = even
    return min(count, rows)


def node_memory(memory_bytes: int) -> tuple[int, int]:
    """Divide a worker node's memory into heap for tasks and object store. The system gets a tenth."""
    return int(memory_bytes * NODE_HEAP_SHARE), int(memory_bytes * NODE_OBJECT_STORE_SHARE)


def outputs_per_task(outputs: int, slots: int) -> int:
    """How many compacted files a task writes: enough to keep the driver free, few enough to balance the load."""
    return max(1, min(math.ceil(slots / OUTPUT_SLOTS), outputs // (OUTPUT_WAVES * slots)))


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


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
