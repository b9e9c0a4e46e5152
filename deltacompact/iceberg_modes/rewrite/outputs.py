"""Writes the outputs of file groups: dead rows are found, the live ones materialized, each output described.

group     a.parquet: rows 0, 2 live      c.parquet: rows 1, 3 live
output    y.parquet: a 0, a 2, c 1, c 3                 the order of the group's files

In version 3, y stores the row ids that these rows have by their places in a and c, and when they were last updated.
Rows that go to several partitions of another spec are divided first (dividing.py). Rows that are clustered are divided
by a split tree (clustering.py), and lie in its order. A group is handed on once all of its rows are accounted for
(under_way.py).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.data_file import DECODED_TIMES
from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType
from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor, Handle
from deltacompact.iceberg.deletes.dead_rows import ScannedFile
from deltacompact.iceberg.marks.finding import Finder, Sizes
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.codec import codec_of
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal.journal import folder_of, name_of_files
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask
from deltacompact.iceberg_modes.rewrite.certifying import of_inputs
from deltacompact.iceberg_modes.rewrite.clustering import Clusterer, PlannedOutput
from deltacompact.iceberg_modes.rewrite.dividing import Divider, has_dead_rows
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan
from deltacompact.iceberg_modes.rewrite.proposals import Rewritten
from deltacompact.iceberg_modes.rewrite.row_order import RowOrder, row_order_of
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare, in_order
from deltacompact.iceberg_modes.rewrite.under_way import GroupUnderWay
from deltacompact.iceberg_modes.rewrite.writing import WriteTask, WrittenOutput, without_nan, write
from deltacompact.steps.materialize import MaterializeTask
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


@dataclass(frozen=True, slots=True)
class _OpenOutput:
    """A planned output: its task, its location, the share whose rows it has, and the values that are held for it."""

    task: MaterializeTask | ArrangeTask
    path: str
    share: PartitionShare
    held: tuple[Handle, ...]


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
        self._row_order = row_order_of(self._metadata, job.plan.options)
        self._bounded = self._row_order.bounded if self._row_order else []
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
        size_max = math.inf if self._row_order is None else self._held_bytes / DECODED_TIMES
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
        sizes, run_bytes = self._plan.options, self._sizes.run_bytes
        divider = Divider(
            self._store, self._tasks, self._metadata, sizes, self._write_options(), self._limits, run_bytes, folder
        )
        files = iter(dead.files)
        by_group = [[_with(next(files), divider.columns(group)) for _ in group.inputs] for group in groups]
        shares = divider.shares(groups, by_group, dead.masks_of)
        outputs = self._planned(groups, shares, folder)
        under_way = [
            GroupUnderWay(
                group,
                members,
                dead.masks_of,
                [(share, [output.task for output in of_share]) for share, of_share in of_group],
                without_nan((task.entry.file for task in group.inputs), self._may_be_nan.values()),
                self._of_inputs(divider, group, members, dead.masks_of),
            )
            for group, members, of_group in zip(groups, by_group, outputs, strict=True)
        ]
        for own in under_way:
            if own.is_complete:  # no row lives
                yield own.rewritten()
        of_shares = (of_share for of_group in outputs for _, of_share in of_group)
        yield from self._finished(under_way, list(chain.from_iterable(of_shares)))

    def _finished(self, under_way: Sequence[GroupUnderWay], outputs: Sequence[_OpenOutput]) -> Iterator[Rewritten]:
        """Write the outputs; the groups, each with its last output."""
        inputs = [
            (
                WriteTask(output.task, self._counted(under_way[output.share.place].free), self._certified),
                functools.partial(str, readable(output.path)),
                *output.held,
            )
            for output in outputs
        ]
        for number, written in self._tasks.finished(write, inputs):
            own = under_way[outputs[number].share.place]
            own.outputs[number] = self._described(own, outputs[number], written), written
            if own.is_complete:
                yield own.rewritten()

    @property
    def _certified(self) -> pa.Schema | None:
        """The columns whose values are added up. None: they are not."""
        return self._metadata.schema if self._settings.certify else None

    def _of_inputs(
        self, divider: Divider, group: FileGroup, members: Sequence[ScannedFile], masks_of: Mapping[int, str]
    ) -> list[Fingerprint] | None:
        """The fingerprints of a group's live rows, in parts. Whole files with a known fingerprint are not read."""
        if self._certified is None:
            return None
        paths = [source.entry.file.path for source in group.inputs]
        known = {
            path for path, member in zip(paths, members, strict=True) if not has_dead_rows(member)
        } & self._known.keys()
        rest = [member for path, member in zip(paths, members, strict=True) if path not in known]
        read = self._tasks.run(of_inputs, divider.live(group, rest, masks_of, self._certified))
        return [*(self._known[path] for path in sorted(known)), *read]

    def _planned(
        self, groups: Sequence[FileGroup], shares: Sequence[PartitionShare], folder: str
    ) -> list[list[tuple[PartitionShare, list[_OpenOutput]]]]:
        """The outputs of each share, by group."""
        options = self._write_options()
        by_share: Iterable[Sequence[PlannedOutput]]
        if self._row_order is not None:
            by_share = self._clusterer(self._row_order, options, folder).outputs(shares)
        else:
            sizes = self._plan.options
            by_share = (list(map(PlannedOutput, in_order(share, sizes, options, self._limits))) for share in shares)
        numbers: Counter[int] = Counter()
        found: list[list[tuple[PartitionShare, list[_OpenOutput]]]] = [[] for _ in groups]
        for share, of_share in zip(shares, by_share, strict=True):
            outputs = []
            for planned in of_share:
                name = f"{groups[share.place].number:05}-{numbers[share.place]:05}-deltacompact.parquet"
                path = f"{self._metadata.data_folder}/{name_of_files(self._session)}{name}"
                outputs.append(_OpenOutput(planned.task, path, share, planned.held))
                numbers[share.place] += 1
            found[share.place].append((share, outputs))
        return found

    def _clusterer(self, by: RowOrder, options: WriteOptions, folder: str) -> Clusterer:
        trees, run_bytes, held = f"{folder_of(self._session)}tree-", self._sizes.run_bytes, self._held_bytes
        return Clusterer(self._tasks, self._metadata, by, options, self._limits, run_bytes, held, trees, folder)

    def _write_options(self) -> WriteOptions:
        codec = codec_of(self._metadata.properties, self._settings.compression)
        return WriteOptions(ContentType.PARQUET, codec, self._settings.row_group_rows)

    def _counted(self, free: Collection[int]) -> dict[str, int]:
        """The columns in which NaN must be counted: field ids by path, without those that are `free` of NaN."""
        return {path: number for path, number in self._may_be_nan.items() if number not in free}

    def _described(self, own: GroupUnderWay, planned: _OpenOutput, written: WrittenOutput) -> ContentFile:
        """The output as a manifest lists it, with its counts and bounds."""
        file = written.output.file
        with files.opened(self._store, file) as source:
            footer = parquet_read.described(source).metadata
        plain = ContentFile(
            Content.DATA,
            planned.path,
            "PARQUET",
            own.group.spec_id,
            planned.share.partition,
            file.rows,
            file.bytes,
            sort_order_id=self._row_order.order_id if self._row_order else None,
        )
        return self._table.with_metrics(plain, footer, {**own.free, **written.nan_counts}, self._bounded)


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


def _with(member: ScannedFile, columns: pa.Schema) -> ScannedFile:
    """The same file with other columns."""
    return replace(member, file=field_ids.matched(member.file, columns))
