"""Task: grows a split tree from samples of the live rows that a session writes (sample.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.growing import grow
from deltacompact.layout.split_tree import SplitTree
from deltacompact.steps.sample import RowSample


@dataclass(frozen=True, slots=True)
class TreeTask:
    """Grows a tree that divides rows into `files` files by these columns."""

    columns: Sequence[ClusterColumn]
    files: int
    cells_per_file: int


@dataclass(frozen=True, slots=True)
class GrownTree:
    """The tree, and the codec of the first sampled Parquet file that has one."""

    tree: SplitTree
    codec: str | None


def plant(task: TreeTask, *samples: RowSample) -> GrownTree:
    """Grow the tree."""
    rows = pa.concat_tables([sample.rows for sample in samples])
    sizes = np.concatenate([sample.sizes for sample in samples])
    tree = grow(rows, task.columns, sizes, max(1, min(task.files, rows.num_rows)), task.cells_per_file)
    return GrownTree(tree, next((sample.codec for sample in samples if sample.codec is not None), None))
