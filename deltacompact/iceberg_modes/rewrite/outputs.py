"""Writes the outputs of file groups: dead rows are found, the live ones materialized, each output described.

group     a.parquet: rows 0, 2 live      c.parquet: rows 1, 3 live
output    y.parquet: a 0, a 2, c 1, c 3                 the order of the group's files

In version 3, y stores the row ids that these rows have by their places in a and c, and when they were last updated.
Rows that go to several partitions of another spec are divided first (splitting.py). Rows that are clustered are
divided by a split tree (clustering.py), and lie in its order.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeAlias

import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType
from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor, Handle
from deltacompact.iceberg.deletes.dead_rows import ScannedFile
from deltacompact.iceberg.marks.finding import Finder, Sizes
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.row_map import Piece
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.codec import codec_of
from deltacompact.iceberg.table.content_files import Content, ContentFile, PartitionTuple
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.pyiceberg_door.transforms import partition_columns
from deltacompact.iceberg.table.row_lineage import with_lineage
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal.journal import folder_of, name_of_files
from deltacompact.iceberg_modes.rewrite.arrangement import Arrangement, arrangement_of
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask
from deltacompact.iceberg_modes.rewrite.certifying import of_inputs, refuse_other_rows
from deltacompact.iceberg_modes.rewrite.clustering import Clusterer, PlannedOutput
from deltacompact.iceberg_modes.rewrite.cutting import ends_of
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, Slice, in_slices
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan, expected_output_files
from deltacompact.iceberg_modes.rewrite.proposals import Rewritten
from deltacompact.iceberg_modes.rewrite.sampling import Sampled, SampleTask, sampled
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare, in_order
from deltacompact.iceberg_modes.rewrite.splitting import ALL_LIVE, SplitTask, all_live, split
from deltacompact.iceberg_modes.rewrite.stored_row_map import StoredRowMap, StoredRowShare
from deltacompact.iceberg_modes.rewrite.writing import WriteTask, WrittenOutput, without_nan, write
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.index.number_blocks import NUMBERED_ROWS_MAX, StoredNumbers
from deltacompact.steps.materialize import LiveRange, MaterializeTask
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, files, parquet_read
from deltacompact.tabular.damage import CANNOT_BE_READ
from deltacompact.tabular.row_groups import WriteOptions


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, the table and the branch as they were planned, and the session whose name the outputs have.

    `known`: fingerprints of data files, by path.
    """

    store: ObjectStore
    table: IcebergTable
    state: TableState
    plan: RewritePlan
    session: str
    known: Mapping[str, Fingerprint]


DECODED_TIMES = 4
"""A stored byte becomes about so many bytes in memory."""


@dataclass(frozen=True, slots=True)
class _OpenOutput:
    """A planned output: its task, its location, its partition, and the values that are held in memory for it."""

    task: MaterializeTask | ArrangeTask
    path: str
    partition: PartitionTuple
    held: tuple[Handle, ...] = ()


_Tasks: TypeAlias = Sequence[MaterializeTask | ArrangeTask]
"""The outputs of a share."""


@dataclass(frozen=True, slots=True)
class _GroupPart:
    """The live rows of a group that go to a partition, and where they lie in runs, if they had to be divided."""

    partition: PartitionTuple | None
    ranges: list[LiveRange]
    pieces: list[Piece] = field(default_factory=list)


