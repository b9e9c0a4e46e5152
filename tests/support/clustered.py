"""What the log says of files that were laid out by columns, held against their rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow.compute as pc

from deltacompact.base.model import DataFile
from deltacompact.layout.boxes import boxes_of
from deltacompact.layout.cluster_by import cluster_columns
from deltacompact.layout.overlap import overlapping
from deltacompact.layout.value_ranges import column_bounds, comparable, ranges_from
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.files import read


def assert_ranges_hold(store: ObjectStore, file: DataFile) -> None:
    """Every value lies in the range of its column: all of a file, dead rows too."""
    if file.clustered is None:
        return
    known = ranges_from(file.clustered.ranges, file.schema, file.schema)
    for _, table in read(store, file, list(known)):
        for name, (low, high) in known.items():
            values = pc.drop_null(comparable(table[name])).to_pylist()
            assert all(value != value or low <= value <= high for value in values), (file.path, name, low, high)


def overlap(files: list[DataFile], by: str) -> np.ndarray:
    """The files that overlap others in the columns, by what the log says."""
    schema = files[0].schema
    ranges = [ranges_from(file.clustered.ranges, file.schema, schema) for file in files]
    names = [column.name for column in cluster_columns("by", by)]
    bounds = [column_bounds(ranges, name, schema.field(name).type) for name in names]
    return overlapping(boxes_of(names, bounds, np.zeros(len(files), np.int64), [file.rows for file in files]))


def pairs_that_meet(files: list[DataFile], by: str) -> int:
    """The same, told pair by pair, without the room of layouts. A column of nulls meets no values."""
    found, schema = 0, files[0].schema
    names = [column.name for column in cluster_columns("by", by)]
    for pair in combinations(files, 2):
        one, other = (ranges_from(file.clustered.ranges, file.schema, schema) for file in pair)
        meets, wide = True, False
        for name in names:
            if None in (*one[name], *other[name]):
                meets = meets and one[name] == other[name]
                continue
            begin, end = max(one[name][0], other[name][0]), min(one[name][1], other[name][1])
            meets, wide = meets and begin <= end, wide or begin < end
        found += meets and wide
    return found
