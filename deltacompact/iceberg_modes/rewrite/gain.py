"""What a run would gain that lays a branch out by the columns of its property: from manifests alone, and pure.

    cluster-by   day,customer     depth 6.2      files that hold a day and a customer
    day 3        6 of 8 files overlap            a read by customer takes 0.6 s less, one by day 0.1 s
    cost         8 core-seconds                  heat: 100 reads by customer -> 60 s saved, 7.5 times what it costs

Who decides when to compact looks at this: `watch` has a condition for the depth, and one for the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.expected import arranged_s
from deltacompact.iceberg_modes.rewrite.laid_out import badly_laid
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.worth import saved_s
from deltacompact.layout.depth import depth_of
from deltacompact.planning.work import FIRST_RATES


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """How a branch lies, and what laying it out would bring and cost.

    depth      how many files hold a value of the columns, on average; 0: no columns are named, or there is no file
    saved_s    by column, core-seconds that a read by it takes less; files that a run would leave count for none
    cost_s     core-seconds of the run
    """

    depth: float = 0.0
    saved_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    cost_s: float = 0.0

    def by_heat(self, heat: Mapping[str, float]) -> float:
        """What the reads of a heat would save, as a multiple of what clustering costs."""
        saved = sum(heat.get(name, 0.0) * one for name, one in self.saved_s.items())
        return saved / self.cost_s if self.cost_s else 0.0


def gain_of(state: TableState) -> LayoutGain:
    """Of a read, all rows have the same chance to be asked for. Raises InputError for columns that the table lacks."""
    options = rewrite_options({}, state.metadata.properties)
    if not options.cluster_by or not state.data:
        return LayoutGain()
    columns = [column.name for column in options.cluster_by]
    boxes = boxes_of_files(state.metadata, state.data, columns)
    depth, chosen = depth_of(boxes).mean, badly_laid(state, options).chosen
    if not chosen:
        return LayoutGain(depth)
    files = [entry.file for entry in state.data]
    sizes = np.array([file.file_bytes for file in files], np.int64)
    is_chosen = np.array([file.path in chosen for file in files], bool)
    saved = np.zeros(len(columns))
    for partition in np.unique(boxes.partitions[is_chosen]).tolist():
        own = np.flatnonzero(boxes.partitions == partition)
        share = boxes.rows[own].sum() / max(1, boxes.rows.sum())
        saved += share * np.array(saved_s(boxes.take(own), float(sizes[own].mean())))
    cost_s = FIRST_RATES["session"] + arranged_s(int(boxes.rows[is_chosen].sum()), int(sizes[is_chosen].sum()))
    return LayoutGain(depth, dict(zip(columns, saved.tolist(), strict=True)), cost_s)
