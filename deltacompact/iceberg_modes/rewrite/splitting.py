"""Task: writes live rows of data files into runs, sorted by the partitions of another spec.

    a.parquet    day 1 · day 2 · day 1      run 0    day 1: a 0, a 2    day 2: a 1, c 0
    c.parquet    day 2 · day 3              run 1    day 3: c 1

A group whose rows go to several partitions is divided before it is materialized. A run is as large as memory allows,
and sorted: the rows of a partition lie together in it, in their old order. An output then takes its slice of each run.
So rows are written twice, but one file at a time, however many partitions there are. A run says beside it which numbers
its rows have, so that deletes of others can follow them (iceberg/row_map.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED, Ordinal
from deltacompact.iceberg.table.content_files import PartitionTuple
from deltacompact.iceberg.table.pyiceberg_door.transforms import PartitionColumn, partitions_of
from deltacompact.iceberg_modes.rewrite.live_slices import NUMBERS, LiveSlices, loads, numbers_writer
from deltacompact.index.number_blocks import StoredNumbers
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions

ALL_LIVE = Ordinal(0)
"""The key of the live bitmap of runs."""
GROUPS_PER_RUN = 256
"""Row groups of a run, at most: each output that takes some rows of it reads its footer."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Divides live rows by the partitions of `by`. Run 3 goes to `{path}-3.parquet`.

    The numbers of its rows, if they have some, go to `{path}-3.numbers`.
    """

    live: LiveSlices
    by: tuple[PartitionColumn, ...]
    path: str
    run_bytes: int
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class Run:
    """A file of rows that are sorted by partition, their numbers, and how many rows each partition has."""

    file: DataFile
    numbers: StoredNumbers | None
    partitions: tuple[tuple[PartitionTuple, int], ...]


def split(store: ObjectStore, task: SplitTask) -> list[Run]:
    """Write the runs, in the order of the rows that they have."""
    of_runs = enumerate(loads(store, task.live, task.run_bytes))
    return [_written(store, task, number, rows) for number, rows in of_runs]


def _written(store: ObjectStore, task: SplitTask, number: int, rows: pa.Table) -> Run:
    numbers, partitions = partitions_of(rows, task.by)
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(partitions)).tolist()
    group_rows = max(1, rows.num_rows // min(len(partitions), GROUPS_PER_RUN))
    group_rows = min(group_rows, task.options.row_group_rows)
    options = replace(task.options, row_group_rows=group_rows)
    path = f"{task.path}-{number}.parquet"
    numbers_path = f"{task.path}-{number}.numbers" if NUMBERS in rows.column_names else None
    with (
        numbers_writer(store, numbers_path) as without_numbers,
        writing.writer(store, path, task.live.columns, options) as out,
    ):
        for start in range(0, len(order), group_rows):
            out.write(without_numbers(rows.take(pa.array(order[start : start + group_rows]))))
    file = DataFile(UNNUMBERED, path, ContentType.PARQUET, rows.num_rows, out.bytes, task.live.columns)
    numbered = None if numbers_path is None else StoredNumbers(numbers_path, without_numbers.crc32)
    return Run(file, numbered, tuple(zip(partitions, counts, strict=True)))


def all_live(runs: Sequence[Run]) -> npt.NDArray[np.uint8]:
    """One live bitmap, all ones, that serves all runs: readers take as many bits as a run has rows."""
    return np.packbits(np.ones(max((run.file.rows for run in runs), default=0), bool), bitorder="little")
