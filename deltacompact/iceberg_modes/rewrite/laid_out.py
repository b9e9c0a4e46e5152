"""Which data files of a branch are laid out anew, because they overlap in the columns to cluster by: pure.

    snapshot 5     append              a: day 1 to 9
    snapshot 6     append              b: day 1 to 9           a and b overlap, and are of healthy size: both are chosen
    snapshot 7     ours, by day        c: day 1 to 4           d: day 5 to 9
    snapshot 8     append              e: day 8 to 9           e and d overlap; d waits until as much has come

Ages are those of snapshots that added the files. The summary of ours says by which columns we clustered, so what one of
them wrote is not asked again whether it could lie better. Where that snapshot has been expired, it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.content_files import Entry
from deltacompact.iceberg.table.metadata import SESSION, Snapshot
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.options import CLUSTER_PROPERTY, RewriteOptions
from deltacompact.layout.boxes import Boxes, Ranks
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.overlap import Chosen, to_lay_out


def summary_of(by: Sequence[ClusterColumn]) -> dict[str, str]:
    """What the summary of a snapshot says of its files; nothing, if rows kept their order."""
    return {CLUSTER_PROPERTY: ",".join(map(str, by))} if by else {}


def badly_laid(state: TableState, options: RewriteOptions) -> frozenset[str]:
    """The paths of the files to lay out anew. Raises InputError naming a column that has no order, or is unknown."""
    if not options.cluster_by or options.rewrite_all:
        return frozenset()
    boxes = boxes_of_files(state.metadata, state.data, [column.name for column in options.cluster_by])
    chosen = overlapping_in(state, boxes, options.cluster_by, options.write_amplification_max or math.inf)
    return frozenset(state.data[place].file.path for place in np.flatnonzero(chosen).tolist())


def overlapping_in(
    state: TableState, boxes: Boxes, by: Sequence[ClusterColumn], amplification_max: float = math.inf
) -> Chosen:
    """Of each data file, whether it is laid out anew."""
    sizes = np.array([entry.file.file_bytes for entry in state.data], np.int64)
    return to_lay_out(boxes, sizes, _ages(state), _laid_out(state, by), amplification_max)


def _laid_out(state: TableState, by: Sequence[ClusterColumn]) -> Chosen:
    """Which files a snapshot of ours wrote that clustered by the same columns with the same weights."""
    wanted = summary_of(by).items()
    ours = {number for number, one in state.metadata.snapshots.items() if one.is_ours and wanted <= one.summary.items()}
    return np.array([entry.snapshot_id in ours for entry in state.data], bool)


def _ages(state: TableState) -> Ranks:
    """Of each file, a number for the snapshot that added it, greater for later ones. Version 1 has no other order.

    All snapshots of a session of ours are one.
    """
    known = state.metadata.snapshots
    last = {one.summary[SESSION]: one for _, one in sorted(known.items(), key=_order) if one.is_ours}

    def age(entry: Entry) -> tuple[int, int, int]:
        snapshot = known.get(entry.snapshot_id or 0)
        if snapshot is None:
            return entry.file_sequence_number or 0, 0, entry.snapshot_id or 0
        snapshot = last.get(snapshot.summary.get(SESSION, ""), snapshot)
        return snapshot.sequence_number, snapshot.timestamp_ms, snapshot.snapshot_id

    ages = [age(entry) for entry in state.data]
    number = {one: place for place, one in enumerate(sorted(set(ages)))}
    return np.array([number[one] for one in ages], np.int64)


def _order(numbered: tuple[int, Snapshot]) -> tuple[int, int]:
    return numbered[1].sequence_number, numbered[1].timestamp_ms
