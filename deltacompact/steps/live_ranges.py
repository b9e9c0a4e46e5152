"""Reads the live rows of ranges of source files, in the order of their ranks.

file 7, live rows 3‥5      file 8, live rows 0‥2        ranks 8‥12 of the session
tables      7: 3, 4        8: 0, 1                      the wanted columns, in the types of the session
loads       7: 3, 4, 8: 0          8: 1                 as many rows at a time as fit the memory
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.batching import divided
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import Partition
from deltacompact.index.live_bitmaps import Masks, live_mask, read_each_masks
from deltacompact.steps.materialize import LivePiece, LiveRange, rows_of
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas
from deltacompact.tabular.files import Part
from deltacompact.tabular.loads import loads_of


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """Ranges of live rows, the paths of their live bitmaps, and the wanted columns."""

    ranges: tuple[LiveRange, ...]
    masks_paths: tuple[str, ...]
    columns: pa.Schema
    partition: Partition
    reading: ReadLimits

    @property
    def rows(self) -> int:
        return sum(range_.stop - range_.start for range_ in self.ranges)


def pieces_of(store: ObjectStore, live: LiveRanges) -> Iterator[LivePiece]:
    """The ranges with the live bitmaps of their files."""
    masks: Masks = {}
    for of_group in read_each_masks(store, live.masks_paths, live.reading, {range_.ordinal for range_ in live.ranges}):
        masks |= of_group
    for range_ in live.ranges:
        lives = live_mask(masks[range_.ordinal], range_.file.rows)
        yield LivePiece(range_.file, lives, rows_of(lives, range_))


def live_tables(store: ObjectStore, live: LiveRanges) -> Iterator[pa.Table]:
    """The live rows in the order of their ranks, a few at a time."""
    pieces = list(pieces_of(store, live))
    parts = [Part(piece.file, live.columns.names, piece.rows) for piece in pieces]
    for piece, slices in zip(pieces, files.read_each(store, parts, live.reading), strict=True):
        for first, table in slices:
            wanted = piece.lives[first : first + table.num_rows]
            if wanted.any():
                rows = table if wanted.all() else table.filter(pa.array(wanted))
                yield schemas.align(rows, live.columns, live.partition, piece.file.path)


def loads(store: ObjectStore, live: LiveRanges, load_bytes: int) -> Iterator[pa.Table]:
    """As `live_tables`, in tables of about `load_bytes` decoded bytes, each in one chunk."""
    return loads_of(live_tables(store, live), load_bytes)


def in_tasks(ranges: Sequence[LiveRange], rows_max: int) -> Iterator[tuple[LiveRange, ...]]:
    """The ranges, in their order, for tasks of `rows_max` live rows each. A range that exceeds a task is divided."""
    for share in divided((range_.stop - range_.start for range_ in ranges), rows_max):
        yield tuple(_part(ranges[place], start, stop) for place, start, stop in share)


def _part(whole: LiveRange, start: int, stop: int) -> LiveRange:
    return LiveRange(whole.file, whole.ordinal, whole.start + start, whole.start + stop)
