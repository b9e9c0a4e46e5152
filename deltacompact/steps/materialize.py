"""Step 4, materialize: writes live rows of source files, in source row order, into one compacted file.

    output 2 takes ranks 8‥12 of the session:   live rows 3‥5 of file 7   -> rows 0‥2
                                                live rows 0‥2 of file 8   -> rows 2‥4

Live bitmaps filter the rows in sequence. Row groups without live rows are not read. Row groups without dead rows are
copied without decoding, if they are known to decode (row_group_copy.py). All other row groups are decoded, filtered
and encoded.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.handed_over import HandedOver
from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.live_bitmaps import Masks, live_mask, read_each_masks
from deltacompact.steps.certify import certified
from deltacompact.storage.fetched_file import FILES_AHEAD, Range, ReadAhead, begun_ahead
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.tabular import files, key_values, prefetch, schemas, writing
from deltacompact.tabular.damage import naming
from deltacompact.tabular.files import FileReader, LastText, Part
from deltacompact.tabular.formats import UNTYPED
from deltacompact.tabular.row_group_copy import (
    CopyingWriter,
    Encoded,
    GroupRange,
    bytes_of,
    codec_of,
    copyable_ranges,
    encoded,
    may_be_copied,
)
from deltacompact.tabular.row_groups import WriteOptions
from deltacompact.tabular.writing import TableWriter

ENCODED_AHEAD = 2
"""Row groups that another thread encodes while copying waits for the disk or the network."""
DECODED_AHEAD = 1
"""Batches that another thread decodes while this one encodes, so that the last outputs of a session use all cores."""


@dataclass(frozen=True, slots=True)
class LiveRange(HandedOver):
    """The live rows [start, stop) of one source file, counting only live rows."""

    file: DataFile
    ordinal: Ordinal
    start: int
    stop: int

    @property
    def row_bytes(self) -> float:
        """About the decoded bytes of a row."""
        return self.file.likely_decoded_bytes / self.file.rows


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
    certify: bool = False


def materialize(
    store: ObjectStore, task: MaterializeTask, paths: Callable[[], str], texts: LastText | None = None
) -> Materialized:
    """Write the task's live rows to a new path: a task may run twice, even at the same time."""
    path, ahead = paths(), ReadAhead(task.limits.reading)
    with contextlib.ExitStack() as opened:
        options, pieces = _planned(store, task, ahead, texts, opened)
        out = opened.enter_context(_written(store, path, task, options, any(piece.copied for piece in pieces)))
        for piece in pieces:
            _announce(piece, isinstance(out, CopyingWriter) and out.copies_inside)
        if isinstance(out, CopyingWriter):
            made = _steps(store, task, pieces, options, ahead, texts)
            steps = opened.enter_context(prefetch.ahead(made, ENCODED_AHEAD))
            for step in steps:
                if isinstance(step, Encoded):
                    out.add(step)
                else:
                    _copy(out, step)
        else:
            live = _live_rows(task, _with_readers(store, pieces, ahead, texts))
            for table in opened.enter_context(prefetch.ahead(live, DECODED_AHEAD)):
                out.write(table)
        _check_rows(task, out.rows)
    copied = sum(groups.stop - groups.start for piece in pieces for groups in piece.copied)
    described = DataFile(ChainFileNumber(task.number), path, options.content_type, task.rows, out.bytes, task.schema)
    decoded_bytes = out.decoded_bytes + sum(_copied_bytes(piece, task.schema) for piece in pieces)
    if task.certify:
        again = _read_again(store, task, pieces)
        described = replace(described, fingerprint=certified(store, described, again, task.limits.reading))
    ranges = key_values.union([source.file for source in task.sources]) if options.content_type in UNTYPED else ()
    group_bytes = max([out.group_bytes, *(_copied_group_bytes(piece, task.schema) for piece in pieces)])
    widest = _widest_row_bytes(out.widest_row_bytes, pieces)
    written = replace(described, decoded_bytes=decoded_bytes, ranges=ranges, decodes=True, widest_row_bytes=widest)
    return Materialized(writing.with_group_bytes(written, group_bytes), copied)


def _read_again(store: ObjectStore, task: MaterializeTask, pieces: Iterable[LivePiece]) -> Iterator[pa.Table]:
    """The live rows of the sources, decoded as a reader does."""
    for piece in pieces:
        for first, table in files.read(store, piece.file, task.schema.names, piece.rows, task.limits.reading):
            live = table.filter(pa.array(piece.lives[first : first + table.num_rows]))
            yield schemas.align(live, task.schema, task.partition, piece.file.path)


NumberedOutput = tuple[ChainFileNumber, int, tuple[LiveRange, ...], tuple[str, ...]]
"""One output: its file number, rows, sources and the paths of live bitmaps."""


