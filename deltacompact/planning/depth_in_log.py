"""How deep compacted files lie, by what the log knows of them: pure, for those who look at a table.

watch    partition day 3    2.4        0: a session would let all lie as they do
show     table orders       customer 2.1, amount 3.0, together 1.4
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import DataFile
from deltacompact.layout.depth import depth_of, mean_depths
from deltacompact.planning.overlapping import boxes_in_log, columns_of, overlapping_files
from deltacompact.tabular import schemas


def depth_in_log(files: Sequence[DataFile], cluster_by: str, schema: pa.Schema) -> float:
    """How many compacted files hold a value, on average. 0: all may stay as they lie."""
    if not columns_of(cluster_by, schema) or not overlapping_files(files, cluster_by, schema).any():
        return 0.0
    return depth_of(boxes_in_log(files, cluster_by, schema)).mean


def depths_in_log(partitions: Sequence[Sequence[DataFile]], cluster_by: str) -> dict[str, float]:
    """How many compacted files of their partition hold a value, on average: by column, and of several "together".

    Nothing where no file has such a column, or where partitions have types of it that do not fit together.
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
