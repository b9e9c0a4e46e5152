"""Step 4, materialize: live rows of source files, in source row order, into one compacted file.

    output 2 takes ranks 8‥12 of the session:   file 7, live rows 3‥5 of it   -> rows 0‥2
                                                file 8, live rows 0‥2 of it   -> rows 2‥4

Which rows live is one bit each, so rows are filtered in sequence, and only the row groups that hold them are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import files, schemas
from deltacompact.errors import CorruptionError
from deltacompact.files import WriteOptions
from deltacompact.model import DataFile, Partition
from deltacompact.pointers import Masks, read_masks
from deltacompact.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Live rows number `start` up to `stop` of one source file."""

    file: DataFile
    ordinal: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MaterializeTask:
    """One compacted file: `number` is its file number, `rows` what must come out; the masks say which rows live."""

    number: int
    rows: int
    sources: tuple[LiveRange, ...]
    masks_paths: tuple[str, ...]
    schema: pa.Schema
    partition: Partition
    options: WriteOptions


def materialize(store: ObjectStore, task: MaterializeTask, path: str) -> DataFile:
    """Write the task's live rows to `path`."""
    by_ordinal: Masks = {}
    for masks_path in task.masks_paths:
        by_ordinal |= read_masks(store, masks_path)
    with files.writer(store, path, task.schema, task.options) as out:
        for source in task.sources:
            lives = live_mask(by_ordinal[source.ordinal], source.file.rows)
            first, stop = _rows_of(lives, source)
            for at, table in files.read(store, source.file, None, (first, stop)):
                wanted = lives[at : at + table.num_rows]
                if not wanted.all():
                    table = table.filter(pa.array(wanted))
                out.write(schemas.align(table, task.schema, task.partition, source.file.path))
        if out.rows != task.rows:
            raise CorruptionError(f"compacted file {task.number} got {out.rows} rows, {task.rows} were assigned")
    return DataFile(task.number, path, task.options.content_type, task.rows, store.stat(path).bytes, task.schema)


def live_mask(bits: npt.NDArray[np.uint8], rows: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(bits, count=rows, bitorder="little").view(bool)


def _rows_of(lives: npt.NDArray[np.bool_], source: LiveRange) -> tuple[int, int]:
    """The rows between which the range's live rows lie; those outside are cleared from the mask."""
    places = np.flatnonzero(lives)
    if source.stop > len(places):
        raise CorruptionError(f"{source.file.path} has {len(places)} live rows, {source.stop} were assigned")
    if source.start == 0 and source.stop == len(places):
        return int(places[0]), int(places[-1]) + 1
    return int(places[source.start]), int(places[source.stop - 1]) + 1