def materialize_each(
    store: ObjectStore, like: MaterializeTask, outputs: Sequence[NumberedOutput], paths: Callable[[], str]
) -> list[Materialized]:
    """Write several files, one after another. `like` has the fields that they share.

    A text file is decoded once for consecutive outputs that get its rows.
    """
    readers = Counter(source.file.path for _, _, sources, _ in outputs for source in sources)
    texts = LastText({path for path, count in readers.items() if count > 1})

    def task(number: ChainFileNumber, rows: int, sources: tuple[LiveRange, ...], masks: tuple[str, ...]) -> Any:
        return replace(like, number=number, rows=rows, sources=sources, masks_paths=masks)

    return [materialize(store, task(*output), paths, texts) for output in outputs]


def _copied_bytes(piece: LivePiece, schema: pa.Schema) -> int:
    """An upper bound of the copied row groups' decoded bytes: by their footer, but at most those of the file."""
    in_footers = sum(groups.decoded_bytes(schema.names) for groups in piece.copied)
    return in_footers if piece.file.decoded_bytes is None else min(in_footers, piece.file.decoded_bytes)


def _copied_group_bytes(piece: LivePiece, schema: pa.Schema) -> int:
    """An upper bound of the decoded bytes of the largest copied row group."""
    in_footers = max((groups.group_bytes(schema.names) for groups in piece.copied), default=0)
    known = piece.file.group_bytes or piece.file.decoded_bytes
    return in_footers if known is None else min(in_footers, known)


def _widest_row_bytes(encoded: int, pieces: Iterable[LivePiece]) -> int | None:
    """An upper bound of the widest row: of encoded rows, and of the files with copied row groups. None: not known."""
    copied_from = [piece.file.widest_row_bytes for piece in pieces if piece.copied]
    known = [size for size in copied_from if size is not None]
    return max([encoded, *known]) if len(known) == len(copied_from) else None


@dataclass(frozen=True, slots=True)
class Materialized:
    """A compacted file, and the number of its rows that were copied without decoding."""

    file: DataFile
    rows_copied: int


@dataclass(frozen=True, slots=True)
class LivePiece:
    """The part of a file that goes into an output: the live rows (`lives`, one element a row) in a half-open range.

    `copied` are the row groups to copy. `reader` is None until the file is to be opened.
    """

    file: DataFile
    lives: npt.NDArray[np.bool_]
    rows: tuple[int, int]
    copied: Sequence[GroupRange] = ()
    reader: FileReader | None = None

    @property
    def stays_open(self) -> bool:
        """Whether the file stays open: opening a remote file takes a request, and two threads read one with copies."""
        return bool(self.copied) and self.reader is not None and self.reader.is_remote

    def has_live_rows(self) -> bool:
        return bool(self.lives[slice(*self.rows)].any())


@dataclass(frozen=True, slots=True)
class Copy:
    """Row groups of a file to copy without decoding."""

    reader: FileReader
    groups: GroupRange


def _written(
    store: ObjectStore, path: str, task: MaterializeTask, options: WriteOptions, copies: bool
) -> contextlib.AbstractContextManager[TableWriter | CopyingWriter]:
    def made(sink: IO[bytes]) -> TableWriter | CopyingWriter:
        if copies:
            return CopyingWriter(sink, task.schema, task.limits.reading)
        return TableWriter(sink, task.schema, options)

    return writing.writer_at(store, path, options.content_type, made)


def _check_rows(task: MaterializeTask, written: int) -> None:
    if written != task.rows:
        raise CorruptionError(f"compacted file {task.number} got {written} rows, {task.rows} were assigned")


def _planned(
    store: ObjectStore, task: MaterializeTask, ahead: ReadAhead, texts: LastText | None, opened: contextlib.ExitStack
) -> tuple[WriteOptions, list[LivePiece]]:
    """The write options, with a codec, and the pieces with the row groups to copy. Remote files stay open."""
    options, share_min = task.options, task.limits.copied_group_share_min
    codec, planned = options.codec, list[LivePiece]()
    masks: Masks = {}
    wanted = {source.ordinal for source in task.sources}
    for source, copies, reader in begun_ahead(
        enumerate(task.sources), lambda numbered: _begun(store, task, *numbered, ahead, texts)
    ):
        if not masks:  # masks are read while the first files are being opened
            for of_group in read_each_masks(store, task.masks_paths, ahead.limits, wanted):
                masks |= of_group
        lives = live_mask(masks[source.ordinal], source.file.rows)
        piece = LivePiece(source.file, lives, rows_of(lives, source))
        tells_codec = codec is None and options.content_type is piece.file.content_type is ContentType.PARQUET
        if reader is None and tells_codec:
            reader = FileReader(store, Part(piece.file), ahead)
        if reader is not None:
            opened.enter_context(reader)
            piece = replace(piece, reader=reader)
        if reader is not None and (copies or tells_codec):
            parquet = reader.parquet
            found = copyable_ranges(parquet, piece.file, task.schema, options, lives, piece.rows, share_min)
            codec = codec or codec_of(parquet.metadata)
            piece = replace(piece, copied=found)
            if not reader.is_remote:
                reader.close()
        planned.append(piece)
    return replace(options, codec=codec), planned


