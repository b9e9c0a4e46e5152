"""Compares what the log says of files that are laid out by columns with the rows of these files."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow.compute as pc

from deltacompact.base.data_file import DataFile
from deltacompact.layout.boxes import boxes_of
from deltacompact.layout.cluster_by import cluster_columns
from deltacompact.layout.overlap import overlapping
from deltacompact.layout.value_ranges import column_bounds, comparable, ranges_from
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.files import read


def assert_ranges_hold(store: ObjectStore, file: DataFile) -> None:
    """Every value of the file lies in the range of its column, in dead rows too.

    Ranges are those of the types in the log: Parquet stores date64 as date32, whose days are no milliseconds.
    """
    if file.clustered is None:
        return
    known = ranges_from(file.clustered.ranges, file.schema, file.schema)
    for _, table in read(store, file, list(known)):
        for name, (low, high) in known.items():
            in_log = table[name].cast(file.schema.field(name).type)
            values = pc.drop_null(comparable(in_log)).to_pylist()
            assert all(value != value or low <= value <= high for value in values), (file.path, name, low, high)


def overlap(files: list[DataFile], by: str) -> np.ndarray:
    """The files whose ranges in the log overlap those of another file."""
    schema = files[0].schema
    ranges = [ranges_from(file.clustered.ranges, file.schema, schema) for file in files]
    names = [column.name for column in cluster_columns("by", by)]
    bounds = [column_bounds(ranges, name, schema.field(name).type) for name in names]
    return overlapping(boxes_of(names, bounds, np.zeros(len(files), np.int64), [file.rows for file in files]))


def pairs_that_meet(files: list[DataFile], by: str) -> int:
    """Count the pairs of files that overlap, by plain comparisons. A column of nulls overlaps no values."""
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
