"""Task: live rows of data files, sorted by the partitions of another spec, into runs.

    a.parquet    day 1 · day 2 · day 1      run 0    day 1: a 0, a 2    day 2: a 1, c 0
    c.parquet    day 2 · day 3              run 1    day 3: c 1

A group whose rows go to several partitions is divided before it is materialized. A run is as large as memory allows,
and sorted: the rows of a partition lie together in it, in their old order. An output then takes its slice of each run.
So rows are written twice, but one file at a time, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import batched, divided
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import ContentType, DataFile
from deltacompact.base.numbers import UNNUMBERED, Ordinal
from deltacompact.iceberg.table.content_files import PartitionTuple
from deltacompact.iceberg.table.parquet_files import tables
from deltacompact.iceberg.table.pyiceberg_door.transforms import PartitionColumn, partitions_of
from deltacompact.index.live_bitmaps import Masks, live_mask, read_each_masks
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions

ALL_LIVE = Ordinal(0)
"""The key of the live bitmap of runs."""
GROUPS_PER_RUN = 256
"""Row groups of a run, at most: each output that takes some rows of it reads its footer."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A half-open range of the rows of a file. Its live bitmap has the key `ordinal`."""

    file: DataFile
    ordinal: Ordinal
    rows: tuple[int, int]


def in_slices(whole: Sequence[Slice], rows_max: int) -> Iterator[tuple[Slice, ...]]:
    """Files, in their order, in tasks of so many rows. A larger file is divided."""
    for share in divided((one.file.rows for one in whole), rows_max):
        yield tuple(Slice(whole[place].file, whole[place].ordinal, (start, stop)) for place, start, stop in share)


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Divides live rows by the partitions of `by`. Run 3 goes to `{path}-3.parquet`."""

    slices: tuple[Slice, ...]
    masks_paths: tuple[str, ...]
    columns: pa.Schema
    by: tuple[PartitionColumn, ...]
    path: str
    run_bytes: int
    options: WriteOptions
    reading: ReadLimits


@dataclass(frozen=True, slots=True)
class Run:
    """A file of rows that are sorted by partition: in their order, the partitions and how many rows each has."""

    file: DataFile
    partitions: tuple[tuple[PartitionTuple, int], ...]


def split(store: ObjectStore, task: SplitTask) -> list[Run]:
    """Write the runs, in the order of the rows that they have."""
    return [_written(store, task, number, rows) for number, rows in enumerate(_loads(store, task))]


def _loads(store: ObjectStore, task: SplitTask) -> Iterator[pa.Table]:
    """The live rows, as many at a time as make a run."""
    masks: Masks = {}
    for of_path in read_each_masks(store, task.masks_paths, task.reading):
        masks |= of_path
    for waiting in batched(_live(store, task, masks), lambda rows: rows.nbytes, task.run_bytes):
        yield pa.concat_tables(waiting)


def _live(store: ObjectStore, task: SplitTask, masks: Masks) -> Iterator[pa.Table]:
    for piece in task.slices:
        lives = live_mask(masks[piece.ordinal], piece.file.rows)
        for first, table in tables(store, piece.file, task.columns, piece.rows, task.reading):
            wanted = lives[first : first + table.num_rows]
            if wanted.any():
                yield table if wanted.all() else table.filter(pa.array(wanted))


def _written(store: ObjectStore, task: SplitTask, number: int, rows: pa.Table) -> Run:
    numbers, partitions = partitions_of(rows, task.by)
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(partitions)).tolist()
    group_rows = max(1, rows.num_rows // min(len(partitions), GROUPS_PER_RUN))
    group_rows = min(group_rows, task.options.row_group_rows)
    options = replace(task.options, row_group_rows=group_rows)
    path = f"{task.path}-{number}.parquet"
    with writing.writer(store, path, task.columns, options) as out:
        for start in range(0, len(order), group_rows):
            out.write(rows.take(pa.array(order[start : start + group_rows])))
    file = DataFile(UNNUMBERED, path, ContentType.PARQUET, rows.num_rows, out.bytes, task.columns)
    return Run(file, tuple(zip(partitions, counts, strict=True)))


def all_live(runs: Sequence[Run]) -> npt.NDArray[np.uint8]:
    """One live bitmap for all runs: none has dead rows, and readers take as many bits as a file has rows."""
    return np.packbits(np.ones(max((run.file.rows for run in runs), default=0), bool), bitorder="little")
