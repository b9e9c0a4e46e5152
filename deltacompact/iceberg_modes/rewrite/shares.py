"""Shares: the live rows of a group that go to one partition. How they are divided into files is up to each share.

    group 0    day 3: a, c      share    day 3: a 0, a 2, c 1           its rows lie where they were
    group 1    any: b, d        share    day 4: run 0, rows 0 to 2      rows that go to several partitions are divided
                                share    day 5: run 0, rows 2 to 3      first (splitting.py)

In order, a share's rows are divided about evenly, where row groups end: the files keep them as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from deltacompact.base.limits import Limits
from deltacompact.base.model import Partition
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.iceberg.row_map import Piece
from deltacompact.iceberg.table.content_files import PartitionTuple
from deltacompact.iceberg_modes.rewrite.cutting import cuts
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, Slice
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions
from deltacompact.index.number_blocks import StoredNumbers
from deltacompact.layout.extents import Extents
from deltacompact.steps.materialize import LiveRange, MaterializeTask
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """The live rows of a group that go to one partition, into about `files` files.

    name        "3" for group 3; "3-0", "3-1" where that is divided
    ranges      counted in live rows
    pieces      where its rows lie in runs, whose rows all live; empty: it has all live rows of each data file
    runs        the numbers of the rows of the group's runs
    bytes       about the bytes that its files will have
    ends        where row groups end, as far as that is known
    extents     the range of its rows, by column, as a share of the partition's
    """

    place: int
    name: str
    partition: PartitionTuple
    ranges: tuple[LiveRange, ...]
    pieces: tuple[Piece, ...]
    runs: tuple[StoredNumbers, ...]
    masks_of: Mapping[int, str]
    columns: pa.Schema
    bytes: int
    files: int
    ends: tuple[int, ...]
    extents: Extents

    @property
    def rows(self) -> int:
        return sum(range_.stop - range_.start for range_ in self.ranges)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The ranges in rows of the files, dead ones included. Live rows have numbers, one range after the other."""
        firsts = accumulate((range_.stop - range_.start for range_ in self.ranges), initial=0)
        numbered = list(zip(self.ranges, firsts, strict=False))
        if self.pieces:
            return tuple(
                Slice(range_.file, range_.ordinal, (range_.start, range_.stop), first - range_.start)
                for range_, first in numbered
            )
        return tuple(Slice(range_.file, range_.ordinal, (0, range_.file.rows), first) for range_, first in numbered)

    def live(self, slices: Sequence[Slice], columns: pa.Schema, limits: Limits) -> LiveSlices:
        """Some of the slices, as tasks read them."""
        masks = tuple(dict.fromkeys(self.masks_of[slice_.ordinal] for slice_ in slices))
        return LiveSlices(tuple(slices), masks, columns, limits.reading)


def in_order(
    share: PartitionShare, sizes: RewriteOptions, options: WriteOptions, limits: Limits
) -> Iterator[MaterializeTask]:
    """The files of a share whose rows keep their order."""
    row_bytes = max(1, share.bytes) / share.rows
    least, most = sizes.min_file_bytes / row_bytes, sizes.max_file_bytes / row_bytes
    for number, (first, stop) in enumerate(cuts(share.rows, share.files, share.ends, least, most)):
        own = tuple(_within(share.ranges, first, stop))
        masks = tuple(dict.fromkeys(share.masks_of[slice_.ordinal] for slice_ in own))
        yield MaterializeTask(
            ChainFileNumber(number), stop - first, own, masks, share.columns, Partition(), options, limits
        )


def _within(ranges: Sequence[LiveRange], first: int, stop: int) -> Iterator[LiveRange]:
    """The live rows with the ranks [first, stop) among all of `ranges`, by file."""
    rank = 0
    for range_ in ranges:
        rows = range_.stop - range_.start
        low, high = max(first, rank), min(stop, rank + rows)
        if low < high:
            yield replace(range_, start=range_.start + low - rank, stop=range_.start + high - rank)
        rank += rows
