"""Divides the live rows of groups by the partitions that they go to, and says about how many files each share needs.

group 0    day 3: a, c     a share of day 3: the rows stay where they are
group 1    any: b, d       tasks write the rows into runs, by partition (splitting.py): a share for each
bytes      a sample of the largest file says what a stored byte becomes, and where row groups end
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from deltacompact.base.limits import Limits
from deltacompact.iceberg.deletes.dead_rows import ScannedFile
from deltacompact.iceberg.row_map import Piece
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.content_files import PartitionTuple
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.transforms import partition_columns
from deltacompact.iceberg.table.row_lineage import with_lineage
from deltacompact.iceberg_modes.rewrite.cutting import ends_of
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, Slice, in_slices
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, expected_output_files
from deltacompact.iceberg_modes.rewrite.sampling import Sampled, SampleTask, sampled
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare
from deltacompact.iceberg_modes.rewrite.splitting import ALL_LIVE, SplitTask, all_live, split
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.index.number_blocks import NUMBERED_ROWS_MAX, StoredNumbers
from deltacompact.steps.materialize import LiveRange
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class _GroupPart:
    """The live rows of a group that go to a partition, and where they lie in runs, if they had to be divided."""

    partition: PartitionTuple | None
    ranges: list[LiveRange]
    pieces: list[Piece] = field(default_factory=list)


_Samples = dict[str, Sampled]
"""What is known of some files of a group, by path."""


@dataclass(frozen=True, slots=True)
class Divider:
    """Divides groups by tasks. `folder`: of runs. `run_bytes`: decoded, of the rows that a task divides at once."""

    store: ObjectStore
    tasks: Tasks
    metadata: TableMetadata
    sizes: RewriteOptions
    writing: WriteOptions
    limits: Limits
    run_bytes: int
    folder: str

    def columns(self, group: FileGroup) -> pa.Schema:
        """The columns of the outputs of a group."""
        columns = self.metadata.schema
        return with_lineage(columns) if group.has_lineage else columns

    def shares(
        self, groups: Sequence[FileGroup], by_group: Sequence[Sequence[ScannedFile]], masks_of: Mapping[int, str]
    ) -> list[PartitionShare]:
        """The shares of all groups, one group after the other. `by_group`: their files."""
        return [
            share
            for place, (members, known) in enumerate(zip(by_group, self._sampled(groups, by_group), strict=True))
            for share in self._shares(place, groups[place], members, masks_of, known)
        ]

    def _sampled(self, groups: Sequence[FileGroup], by_group: Sequence[Sequence[ScannedFile]]) -> list[_Samples]:
        """Samples of files, for groups that may need several outputs: of the largest files, and of those to divide."""
        target, tasks = self.sizes.target_file_bytes, dict[tuple[int, str], SampleTask]()
        options, reading = self.writing, self.limits.reading
        for number, members in enumerate(by_group):
            if sum(map(_live_bytes, members)) > target // 2:
                large = [member for member in members if member.file.bytes > target and not has_dead_rows(member)]
                for file in {
                    member.file.path: member.file for member in (max(members, key=_live_bytes), *large)
                }.values():
                    tasks[number, file.path] = SampleTask(file, self.columns(groups[number]), options, reading)
        found = [_Samples() for _ in groups]
        for (number, path), sample in zip(tasks, self.tasks.run(sampled, tuple(tasks.values())), strict=True):
            found[number][path] = sample
        return found

    def _shares(
        self,
        place: int,
        group: FileGroup,
        members: Sequence[ScannedFile],
        masks_of: Mapping[int, str],
        known: _Samples,
    ) -> Iterator[PartitionShare]:
        """The live rows of a group by the partitions that they go to, in the order of its files."""
        size = max(1, _written_bytes(members, known))
        rows = sum(member.live_rows for member in members)
        whole = [LiveRange(member.file, member.ordinal, 0, member.live_rows) for member in members if member.live_rows]
        parts = [_GroupPart(group.partition, whole)]
        runs: tuple[StoredNumbers, ...] = ()
        is_divided = group.partition is None
        if is_divided:
            parts, runs, masks_of = self._divided(group, members, masks_of, f"{self.folder}split-{group.number}")
        for number, part in enumerate(parts):
            partition, ranges = part.partition, part.ranges
            assert partition is not None
            if of_partition := sum(range_.stop - range_.start for range_ in ranges):
                share_bytes = size * of_partition // rows
                files_out = expected_output_files(share_bytes, self.sizes)
                name = f"{group.number}-{number}" if is_divided else f"{group.number}"
                yield PartitionShare(
                    place,
                    name,
                    partition,
                    tuple(ranges),
                    tuple(part.pieces),
                    runs,
                    masks_of,
                    self.columns(group),
                    share_bytes,
                    files_out,
                    tuple(ends_of((range_.stop - range_.start, _ends(range_, known)) for range_ in ranges)),
                    group.extents,
                )

    def live(
        self,
        group: FileGroup,
        members: Sequence[ScannedFile],
        masks_of: Mapping[int, str],
        columns: pa.Schema,
        numbered: bool = False,
    ) -> list[LiveSlices]:
        """The live rows of a group in parts, a task each."""
        firsts = accumulate((member.live_rows for member in members), initial=0)
        whole = [
            Slice(member.file, member.ordinal, (0, member.file.rows), first if numbered else None)
            for member, first in zip(members, firsts, strict=False)
            if member.live_rows
        ]
        share = max(self.limits.task_rows_min, math.ceil(group.rows / max(1, self.tasks.slots * 2)))
        return [
            LiveSlices(
                slices,
                tuple(dict.fromkeys(masks_of[slice_.ordinal] for slice_ in slices)),
                columns,
                self.limits.reading,
            )
            for slices in in_slices(whole, share)
        ]

    def _divided(
        self, group: FileGroup, members: Sequence[ScannedFile], masks_of: Mapping[int, str], path: str
    ) -> tuple[list[_GroupPart], tuple[StoredNumbers, ...], dict[int, str]]:
        """(the group's live rows by partition, in runs; the runs' numbers; the path of their bitmap)."""
        by = partition_columns(self.metadata.specs[group.spec_id], self.metadata.columns)
        tasks = [
            SplitTask(live, by, f"{path}-{number}", self.run_bytes, self.writing)
            for number, live in enumerate(
                self.live(group, members, masks_of, self.columns(group), group.rows <= NUMBERED_ROWS_MAX)
            )
        ]
        runs = [run for of_task in self.tasks.run(split, tasks) for run in of_task]
        by_partition: dict[PartitionTuple, _GroupPart] = {}
        for number, run in enumerate(runs):
            start = 0
            for partition, rows in run.partitions:
                part = by_partition.setdefault(partition, _GroupPart(partition, []))
                part.ranges.append(LiveRange(run.file, ALL_LIVE, start, start + rows))
                part.pieces.append(Piece(number, start, start + rows))
                start += rows
        masks = f"{path}-live.arrow"
        write_masks(self.store, masks, {ALL_LIVE: all_live(runs)})
        numbers = tuple(run.numbers for run in runs if run.numbers is not None)
        return list(by_partition.values()), numbers, {ALL_LIVE: masks}


def _written_bytes(members: Sequence[ScannedFile], known: _Samples) -> int:
    """About the bytes that the live rows of a group will take once written. A file without a sample counts like a
    sampled one."""
    like = next(iter(known.values())).written_share if known else 1.0
    shares = (known[member.file.path].written_share if member.file.path in known else like for member in members)
    return int(sum(_live_bytes(member) * share for member, share in zip(members, shares, strict=True)))


def _ends(live: LiveRange, known: _Samples) -> tuple[int, ...]:
    """Where row groups of a source end. Unknown for a file with dead rows, and for a run."""
    sample = known.get(live.file.path)
    is_whole = (live.start, live.stop) == (0, live.file.rows)
    return sample.ends if sample is not None and is_whole else ()


def has_dead_rows(member: ScannedFile) -> bool:
    return member.live_rows < member.file.rows


def _live_bytes(member: ScannedFile) -> int:
    """The stored bytes of the live rows, if all rows are alike."""
    return member.file.bytes * member.live_rows // max(1, member.file.rows)
