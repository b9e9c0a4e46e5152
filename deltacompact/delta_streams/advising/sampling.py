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
from deltacompact.delta_streams.advising.examined_files import ExaminedFiles, RangedFile
from deltacompact.layout.boxes import Boxes, boxes_of
from deltacompact.layout.prospect import PartitionSample, Prospect
from deltacompact.layout.row_look import RowLook
from deltacompact.layout.spread import spread
from deltacompact.layout.value_ranges import column_bounds, joined, with_rows
from deltacompact.planning.sizing import file_sizes
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
    groups = [(ranged.partition, group, ranges) for ranged in files for group, ranges in ranged.ranged_groups()]
    ranges = [*(joined(ranged.ranges) for ranged in files), *(known for *_, known in groups)]
    rows = pa.concat_tables([columns.empty_table(), *(sampled.sample for _, sampled in samples)])
    of_rows = [number for number, sampled in samples for _ in range(sampled.sample.num_rows)]
    partitions = [*(ranged.partition for ranged in files), *(number for number, *_ in groups), *of_rows]
    sizes = [
        *(ranged.file.live_rows for ranged in files),
        *(group.rows for _, group, _ in groups),
        *([1] * len(of_rows)),
    ]
    bounds = [with_rows(column_bounds(ranges, field.name, field.type), rows[field.name]) for field in columns]
    together = boxes_of(columns.names, bounds, np.array(partitions, np.int64), sizes)
    ends = [0, *accumulate((len(files), len(groups), len(of_rows)))]
    return Prospect(*(_between(together, *pair) for pair in pairwise(ends)))


def samples_of(
    examined: ExaminedFiles, files: Sequence[RangedFile], columns: pa.Schema, options: Options
) -> list[tuple[int, PartitionSample]]:
    """Sampled rows of the largest partitions."""
    rows = np.bincount([ranged.partition for ranged in files], [ranged.file.live_rows for ranged in files])
    largest = np.argsort(-rows, kind="stable")[:PARTITIONS_SAMPLED].tolist()
    there = [ranged for ranged in files if ranged.partition in largest and ranged.file.rows]
    chosen = [there[place] for place in spread(len(there), FILES_SAMPLED).tolist()]
    store = examined.streams.store
    cold = cold_among(store, [ranged.file.path for ranged in chosen])  # archived files cannot be read
    opened = [ranged for ranged in chosen if ranged.file.path not in cold]
    step = max(1, sum(ranged.file.rows for ranged in opened) // ROWS_SAMPLED)
    looks = [RowLook.at(_group_rows(ranged), number, step) for number, ranged in enumerate(opened)]
    parts = [Part(ranged.file, columns.names, look.rows) for ranged, look in zip(opened, looks, strict=True)]
    tables: dict[int, list[pa.Table]] = {}
    for ranged, look, slices in zip(opened, looks, read_each(store, parts, READ_LIMITS), strict=True):
        partition = examined.partitions[ranged.partition]
        tables.setdefault(ranged.partition, []).extend(
            schemas.align(look.of(first, table), columns, partition, ranged.file.path) for first, table in slices
        )
    return [
        (number, _sample([ranged for ranged in files if ranged.partition == number], columns, rows, options))
        for number, rows in tables.items()
    ]


def cells_per_file(files: Sequence[RangedFile], samples: Samples, options: Options) -> int:
    """The cells in each file that clustering would write. A cell becomes a row group."""
    decoded = sum(ranged.file.likely_decoded_bytes for ranged in files)
    rows = sum(ranged.file.rows for ranged in files)
    per_file = sum(sampled.rows for _, sampled in samples) / max(1, sum(sampled.files for _, sampled in samples))
    return cells_of(per_file, decoded / max(1, rows), options.row_group_rows)


def _group_rows(ranged: RangedFile) -> list[int]:
    """The rows of each group of a file. With one group, those of the file: the group's number has only live rows."""
    return [group.rows for group in ranged.groups] if len(ranged.groups) > 1 else [ranged.file.rows]


def _sample(
    files: Sequence[RangedFile], columns: pa.Schema, seen: Sequence[pa.Table], options: Options
) -> PartitionSample:
    """The sample of a partition. `files`: all its files; `seen`: the sampled rows."""
    rows, size = sum(ranged.file.live_rows for ranged in files), sum(ranged.file.bytes for ranged in files)
    rows_max, target = int(options.rows_per_compacted_file * file_sizes.FULL), file_sizes.target_file_bytes(size)
    return PartitionSample(
        pa.concat_tables([columns.empty_table(), *seen]),
        rows,
        file_sizes.output_files(rows, size, rows_max, target, LIMITS),
    )


def _between(boxes: Boxes, start: int, stop: int) -> Boxes:
    return boxes.take(np.arange(start, stop))
