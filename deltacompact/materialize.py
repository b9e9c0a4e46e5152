"""Step 4, materialize: live rows of source files, in source row order, into one compacted file.

    output 2 takes ranks 8‥12 of the session:   file 7, live rows 3‥5 of it   -> rows 0‥2
                                                file 8, live rows 0‥2 of it   -> rows 2‥4

Which rows live is one bit each, so rows are filtered in sequence, and only the row groups that hold them are read. Row
groups in which every row lives are copied as they are encoded: see parquet_copy.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import files, schemas
from deltacompact.errors import CorruptionError
from deltacompact.files import TableWriter, WriteOptions
from deltacompact.masks import Masks, live_mask, read_masks
from deltacompact.model import ContentType, DataFile, Partition
from deltacompact.parquet_copy import CopyingWriter, codec_of, copyable_groups
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


def materialize(store: ObjectStore, task: MaterializeTask, path: str) -> Materialized:
    """Write the task's live rows to `path`."""
    by_ordinal: Masks = {}
    for masks_path in task.masks_paths:
        by_ordinal |= read_masks(store, masks_path)
    pieces = []
    for source in task.sources:
        lives = live_mask(by_ordinal[source.ordinal], source.file.rows)
        pieces.append(Piece(source.file, lives, _rows_of(lives, source)))
    options, groups = _looked_at(store, task, pieces)
    copied = 0
    make = CopyingWriter if any(groups) else TableWriter
    with files.writer(store, path, task.schema, options, make) as out:
        for piece, whole in zip(pieces, groups, strict=True):
            if isinstance(out, CopyingWriter) and whole:
                copied += _copied(store, task, piece, whole, out)
            else:
                _encode(store, task, piece, piece.rows, out)
        if out.rows != task.rows:
            raise CorruptionError(f"compacted file {task.number} got {out.rows} rows, {task.rows} were assigned")
    size = store.stat(path).bytes
    return Materialized(DataFile(task.number, path, options.content_type, task.rows, size, task.schema), copied)


@dataclass(frozen=True, slots=True)
class Materialized:
    """A compacted file, and how many of its rows were copied without being decoded."""

    file: DataFile
    rows_copied: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What an output gets of one file: rows in a half-open range, those that `lives` says (one element a row)."""

    file: DataFile
    lives: npt.NDArray[np.bool_]
    rows: tuple[int, int]


def _looked_at(
    store: ObjectStore, task: MaterializeTask, pieces: Sequence[Piece]
) -> tuple[WriteOptions, list[list[int]]]:
    """The codec to write with, and the row groups of each piece that can be copied."""
    options = task.options
    if options.content_type is not ContentType.PARQUET:
        return options, [[] for _ in pieces]
    groups, codec = [], options.codec
    for piece in pieces:
        found: list[int] = []
        if piece.file.content_type is ContentType.PARQUET:
            with files.parquet_reader(store, piece.file) as (_, reader):
                files.check_rows(reader, piece.file)
                found = copyable_groups(reader, task.schema, options, piece.lives, piece.rows)
                codec = codec or codec_of(reader)
        groups.append(found)
    return replace(options, codec=codec), groups


def _copied(store: ObjectStore, task: MaterializeTask, piece: Piece, groups: list[int], out: CopyingWriter) -> int:
    """Copy these row groups, and encode what lies between them; the number of rows copied."""
    copied, at = 0, piece.rows[0]
    with files.parquet_reader(store, piece.file) as (source, reader):
        ends = np.cumsum([0, *(reader.metadata.row_group(group).num_rows for group in range(reader.num_row_groups))])
        for run in _runs(groups):
            begin, end = int(ends[run[0]]), int(ends[run[-1] + 1])
            _encode(store, task, piece, (at, begin), out)
            out.copy(source, reader, run)
            copied, at = copied + end - begin, end
    _encode(store, task, piece, (at, piece.rows[1]), out)
    return copied


def _runs(groups: Sequence[int]) -> list[list[int]]:
    """Numbers that follow each other, together."""
    runs: list[list[int]] = []
    for group in groups:
        if runs and runs[-1][-1] + 1 == group:
            runs[-1].append(group)
        else:
            runs.append([group])
    return runs


def _encode(store: ObjectStore, task: MaterializeTask, piece: Piece, rows: tuple[int, int], out: TableWriter) -> None:
    """Decode the rows of a range, write those that live."""
    if not piece.lives[rows[0] : rows[1]].any():
        return
    for at, table in files.read(store, piece.file, None, rows):
        wanted = piece.lives[at : at + table.num_rows]
        if not wanted.all():
            table = table.filter(pa.array(wanted))
        out.write(schemas.align(table, task.schema, task.partition, piece.file.path))


def _rows_of(lives: npt.NDArray[np.bool_], source: LiveRange) -> tuple[int, int]:
    """The rows between which the range's live rows lie; those outside are cleared from the mask."""
    places = np.flatnonzero(lives)
    if source.stop > len(places):
        raise CorruptionError(f"{source.file.path} has {len(places)} live rows, {source.stop} were assigned")
    if source.start == 0 and source.stop == len(places):
        return int(places[0]), int(places[-1]) + 1
    return int(places[source.start]), int(places[source.stop - 1]) + 1
