"""The present layout: the boxes of files, of row groups, and of sampled rows, whose values readers ask for.

files     240         a box each, from footers
groups    900         a box each
rows      20,000      of 32 files of the 4 largest partitions, as far from each other as possible
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from deltacompact.base.limits import LIMITS, READ_LIMITS
from deltacompact.base.settings import Options
from deltacompact.delta_streams.advising.looked_at import LookedAt, RangedFile
from deltacompact.layout.boxes import Boxes, boxes_of
from deltacompact.layout.prospect import PartitionSample, Prospect
from deltacompact.layout.row_look import RowLook
from deltacompact.layout.spread import spread
from deltacompact.layout.value_ranges import column_bounds, joined, with_rows
from deltacompact.planning import sizing
from deltacompact.storage.cold_classes import cold_among
from deltacompact.tabular import schemas
from deltacompact.tabular.files import Part, read_each
from deltacompact.tabular.row_groups import cells_of

PARTITIONS_SAMPLED, FILES_SAMPLED, ROWS_SAMPLED = 4, 32, 20_000
"""Roughly so many rows are sampled, from so many files, of so many partitions: the largest."""

Samples = Sequence[tuple[int, PartitionSample]]
"""(number of the partition, sampled rows)."""


def prospect_now(files: Sequence[RangedFile], columns: pa.Schema, samples: Samples = ()) -> Prospect:
    """The boxes of files, of row groups, and of rows."""
    groups = [(one.partition, group, ranges) for one in files for group, ranges in one.ranged_groups()]
    ranges = [*(joined(one.ranges) for one in files), *(known for *_, known in groups)]
    rows = pa.concat_tables([columns.empty_table(), *(one.sample for _, one in samples)])
    of_rows = [number for number, one in samples for _ in range(one.sample.num_rows)]
    partitions = [*(one.partition for one in files), *(number for number, *_ in groups), *of_rows]
    sizes = [*(one.file.live_rows for one in files), *(group.rows for _, group, _ in groups), *([1] * len(of_rows))]
    bounds = [with_rows(column_bounds(ranges, field.name, field.type), rows[field.name]) for field in columns]
    together = boxes_of(columns.names, bounds, np.array(partitions, np.int64), sizes)
    ends = [0, *accumulate((len(files), len(groups), len(of_rows)))]
    return Prospect(*(_between(together, *pair) for pair in pairwise(ends)))


def samples_of(
    looked: LookedAt, files: Sequence[RangedFile], columns: pa.Schema, options: Options
) -> list[tuple[int, PartitionSample]]:
    """Sampled rows of the largest partitions."""
    rows = np.bincount([one.partition for one in files], [one.file.live_rows for one in files])
    largest = np.argsort(-rows, kind="stable")[:PARTITIONS_SAMPLED].tolist()
    there = [one for one in files if one.partition in largest and one.file.rows]
    chosen = [there[place] for place in spread(len(there), FILES_SAMPLED).tolist()]
    store = looked.streams.store
    cold = cold_among(store, [one.file.path for one in chosen])  # archived files cannot be read
    opened = [one for one in chosen if one.file.path not in cold]
    step = max(1, sum(one.file.rows for one in opened) // ROWS_SAMPLED)
    looks = [RowLook.at(_group_rows(one), number, step) for number, one in enumerate(opened)]
    parts = [Part(one.file, columns.names, look.rows) for one, look in zip(opened, looks, strict=True)]
    tables: dict[int, list[pa.Table]] = {}
    for one, look, slices in zip(opened, looks, read_each(store, parts, READ_LIMITS), strict=True):
        partition = looked.partitions[one.partition]
        tables.setdefault(one.partition, []).extend(
            schemas.align(look.of(first, table), columns, partition, one.file.path) for first, table in slices
        )
    return [
        (number, _sample([one for one in files if one.partition == number], columns, found, options))
        for number, found in tables.items()
    ]


def cells_per_file(files: Sequence[RangedFile], samples: Samples, options: Options) -> int:
    """The cells in each file that clustering would write. A cell becomes a row group."""
    decoded = sum(one.file.decoded_bytes or 4 * one.file.bytes for one in files)
    rows = sum(one.file.rows for one in files)
    per_file = sum(one.rows for _, one in samples) / max(1, sum(one.files for _, one in samples))
    return cells_of(per_file, decoded / max(1, rows), options.row_group_rows)


def _group_rows(one: RangedFile) -> list[int]:
    """The rows of each group of a file. With one group, those of the file: the group's number has only live rows."""
    return [group.rows for group in one.groups] if len(one.groups) > 1 else [one.file.rows]


def _sample(
    files: Sequence[RangedFile], columns: pa.Schema, seen: Sequence[pa.Table], options: Options
) -> PartitionSample:
    """The sample of a partition. `files`: all its files; `seen`: the sampled rows."""
    rows, size = sum(one.file.live_rows for one in files), sum(one.file.bytes for one in files)
    rows_max, target = int(options.rows_per_compacted_file * sizing.FULL), sizing.target_file_bytes(size)
    return PartitionSample(
        pa.concat_tables([columns.empty_table(), *seen]),
        rows,
        sizing.output_files(rows, size, rows_max, target, LIMITS),
    )


def _between(boxes: Boxes, start: int, stop: int) -> Boxes:
    return boxes.take(np.arange(start, stop))
