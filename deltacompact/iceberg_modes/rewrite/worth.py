"""How much laying out files anew gains: core-seconds that reads save, for each core-second of work. Pure.

day 3     1 GB, a file meets 6 others by customer     a read by customer opens 6 files less: 0.6 s for 4 s of work
day 4     1 GB, they meet 1 other                     0.1 s for 4 s: later

A rewrite ranks partitions by `worth_of` where they are read unevenly. `watch` decides by `gain_of` when to compact a
table by the columns of its property: it has a condition for the depth of its files, and one for the gain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.laid_out import badly_laid
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import Worth
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import depth_of
from deltacompact.planning.expected import arranged_s
from deltacompact.planning.work import FIRST_RATES
from deltacompact.planning.worth import LayoutGain, gained_s, saved_s


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
        return sum(column.weight / weights * seconds for column, seconds in saved) / cost_s if cost_s else 0.0

    return worth


def gain_of(state: TableState) -> LayoutGain:
    """The gain for reads that ask for each row equally often. Raises InputError for columns that the table lacks."""
    options = rewrite_options({}, state.metadata.properties)
    if not options.cluster_by or not state.data:
        return LayoutGain()
    columns = [column.name for column in options.cluster_by]
    boxes = boxes_of_files(state.metadata, state.data, columns)
    depth, chosen = depth_of(boxes).mean, badly_laid(state, options).chosen
    if not chosen:
        return LayoutGain(depth)
    files = [entry.file for entry in state.data]
    saved = gained_s(boxes, [file.file_bytes for file in files], [file.path in chosen for file in files])
    anew = [file for file in files if file.path in chosen]
    cost_s = arranged_s(sum(file.rows for file in anew), sum(file.file_bytes for file in anew))
    return LayoutGain(depth, saved, FIRST_RATES["session"] + cost_s)
