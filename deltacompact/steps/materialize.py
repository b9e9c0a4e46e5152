"""Step 4, materialize: writes live rows of source files, in source row order, into one compacted file.

    output 2 takes ranks 8‥12 of the session:   live rows 3‥5 of file 7   -> rows 0‥2
                                                live rows 0‥2 of file 8   -> rows 2‥4

Live bitmaps filter the rows in sequence, and only row groups with live rows are read. Row groups in which every row
lives are copied without decoding (row_group_copy.py). The rows of all others are decoded, filtered and encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType, DataFile, Partition
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.live_bitmaps import Masks, live_mask, read_masks
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas, writing
from deltacompact.tabular.prefetch import ahead
from deltacompact.tabular.row_group_copy import CopyingWriter, Encoded, GroupRange, codec_of, copyable_ranges, encoded
from deltacompact.tabular.row_groups import WriteOptions

ENCODED_AHEAD = 2
"""Row groups that another thread encodes while copying waits for the disk or the network."""


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The live rows [start, stop) of one source file, counting only live rows."""

    file: DataFile
    ordinal: Ordinal
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MaterializeTask:
    """Writes one compacted file. `number` is its file number, `rows` its expected row count."""

    number: ChainFileNumber
    rows: int
    sources: tuple[LiveRange, ...]
    masks_paths: tuple[str, ...]
    schema: pa.Schema
    partition: Partition
    options: WriteOptions
    limits: Limits


def materialize(store: ObjectStore, task: MaterializeTask, paths: Callable[[], str]) -> Materialized:
    """Write the task's live rows to a new path: a task may run twice, and even at the same time."""
    path = paths()
    by_ordinal: Masks = {}
    for masks_path in task.masks_paths:
        by_ordinal |= read_masks(store, masks_path)
    pieces = []
    for source in task.sources:
        lives = live_mask(by_ordinal[Ordinal(source.ordinal)], source.file.rows)
        pieces.append(Piece(source.file, lives, _rows_of(lives, source)))
    options, ranges = _copyable(store, task, pieces)
    if any(ranges):
        with (
            ahead(_steps(store, task, pieces, ranges, options), ENCODED_AHEAD) as steps,
            writing.written(store, path, options.content_type, lambda sink: _copying(sink, task)) as out,
        ):
            for step in steps:
                if isinstance(step, Encoded):
                    out.add(step)
                else:
                    with files.opened(store, step.file) as source:
                        out.copy(source, step.groups)
            _check_rows(task, out.rows)
    else:
        with writing.writer(store, path, task.schema, options) as out:
            for table in _live_rows(store, task, pieces):
                out.write(table)
            _check_rows(task, out.rows)
    size = writing.bytes_of(store, path)
    copied = sum(groups.stop - groups.start for of_piece in ranges for groups in of_piece)
    described = DataFile(ChainFileNumber(task.number), path, options.content_type, task.rows, size, task.schema)
    return Materialized(replace(described, decoded_bytes=_decoded_bytes(task)), copied)


def _decoded_bytes(task: MaterializeTask) -> int | None:
    """Most decoded bytes of the output: those of its sources. None: they are not known of every source."""
    known = [source.file.decoded_bytes for source in task.sources]
    return None if None in known else sum(size for size in known if size is not None)


@dataclass(frozen=True, slots=True)
class Materialized:
    """A compacted file, and the number of its rows that were copied without decoding."""

    file: DataFile
    rows_copied: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a file that goes into an output: the live rows (`lives`, one element a row) in a half-open range."""

    file: DataFile
    lives: npt.NDArray[np.bool_]
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """Row groups of a file to copy without decoding."""

    file: DataFile
    groups: GroupRange


def _copying(sink: IO[bytes], task: MaterializeTask) -> CopyingWriter:
    return CopyingWriter(sink, task.schema, task.limits.reading)


def _check_rows(task: MaterializeTask, written: int) -> None:
    if written != task.rows:
        raise CorruptionError(f"compacted file {task.number} got {written} rows, {task.rows} were assigned")


def _copyable(
    store: ObjectStore, task: MaterializeTask, pieces: Sequence[Piece]
) -> tuple[WriteOptions, list[list[GroupRange]]]:
    """The write options, with a codec, and the row groups of each piece that can be copied."""
    options, limits = task.options, task.limits
    if options.content_type is not ContentType.PARQUET:
        return options, [[] for _ in pieces]
    ranges, codec = [], options.codec
    for piece in pieces:
        found: list[GroupRange] = []
        if piece.file.content_type is ContentType.PARQUET:
            with files.opened(store, piece.file) as source:
                parquet = files.described_parquet(source, piece.file, True, limits.reading)
                share_min = limits.copied_group_share_min
                found = copyable_ranges(parquet, piece.file, task.schema, options, piece.lives, piece.rows, share_min)
                codec = codec or codec_of(parquet.metadata)
        ranges.append(found)
    return replace(options, codec=codec), ranges


def _steps(
    store: ObjectStore,
    task: MaterializeTask,
    pieces: Sequence[Piece],
    ranges: Sequence[Sequence[GroupRange]],
    options: WriteOptions,
) -> Generator[Copy | Encoded]:
    """The parts of the output, in order: row groups to copy, and between them newly encoded row groups."""
    between: list[Piece] = []
    for piece, of_piece in zip(pieces, ranges, strict=True):
        start, stop = piece.rows
        for groups in of_piece:
            between.append(replace(piece, rows=(start, groups.start)))
            yield from encoded(_live_rows(store, task, between), task.schema, options)
            yield Copy(piece.file, groups)
            between, start = [], groups.stop
        between.append(replace(piece, rows=(start, stop)))
    yield from encoded(_live_rows(store, task, between), task.schema, options)


def _live_rows(store: ObjectStore, task: MaterializeTask, pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """Decode the live rows of these pieces."""
    for piece in pieces:
        if not piece.lives[slice(*piece.rows)].any():
            continue
        for first, table in files.read(store, piece.file, None, piece.rows, task.limits.reading):
            wanted = piece.lives[first : first + table.num_rows]
            if not wanted.all():
                table = table.filter(pa.array(wanted))
            yield schemas.align(table, task.schema, task.partition, piece.file.path)


def _rows_of(lives: npt.NDArray[np.bool_], source: LiveRange) -> tuple[int, int]:
    """The half-open range of row numbers that encloses these live rows."""
    live_rows = np.flatnonzero(lives)
    if source.stop > len(live_rows):
        raise CorruptionError(f"{source.file.path} has {len(live_rows)} live rows, {source.stop} were assigned")
    return int(live_rows[source.start]), int(live_rows[source.stop - 1]) + 1
