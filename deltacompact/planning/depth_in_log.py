"""How deep the compacted files of a partition lie, by what the log knows of them: pure, for those who watch a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from deltacompact.base.model import DataFile
from deltacompact.layout.depth import depth_of
from deltacompact.planning.overlapping import boxes_in_log, columns_of, overlapping_files


def depth_in_log(files: Sequence[DataFile], cluster_by: str, schema: pa.Schema) -> float:
    """How many compacted files hold a value, on average. 0: all may stay as they lie."""
    if not columns_of(cluster_by, schema) or not overlapping_files(files, cluster_by, schema).any():
        return 0.0
    return depth_of(boxes_in_log(files, cluster_by, schema)).mean
