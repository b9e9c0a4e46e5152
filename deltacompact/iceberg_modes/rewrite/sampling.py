"""Task: measures on some rows of a file how large they become as we write them, and finds where its row groups end.

    a.parquet    gzip, 600 MB, 10 M rows    128 k rows of it written with zstd: 6.1 MB instead of 7.7 MB    ->  0.79
                 80 row groups              they end with the rows 131,072, 262,144, …

Outputs are planned by the bytes of their inputs. If these have another codec, files would come out smaller or larger
than planned, and the next run would write them again. Outputs are cut where row groups end (cutting.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import ReadLimits
from deltacompact.iceberg.table.parquet_files import tables
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, writing
from deltacompact.tabular.row_group_copy import codec_of
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Writes the first rows of a file to memory: one slice of a read, so the sample is bounded by `reading`."""

    file: DataFile
    columns: pa.Schema
    options: WriteOptions
    reading: ReadLimits


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sample tells.

    written_share    bytes of rows as we write them, divided by their present bytes; 1.0 if the codec is the same
    ends             the row numbers at which row groups end
    """

    written_share: float
    ends: tuple[int, ...]


def sampled(store: ObjectStore, task: SampleTask) -> Sampled:
    """What the footer says, and, for another codec, some rows."""
    file = task.file
    with files.opened(store, file) as source:
        footer = files.described_parquet(source, file).metadata
    groups = range(footer.num_row_groups)
    ends = tuple(itertools.accumulate(footer.row_group(number).num_rows for number in groups))
    return Sampled(1.0 if codec_of(footer) == task.options.codec else _written_share(store, task), ends)


def _written_share(store: ObjectStore, task: SampleTask) -> float:
    _, sample = next(tables(store, task.file, task.columns, limits=task.reading))
    with writing.writer(MemoryStore(), "sample.parquet", task.columns, task.options) as out:
        out.write(sample)
    return out.bytes / (task.file.bytes * int(sample.num_rows) / task.file.rows)
