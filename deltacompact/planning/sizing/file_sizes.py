"""How many compacted files there are, how large they are, and how many of them a task writes.

a partition of 1.6 GB      files of 256 MiB
of 20 GiB                  64 files of 320 MiB
of 1 TB                    files of 512 MiB
"""

from __future__ import annotations

import math

from deltacompact.base.limits import Limits
from deltacompact.planning.sizing.task_counts import power_of_two

FULL = 0.8
"""Files of laid out rows are planned with this share of the rows that they may have, because none gets exactly the
planned size."""

OUTPUT_SLOTS, OUTPUT_WAVES = 200, 8
"""So many slots write about 20 outputs a second, which takes 2 % of the driver's time. With more slots, a task writes
several outputs."""

TARGET_FILE_BYTES_MIN = 256 << 20
TARGET_FILE_BYTES_MAX = 512 << 20
TARGET_FILES = 64
"""A partition has so many files before its files grow. An update of a row rewrites its whole file, so small tables have
smaller files."""


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
    even = power_of_two(count)
    if 1 < count < limits.small_buckets_max and data_bytes / even >= limits.output_parallel_bytes_min:
        count = even
    return min(count, rows)


def outputs_per_task(outputs: int, slots: int) -> int:
    """How many compacted files a task writes: enough to keep the driver free, few enough to balance the load."""
    return max(1, min(math.ceil(slots / OUTPUT_SLOTS), outputs // (OUTPUT_WAVES * slots)))
