"""What a layout by the columns of the table's property would gain: computed from manifests alone. Pure.

    cluster-by   day,customer     depth 6.2      files that hold a day and a customer
    day 3        6 of 8 files overlap            a read by customer takes 0.6 s less, one by day 0.1 s
    cost         8 core-seconds                  heat: 100 reads by customer -> 60 s saved, 7.5 times what it costs

`watch` decides by it when to compact: it has a condition for the depth, and one for the gain.
"""

from __future__ import annotations

from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.laid_out import badly_laid
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.layout.depth import depth_of
from deltacompact.planning.expected import arranged_s
from deltacompact.planning.work import FIRST_RATES
from deltacompact.planning.worth import LayoutGain, gained_s


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
