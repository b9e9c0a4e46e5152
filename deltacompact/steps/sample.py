"""Task: takes a sample of some of the live rows that a session writes, for the columns to cluster by.

    file 7    1 M live rows, row groups of 900 k and 100 k      936 rows: 842 of the first, 94 of the second
    delta 8   CSV, 2,000 rows                                   312 rows: text has no row groups

Looks lie as far apart as possible, and spread their rows over a whole row group: the first rows alone would show few
values. The last row group of a file is often a small rest, so a row group gives more rows if more of its rows live, or
if more looks hit it; these stand for more bytes. A small table is read whole. Only the columns to cluster by are read.
The samples of all tasks grow one tree (plant.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.model import ContentType
from deltacompact.layout.spread import SampleSize, looked_groups, looks_at, sampled_rows, spread
from deltacompact.steps.live_ranges import LiveRanges, in_tasks, pieces_of
from deltacompact.steps.materialize import LivePiece
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import schemas
from deltacompact.tabular.files import FileReader, Part
from deltacompact.tabular.loads import sample_of
from deltacompact.tabular.row_group_copy import codec_of

ROWS_PER_LOOK = 40


@dataclass(frozen=True, slots=True)
class RowSampleTask:
    """Takes a sample of these rows. `live.columns` are the columns to cluster by."""

    live: LiveRanges
    size: SampleSize


@dataclass(frozen=True, slots=True)
class RowSample:
    """Sampled rows, the decoded bytes that each of them stands for, and the codec of the first Parquet file among their
    files; None: no file has one."""

    rows: pa.Table
    sizes: npt.NDArray[np.float64]
    codec: str | None


def sample_tasks(live: LiveRanges, files: int, slots: int, rows_min: int) -> list[RowSampleTask]:
    """The tasks for a sample of all live rows, which are to be divided into `files` files."""
    size = SampleSize(sampled_rows(files), looks_at(live.rows), live.reading.run_bytes)
    count = size.tasks(min(slots, live.rows // rows_min))
    shares = (replace(live, ranges=ranges) for ranges in in_tasks(live.ranges, math.ceil(live.rows / count)))
    return [RowSampleTask(own, size.part(own.rows / live.rows)) for own in shares]


def sample(store: ObjectStore, task: RowSampleTask) -> RowSample:
    """Read the rows."""
    looks, codecs = list[pa.Table](), list[str | None]()
    sizes = list[npt.NDArray[np.float64]]()
    for rows, size, codec in _looks(store, task):
        looks.append(rows)
        sizes.append(np.full(rows.num_rows, size))
        codecs.append(codec)
    rows = pa.concat_tables([task.live.columns.empty_table(), *looks])
    weights = np.concatenate([np.empty(0), *sizes])
    return RowSample(rows, weights, next((codec for codec in codecs if codec is not None), None))


def _looks(store: ObjectStore, task: RowSampleTask) -> Iterator[tuple[pa.Table, float, str | None]]:
    """Sampled rows, the bytes that each of them stands for, and the codec of their file."""
    live, ahead = task.live, ReadAhead(task.live.reading)
    taken = _looked_at(live, task.size)
    every = sum(looked.wanted for looked in taken.values())
    pieces = [(number, piece) for number, piece in enumerate(pieces_of(store, live)) if number in taken]

    def begun(numbered: tuple[int, LivePiece]) -> tuple[int, LivePiece]:
        number, piece = numbered
        return number, replace(piece, reader=FileReader(store, Part(piece.file, live.columns.names, piece.rows), ahead))

    for number, piece in begun_ahead(pieces, begun):
        assert piece.reader is not None, "it was begun"
        with piece.reader as reader:
            codec = codec_of(reader.parquet.metadata) if piece.file.content_type is ContentType.PARQUET else None
            looked = taken[number]
            for range_ in _ranges(reader, piece, looked.wanted):
                share = looked.wanted * range_.share
                rows_bytes = task.size.bytes * share / every
                rows = _sample(reader, piece, live, range_.rows, math.ceil(share), rows_bytes)
                size = looked.stands_for * range_.share * live.ranges[number].row_bytes
                yield rows, size / max(1, rows.num_rows), codec


@dataclass(frozen=True, slots=True)
class _RangeSample:
    """How many rows of a range of live rows to sample, and how many rows of the table they stand for together."""

    wanted: int
    stands_for: float


def _looked_at(live: LiveRanges, size: SampleSize) -> dict[int, _RangeSample]:
    """The ranges to sample from, by their numbers. All rows of all, if there are no more than are wanted."""
    rows = np.array([range_.stop - range_.start for range_ in live.ranges], np.int64)
    if live.rows <= size.wanted:
        return {number: _RangeSample(count, count) for number, count in enumerate(rows.tolist())}
    of_place = np.searchsorted(np.cumsum(rows), spread(live.rows, size.looks), side="right")
    numbers, times = np.unique(of_place, return_counts=True)
    each, stand_for = -(-size.wanted // size.looks), live.rows / size.looks
    return {
        number: _RangeSample(each * many, stand_for * many)
        for number, many in zip(numbers.tolist(), times.tolist(), strict=True)
    }


@dataclass(frozen=True, slots=True)
class _SharedRange:
    """A range of rows of a file, and its share of the rows to sample from the file."""

    rows: tuple[int, int]
    share: float


def _ranges(reader: FileReader, piece: LivePiece, wanted: int) -> list[_SharedRange]:
    """The row ranges to sample from: in Parquet, whole row groups as far apart as possible."""
    start, stop = piece.rows
    if piece.file.content_type is not ContentType.PARQUET or wanted >= stop - start:
        return [_SharedRange(piece.rows, 1.0)]
    metadata = reader.parquet.metadata
    group_rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    places = start + spread(stop - start, max(1, wanted // ROWS_PER_LOOK))
    looked = looked_groups(group_rows, places, piece.rows)
    living = np.array([sample.looks * piece.lives[slice(*sample.rows)].mean() for sample in looked])
    shares = (living / (living.sum() or 1.0)).tolist()
    return [_SharedRange(sample.rows, share) for sample, share in zip(looked, shares, strict=True)]


def _sample(
    reader: FileReader, piece: LivePiece, live: LiveRanges, rows: tuple[int, int], wanted: int, sample_bytes: float
) -> pa.Table:
    """`wanted` live rows of a range, as far apart as possible; fewer, if they would take more than `sample_bytes`."""
    living = np.flatnonzero(piece.lives[slice(*rows)])
    places = living[spread(len(living), wanted)]
    tables = sample_of(_stored(reader, piece, live, rows), places, sample_bytes)
    aligned = [schemas.align(table, live.columns, live.partition, piece.file.path) for table in tables]
    return pa.concat_tables([live.columns.empty_table(), *aligned])


def _stored(reader: FileReader, piece: LivePiece, live: LiveRanges, rows: tuple[int, int]) -> Iterable[pa.Table]:
    if not set(live.columns.names) & set(piece.file.schema.names):  # the file has none of the columns
        return [pa.table({"": pa.nulls(rows[1] - rows[0])})]
    return (table for _, table in reader.slices(rows))
