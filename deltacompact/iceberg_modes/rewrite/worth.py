"""How much laying out files of a partition anew gains: core-seconds that reads save, for each core-second of work.

    day 3     1 GB, a file meets 6 others by customer     a read by customer opens 6 files less: 0.6 s for 4 s of work
    day 4     1 GB, they meet 1 other                     0.1 s for 4 s: later
    branch    both are written anew in 8 s                100 reads of one of the days save 35 s: worth 4.4

A read waits for each file that it opens, and decodes the rows that it reads. Reads ask for one column at a time, and
for each column as often as its share of the heat says. Nothing can be gained where each file meets only as many others
as in a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.expected import arranged_s
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.overlap import meetings
from deltacompact.planning.work import FIRST_RATES

FILE_S = 0.09
"""Seconds that a reader waits for each file that it opens: three round trips of 30 ms."""

Worth = Callable[[Sequence[ManifestEntry]], float]


def read_s(files: float, bytes_: float) -> float:
    """Core-seconds of a read that opens so many files, and decodes so many bytes."""
    return files * FILE_S + bytes_ * FIRST_RATES["base_byte"]


def worth_of(state: TableState, by: Sequence[ClusterColumn]) -> Worth:
    """A function: how many core-seconds reads save for each core-second of laying out these files of one partition."""
    boxes = boxes_of_files(state.metadata, state.data, [column.name for column in by])
    weights = sum(column.weight for column in by)
    places = {entry.file.path: place for place, entry in enumerate(state.data)}

    def worth(files: Sequence[ManifestEntry]) -> float:
        own = boxes.take(np.array([places[entry.file.path] for entry in files], np.int64))
        sizes = [entry.file.file_bytes for entry in files]
        cost_s = arranged_s(sum(entry.file.rows for entry in files), sum(sizes))
        saved = zip(by, saved_s(own, float(np.mean(sizes))), strict=True)
        return sum(column.weight / weights * one for column, one in saved) / cost_s if cost_s else 0.0

    return worth


def saved_s(boxes: Boxes, file_bytes: float) -> list[float]:
    """How many core-seconds a read by each column would save if the partition's files lay as in a grid."""
    in_grid = boxes.files ** (1 - 1 / max(1, len(boxes.columns)))
    met = [meetings(*ranges) / boxes.files - in_grid for ranges in zip(boxes.low, boxes.high, strict=True)]
    return [read_s(max(0.0, one), max(0.0, one) * file_bytes) for one in met]
