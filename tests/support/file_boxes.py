"""Boxes of files, made by hand. Each range of a column is (low, high), None for unknown, NULLS or NANS."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from deltacompact.layout.boxes import Boxes, ColumnBounds, boxes_of, numbered

NULLS, NANS = "nulls", "nans"


def boxes_by_hand(columns, partitions=None, rows=None, types=None) -> Boxes:
    """Boxes of files with these ranges of each column. By default all files are in one partition and have one row."""
    files = len(columns[0])
    bounds = []
    for ranges, type_ in zip(columns, types or [pa.int64()] * len(columns), strict=True):
        pairs = [(None, None) if isinstance(range_, str) else range_ for range_ in ranges]
        low, high = (pa.array([pair[side] for pair in pairs], type_) for side in (0, 1))
        alike = [np.array([range_ == what for range_ in ranges], bool) for what in (NULLS, NANS)]
        bounds.append(ColumnBounds(low, high, *alike))
    names = [f"c{place}" for place in range(len(bounds))]
    return boxes_of(names, bounds, numbered(partitions or ["a"] * files), rows or [1] * files)
