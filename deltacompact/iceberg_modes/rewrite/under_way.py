"""A group whose outputs are being written: it is complete once every row is accounted for.

in     a.parquet: 3 rows, 1 dead by position      c.parquet: 4 rows, 2 dead by key
out    y.parquet: 4 rows                          7 = 4 + 1 + 2, with the fingerprint of the live rows
map    (a, 2) -> (y, 1)                           from the live bitmaps and the numbers of the outputs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from deltacompact.base.errors import CorruptionError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.deletes.dead_rows import ScannedFile
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask
from deltacompact.iceberg_modes.rewrite.certifying import refuse_other_rows
from deltacompact.iceberg_modes.rewrite.plan import FileGroup
from deltacompact.iceberg_modes.rewrite.proposals import Rewritten
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare
from deltacompact.iceberg_modes.rewrite.stored_row_map import StoredRowMap, StoredRowShare
from deltacompact.iceberg_modes.rewrite.writing import WrittenOutput
from deltacompact.index.number_blocks import NUMBERED_ROWS_MAX, StoredNumbers
from deltacompact.steps.materialize import MaterializeTask

OutputTasks: TypeAlias = Sequence[MaterializeTask | ArrangeTask]
"""The outputs of a share."""


@dataclass(frozen=True, slots=True)
class GroupUnderWay:
    """A group, its files, the shares of its rows, each with its tasks, and the outputs that are there, by their order.

    `free`: of NaN, as `without_nan` says.
    `expected`: the fingerprints of its live rows, in parts. None: they are not asked for.
    """

    group: FileGroup
    members: Sequence[ScannedFile]
    masks_of: Mapping[int, str]
    shares: Sequence[tuple[PartitionShare, OutputTasks]]
    free: Mapping[int, int]
    expected: Sequence[Fingerprint] | None
    outputs: dict[int, tuple[ContentFile, WrittenOutput]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.outputs) == sum(len(tasks) for _, tasks in self.shares)

    def rewritten(self) -> Rewritten:
        """The group with its outputs. Raises CorruptionError if other rows came out than went in."""
        complete = [self.outputs[number] for number in sorted(self.outputs)]
        if self.expected is not None:
            sums = (output.fingerprint for _, output in complete)
            refuse_other_rows(self.expected, sums, self.members[0].file.path)
        by_position = sum(member.dead_by_position for member in self.members)
        by_key = sum(member.dead_by_key for member in self.members)
        files = tuple(file for file, _ in complete)
        found = {file.path: output.fingerprint for file, output in complete if output.fingerprint is not None}
        row_map = self._row_map([output.numbers_crc32 for _, output in complete])
        done = Rewritten(self.group, files, by_position, by_key, row_map, found)
        if self.group.rows != done.rows + by_position + by_key:
            raise CorruptionError(
                f"{self.group.rows} rows of {self.group.inputs[0].entry.file.path} and others went in, "
                f"{done.rows} came out, {by_position} were dead by position and {by_key} by key"
            )
        return done

    def _row_map(self, crc32s: Sequence[int | None]) -> StoredRowMap | None:
        """Where each row is now. None: the group has too many rows to store that.

        `crc32s`: the checksum of the numbers of each output.
        """
        if self.group.rows > NUMBERED_ROWS_MAX:
            return None
        live = tuple(
            LiveBitmap(self.masks_of[member.ordinal], member.ordinal, member.mask_crc32) for member in self.members
        )
        runs, of_outputs = self.shares[0][0].runs if self.shares else (), iter(crc32s)
        return StoredRowMap(live, tuple(_share(share, tasks, of_outputs) for share, tasks in self.shares), runs)


def _share(share: PartitionShare, tasks: OutputTasks, crc32s: Iterator[int | None]) -> StoredRowShare:
    numbers = tuple(
        StoredNumbers(task.numbers_path, crc32)
        for task, crc32 in zip(tasks, crc32s, strict=False)
        if isinstance(task, ArrangeTask) and task.numbers_path is not None
    )
    return StoredRowShare(len(tasks), numbers, share.pieces)