class Outputs:
    """The tasks of some groups, which hand each other files in `folder`."""

    def __init__(self, job: Job, executor: Executor, settings: Settings, sizes: Sizes, folder: str) -> None:
        self._store = job.store
        self._table = job.table
        self._metadata = job.state.metadata
        self._plan = job.plan
        self._session = job.session
        self._known = job.known
        self._tasks = Tasks(job.store, executor)
        self._settings = settings
        self._sizes = sizes
        self._folder = folder
        self._arrangement = arrangement_of(self._metadata, job.plan.options)
        self._bounded = self._arrangement.bounded if self._arrangement else []
        self._may_be_nan = job.table.counted_for_nan(self._bounded)

    @property
    def _limits(self) -> Limits:
        return self._settings.limits

    def written(self, groups: Sequence[FileGroup]) -> Iterator[Rewritten]:
        """The groups, as soon as their outputs are complete."""
        with _advising():
            for number, share in enumerate(self._at_once(groups)):
                yield from self._written(share, f"{self._folder}{number}/")

    def _at_once(self, groups: Sequence[FileGroup]) -> Iterator[Sequence[FileGroup]]:
        """Groups to write side by side. If rows are laid out anew: as many as memory holds together."""
        size_max = math.inf if self._arrangement is None else self._held_bytes / DECODED_TIMES
        return batched(groups, lambda group: group.bytes, size_max, self._plan.options.max_concurrent_groups)

    @property
    def _held_bytes(self) -> int:
        """What tasks may hand each other in memory, in all."""
        if self._sizes.held_bytes is not None:
            return self._sizes.held_bytes
        return int(self._tasks.executor.capacity.object_store_bytes * self._limits.held_share)

    def _written(self, groups: Sequence[FileGroup], folder: str) -> Iterator[Rewritten]:
        finder = Finder(self._tasks, self._metadata, self._limits, self._sizes, folder)
        dead = finder.find([task for group in groups for task in group.inputs])
        files = iter(dead.files)
        by_group = [[_with(next(files), self._columns(group)) for _ in group.inputs] for group in groups]
        tasks, group_of, shares = self._planned(groups, by_group, dead.masks_of, folder)
        for number in sorted(set(range(len(groups))) - set(group_of)):
            row_map = _row_map(groups[number], by_group[number], dead.masks_of, shares[number], [])
            yield _rewritten(groups[number], by_group[number], [], row_map)
        outputs: dict[int, dict[int, tuple[ContentFile, WrittenOutput]]] = defaultdict(dict)
        wanted = Counter(group_of)
        free = [without_nan((task.entry.file for task in group.inputs), self._may_be_nan.values()) for group in groups]
        certified = self._metadata.schema if self._settings.certify else None
        expected = {
            number: self._of_inputs(group, by_group[number], dead.masks_of, certified)
            for number, group in enumerate(groups)
            if certified is not None
        }
        inputs = [
            (
                WriteTask(output.task, self._counted(free[own]), certified),
                functools.partial(str, readable(output.path)),
                *output.held,
            )
            for own, output in zip(group_of, tasks, strict=True)
        ]
        for number, output in self._tasks.finished(write, inputs):
            own = group_of[number]
            outputs[own][number] = self._described(groups[own], tasks[number], output, free[own]), output
            if len(outputs[own]) == wanted[own]:
                of_group = sorted(outputs.pop(own).items(), key=_number)
                complete, written = zip(*(of_output for _, of_output in of_group), strict=True)
                if certified is not None:
                    sums = (output.fingerprint for output in written)
                    refuse_other_rows(expected[own], sums, by_group[own][0].file.path)
                crc32s = [output.numbers_crc32 for output in written]
                row_map = _row_map(groups[own], by_group[own], dead.masks_of, shares[own], crc32s)
                rewritten = _rewritten(groups[own], by_group[own], complete, row_map)
                found = {
                    file.path: output.fingerprint
                    for file, output in zip(complete, written, strict=True)
                    if output.fingerprint is not None
                }
                yield replace(rewritten, fingerprints=found)

    def _of_inputs(
        self, group: FileGroup, members: Sequence[ScannedFile], masks_of: Mapping[int, str], columns: pa.Schema
    ) -> list[Fingerprint]:
        """The fingerprints of a group's live rows, in parts. Whole files with a known fingerprint are not read."""
        paths = [source.entry.file.path for source in group.inputs]
        known = {
            path for path, member in zip(paths, members, strict=True) if not _has_dead_rows(member)
        } & self._known.keys()
        rest = [member for path, member in zip(paths, members, strict=True) if path not in known]
        read = self._tasks.run(of_inputs, self._live(group, rest, masks_of, columns))
        return [*(self._known[path] for path in sorted(known)), *read]

    # Outputs

    def _columns(self, group: FileGroup) -> pa.Schema:
        columns = self._metadata.schema
        return with_lineage(columns) if group.has_lineage else columns

    def _sampled(self, groups: Sequence[FileGroup], by_group: Sequence[Sequence[ScannedFile]]) -> list[_Samples]:
        """Samples of files, for groups that may need several outputs: of the largest files, and of those to divide."""
        target, tasks = self._plan.options.target_file_bytes, dict[tuple[int, str], SampleTask]()
        options, reading = self._write_options(), self._limits.reading
        for number, members in enumerate(by_group):
            if sum(map(_live_bytes, members)) > target // 2:
                large = [member for member in members if member.file.bytes > target and not _has_dead_rows(member)]
                for file in {
                    member.file.path: member.file for member in (max(members, key=_live_bytes), *large)
                }.values():
                    tasks[number, file.path] = SampleTask(file, self._columns(groups[number]), options, reading)
        found = [_Samples() for _ in groups]
        for (number, path), sample in zip(tasks, self._tasks.run(sampled, tuple(tasks.values())), strict=True):
            found[number][path] = sample
        return found

    def _planned(
        self,
        groups: Sequence[FileGroup],
        by_group: Sequence[Sequence[ScannedFile]],
        masks_of: Mapping[int, str],
        folder: str,
    ) -> tuple[list[_OpenOutput], list[int], list[list[tuple[PartitionShare, _Tasks]]]]:
        """(all outputs, the place of each output's group, the shares of each group with their tasks)."""
        shares: list[PartitionShare] = []
        for place, (members, known) in enumerate(zip(by_group, self._sampled(groups, by_group), strict=True)):
            shares += self._shares(place, groups[place], members, masks_of, known, folder)
        options = self._write_options()
        by_share: Iterable[Sequence[PlannedOutput]]
        if self._arrangement is not None:
            by_share = self._clusterer(self._arrangement, options, folder).outputs(shares)
        else:
            sizes = self._plan.options
            by_share = (list(map(PlannedOutput, in_order(share, sizes, options, self._limits))) for share in shares)
        outputs: list[_OpenOutput] = []
        group_of: list[int] = []
        numbers: Counter[int] = Counter()
        of_groups: list[list[tuple[PartitionShare, _Tasks]]] = [[] for _ in groups]
        for share, tasks in zip(shares, by_share, strict=True):
            of_groups[share.place].append((share, [planned.task for planned in tasks]))
            for planned in tasks:
                name = f"{groups[share.place].number:05}-{numbers[share.place]:05}-deltacompact.parquet"
                path = f"{self._metadata.data_folder}/{name_of_files(self._session)}{name}"
                outputs.append(_OpenOutput(planned.task, path, share.partition, planned.held))
                group_of.append(share.place)
                numbers[share.place] += 1
        return outputs, group_of, of_groups

    def _clusterer(self, by: Arrangement, options: WriteOptions, folder: str) -> Clusterer:
        trees, run_bytes, held = f"{folder_of(self._session)}tree-", self._sizes.run_bytes, self._held_bytes
        return Clusterer(self._tasks, self._metadata, by, options, self._limits, run_bytes, held, trees, folder)

    def _shares(
        self,
        place: int,
        group: FileGroup,
        members: Sequence[ScannedFile],
        masks_of: Mapping[int, str],
        known: _Samples,
        folder: str,
    ) -> Iterator[PartitionShare]:
        """The live rows of a group by the partitions that they go to, in the order of its files."""
        size = max(1, _written_bytes(members, known))
        rows = sum(member.live_rows for member in members)
        whole = [LiveRange(member.file, member.ordinal, 0, member.live_rows) for member in members if member.live_rows]
        parts = [_GroupPart(group.partition, whole)]
        runs: tuple[StoredNumbers, ...] = ()
        is_divided = group.partition is None
        if is_divided:
            parts, runs, masks_of = self._divided(group, members, masks_of, f"{folder}split-{group.number}")
        for number, part in enumerate(parts):
            partition, ranges = part.partition, part.ranges
            assert partition is not None
            if of_partition := sum(range_.stop - range_.start for range_ in ranges):
                share_bytes = size * of_partition // rows
                files_out = expected_output_files(share_bytes, self._plan.options)
                name = f"{group.number}-{number}" if is_divided else f"{group.number}"
                yield PartitionShare(
                    place,
                    name,
                    partition,
                    tuple(ranges),
                    tuple(part.pieces),
                    runs,
                    masks_of,
                    self._columns(group),
                    share_bytes,
                    files_out,
                    tuple(ends_of((range_.stop - range_.start, _ends(range_, known)) for range_ in ranges)),
                    group.extents,
                )

    def _live(
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
        share = max(self._limits.task_rows_min, math.ceil(group.rows / max(1, self._tasks.slots * 2)))
        return [
            LiveSlices(
                slices,
                tuple(dict.fromkeys(masks_of[slice_.ordinal] for slice_ in slices)),
                columns,
                self._limits.reading,
            )
            for slices in in_slices(whole, share)
        ]

    def _divided(
        self, group: FileGroup, members: Sequence[ScannedFile], masks_of: Mapping[int, str], path: str
    ) -> tuple[list[_GroupPart], tuple[StoredNumbers, ...], dict[int, str]]:
        """(the group's live rows by partition, in runs; the runs' numbers; the path of their bitmap)."""
        by = partition_columns(self._metadata.specs[group.spec_id], self._metadata.columns)
        tasks = [
            SplitTask(live, by, f"{path}-{number}", self._sizes.run_bytes, self._write_options())
            for number, live in enumerate(
                self._live(group, members, masks_of, self._columns(group), group.rows <= NUMBERED_ROWS_MAX)
            )
        ]
        runs = [run for of_task in self._tasks.run(split, tasks) for run in of_task]
        by_partition: dict[PartitionTuple, _GroupPart] = {}
        for number, run in enumerate(runs):
            start = 0
            for partition, rows in run.partitions:
                part = by_partition.setdefault(partition, _GroupPart(partition, []))
                part.ranges.append(LiveRange(run.file, ALL_LIVE, start, start + rows))
                part.pieces.append(Piece(number, start, start + rows))
                start += rows
        masks = f"{path}-live.arrow"
        write_masks(self._store, masks, {ALL_LIVE: all_live(runs)})
        numbers = tuple(run.numbers for run in runs if run.numbers is not None)
        return list(by_partition.values()), numbers, {ALL_LIVE: masks}

    def _write_options(self) -> WriteOptions:
        codec = codec_of(self._metadata.properties, self._settings.compression)
        return WriteOptions(ContentType.PARQUET, codec, self._settings.row_group_rows)

    def _counted(self, free: Collection[int]) -> dict[str, int]:
        """The columns in which NaN must be counted: field ids by path, without those that are `free` of NaN."""
        return {path: number for path, number in self._may_be_nan.items() if number not in free}

    def _described(
        self, group: FileGroup, planned: _OpenOutput, written: WrittenOutput, free: Mapping[int, int]
    ) -> ContentFile:
        """The output as a manifest lists it, with its counts and bounds."""
        file = written.output.file
        with files.opened(self._store, file) as source:
            footer = parquet_read.described(source).metadata
        plain = ContentFile(
            Content.DATA,
            planned.path,
            "PARQUET",
            group.spec_id,
            planned.partition,
            file.rows,
            file.bytes,
            sort_order_id=self._arrangement.order_id if self._arrangement else None,
        )
        return self._table.with_metrics(plain, footer, {**free, **written.nan_counts}, self._bounded)


def _row_map(
    group: FileGroup,
    members: Sequence[ScannedFile],
    masks_of: Mapping[int, str],
    shares: Sequence[tuple[PartitionShare, _Tasks]],
    crc32s: Sequence[int | None],
) -> StoredRowMap | None:
    """Where each row of a group is now. None: the group has too many rows to store that.

    `crc32s`: the checksum of the numbers of each output.
    """
    if group.rows > NUMBERED_ROWS_MAX:
        return None
    live = tuple(LiveBitmap(masks_of[member.ordinal], member.ordinal, member.mask_crc32) for member in members)
    runs, of_outputs = shares[0][0].runs if shares else (), iter(crc32s)
    return StoredRowMap(live, tuple(_share(share, tasks, of_outputs) for share, tasks in shares), runs)


def _share(share: PartitionShare, tasks: _Tasks, crc32s: Iterator[int | None]) -> StoredRowShare:
    numbers = tuple(
        StoredNumbers(task.numbers_path, crc32)
        for task, crc32 in zip(tasks, crc32s, strict=False)
        if isinstance(task, ArrangeTask) and task.numbers_path is not None
    )
    return StoredRowShare(len(tasks), numbers, share.pieces)


def _rewritten(
    group: FileGroup, members: Sequence[ScannedFile], outputs: Sequence[ContentFile], row_map: StoredRowMap | None
) -> Rewritten:
    """The group with its outputs, once all of its rows are accounted for."""
    by_position = sum(member.dead_by_position for member in members)
    by_key = sum(member.dead_by_key for member in members)
    done = Rewritten(group, tuple(outputs), by_position, by_key, row_map)
    if group.rows != done.rows + by_position + by_key:
        raise CorruptionError(
            f"{group.rows} rows of {group.inputs[0].entry.file.path} and others went in, {done.rows} came out, "
            f"{by_position} were dead by position and {by_key} by key"
        )
    return done


_Samples = dict[str, Sampled]
"""What is known of some files of a group, by path."""


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


def _has_dead_rows(member: ScannedFile) -> bool:
    return member.live_rows < member.file.rows


@contextlib.contextmanager
def _advising() -> Iterator[None]:
    """Add to the error about an unreadable file what the user can do."""
    try:
        yield
    except (InputError, CorruptionError) as error:
        if CANNOT_BE_READ not in str(error):
            raise
        advice = "restore the file, or leave it out of the rewrite with the option `where`"
        raise type(error)(f"{error}; nothing of it was rewritten: {advice}") from error


def _number(numbered: tuple[int, tuple[ContentFile, WrittenOutput]]) -> int:
    return numbered[0]


def _with(member: ScannedFile, columns: pa.Schema) -> ScannedFile:
    """The same file with other columns."""
    return replace(member, file=field_ids.matched(member.file, columns))


def _live_bytes(member: ScannedFile) -> int:
    """The stored bytes of the live rows, if all rows are alike."""
    return member.file.bytes * member.live_rows // max(1, member.file.rows)
