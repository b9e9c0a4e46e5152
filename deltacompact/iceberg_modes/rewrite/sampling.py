"""Task: how large rows of a file become as we write them, measured on some of them.

    a.parquet    gzip, 600 MB, 10 M rows    128 k rows of it written with zstd: 6.1 MB instead of 7.7 MB    ->  0.79

Outputs are planned by the bytes of their inputs. Where these have another codec, files would come out smaller or larger
than planned, and the next run would find them too small or too large and write them again.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import DataFile
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


def written_share(store: ObjectStore, task: SampleTask) -> float:
    """Bytes as we write the rows, divided by the bytes that they have. 1.0 where the codec is the wanted one."""
    file = task.file
    with files.opened(store, file) as source:
        if codec_of(files.described_parquet(source, file).metadata) == task.options.codec:
            return 1.0
    _, sample = next(tables(store, file, task.columns, limits=task.reading))
    with writing.writer(MemoryStore(), "sample.parquet", task.columns, task.options) as out:
        out.write(sample)
    stored = file.bytes * int(sample.num_rows) / file.rows
    return out.bytes / stored
