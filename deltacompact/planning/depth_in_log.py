"""The depth of compacted files, by the value ranges in the log: pure. `watch` and `show` use it.

watch    partition day 3    2.4        0: a session would lay no file out anew
show     table orders       customer 2.1, amount 3.0, together 1.4
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.layout.depth import depth_of, mean_depths
from deltacompact.planning.expected import arranged_s
from deltacompact.planning.overlapping import boxes_in_log, columns_of, overlapping_files
from deltacompact.planning.work import FIRST_RATES
from deltacompact.planning.worth import LayoutGain, gained_s
from deltacompact.tabular import schemas


def gain_in_log(files: Sequence[DataFile], cluster_by: str, schema: pa.Schema) -> LayoutGain:
    """What a session would gain by laying compacted files out by these columns. Depth 0: no file needs it.

    A read asks for each row of the partition with the same chance.
    """
    if not columns_of(cluster_by, schema):
        return LayoutGain()
    chosen = overlapping_files(files, cluster_by, schema).chosen.tolist()
    anew = [file for file, is_chosen in zip(files, chosen, strict=True) if is_chosen]
    if not anew:
        return LayoutGain()
    boxes = boxes_in_log(files, cluster_by, schema)
    cost_s = arranged_s(sum(file.rows for file in anew), sum(file.bytes for file in anew))
    saved = gained_s(boxes, [file.bytes for file in files], chosen)
    return LayoutGain(depth_of(boxes).mean, saved, FIRST_RATES["session"] + cost_s)


def depths_in_log(partitions: Sequence[Sequence[DataFile]], cluster_by: str) -> dict[str, float]:
    """How many compacted files of a partition hold a value, on average: by column; for several, also "together".

    Empty if no file has such a column, or if its types in the partitions do not fit together.
    """
    files = [file for of_partition in partitions for file in of_partition]
    try:
        schema = schemas.union(files)
    except SchemaError:
        return {}
    if not columns_of(cluster_by, schema):
        return {}
    of_files = np.repeat(np.arange(len(partitions)), [len(of_partition) for of_partition in partitions])
    return mean_depths(boxes_in_log(files, cluster_by, schema, of_files))