def _begun(
    store: ObjectStore, task: MaterializeTask, number: int, source: LiveRange, ahead: ReadAhead, texts: LastText | None
) -> tuple[LiveRange, bool, FileReader | None]:
    """A source, whether it may have row groups to copy, and its reader if it is to be opened now.

    Files with row groups to copy are opened now. So are the first remote files, to arrive together with the masks.
    """
    copies = may_be_copied(source.file, task.options, task.limits.copied_group_share_min)
    is_ahead = number <= FILES_AHEAD and isinstance(store, Fetches)
    reader = FileReader(store, Part(source.file), ahead, copies, texts) if copies or is_ahead else None
    return source, copies, reader


def _with_readers(
    store: ObjectStore, pieces: Sequence[LivePiece], ahead: ReadAhead, texts: LastText | None
) -> Iterator[LivePiece]:
    """The pieces with their readers. The next files are opened ahead."""

    def begun(piece: LivePiece) -> LivePiece:
        part = Part(piece.file, None, piece.rows)
        return replace(piece, reader=piece.reader or FileReader(store, part, ahead, texts=texts))

    return begun_ahead(pieces, begun)


def _announce(piece: LivePiece, copies_inside: bool) -> None:
    """Announce what will be read of a remote file: row groups to decode and row groups to copy, in their order."""
    if piece.reader is None or not piece.reader.is_remote or piece.file.content_type is not ContentType.PARQUET:
        return
    ranges: list[Range] = []
    start, stop = piece.rows
    for groups in piece.copied:
        if piece.lives[start : groups.start].any():
            ranges += piece.reader.ranges((start, groups.start))
        ranges += bytes_of(groups, copies_inside and piece.file.managed)
        start = groups.stop
    if piece.lives[start:stop].any():
        ranges += piece.reader.ranges((start, stop))
    piece.reader.announce(ranges)


def _steps(
    store: ObjectStore,
    task: MaterializeTask,
    pieces: Sequence[LivePiece],
    options: WriteOptions,
    ahead: ReadAhead,
    texts: LastText | None,
) -> Generator[Copy | Encoded]:
    """The parts of the output, in order: row groups to copy, and between them newly encoded row groups."""
    between: list[LivePiece] = []
    for piece in _with_readers(store, pieces, ahead, texts):
        start, stop = piece.rows
        for groups in piece.copied:
            assert piece.reader is not None, "its footer was read"
            between.append(replace(piece, rows=(start, groups.start)))
            yield from encoded(_live_rows(task, between), task.schema, options)
            yield Copy(piece.reader if piece.stays_open else piece.reader.again(), groups)
            between, start = [], groups.stop
        between.append(replace(piece, rows=(start, stop)))
    yield from encoded(_live_rows(task, between), task.schema, options)


def _copy(out: CopyingWriter, step: Copy) -> None:
    reader = step.reader
    with naming(reader.file.path, CorruptionError):
        out.copy(reader.source, step.groups, reader.origin if reader.file.managed else None)
    if not reader.is_remote:
        reader.close()


def _live_rows(task: MaterializeTask, pieces: Iterable[LivePiece]) -> Generator[pa.Table]:
    """Decode the live rows of these pieces."""
    for piece in pieces:
        if piece.reader is None or not piece.has_live_rows():
            continue
        for first, table in piece.reader.slices(piece.rows):
            wanted = piece.lives[first : first + table.num_rows]
            if not wanted.all():
                table = table.filter(pa.array(wanted))
            yield schemas.align(table, task.schema, task.partition, piece.file.path)
        if not piece.stays_open:
            piece.reader.close()


def rows_of(lives: npt.NDArray[np.bool_], source: LiveRange) -> tuple[int, int]:
    """The half-open range of row numbers that encloses the live rows of `source`."""
    live_rows = np.flatnonzero(lives)
    if source.stop > len(live_rows):
        raise CorruptionError(f"{source.file.path} has {len(live_rows)} live rows, {source.stop} were assigned")
    return int(live_rows[source.start]), int(live_rows[source.stop - 1]) + 1
