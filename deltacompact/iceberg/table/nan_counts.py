"""Counts NaN in the columns of a Parquet file. Footers have counts of nulls, but none of NaN.

    d              1.0 · NaN · null            1
    s.x            {x: NaN} · null             1      a field of a struct
    m (values)     {a: NaN, b: NaN} · {}       2      any leaf, by its own field id

Each column is read by itself and in batches, so memory stays small however many columns there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import ReadLimits
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, parquet_read

_VALUE_BYTES = 8


def nan_counts(store: ObjectStore, file: DataFile, columns: Mapping[str, int], limits: ReadLimits) -> dict[int, int]:
    """The number of NaN in each column, by field id. `columns`: field ids by path. Missing columns are left out."""
    if not columns:
        return {}
    with files.opened(store, file) as source:
        footer = files.described_parquet(source, file).metadata
        reader = pq.ParquetFile(source, metadata=footer, pre_buffer=not parquet_read.is_near(source))
        places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
        return {
            number: sum(_count(values) for values in _leaves(reader, places[path], limits))
            for path, number in columns.items()
            if path in places
        }


def _leaves(reader: pq.ParquetFile, place: int, limits: ReadLimits) -> Iterator[pa.Array]:
    """The values of one leaf column, without the lists and structs around them."""
    for number in range(reader.metadata.num_row_groups):
        group = reader.metadata.row_group(number)
        values = max(1, group.column(place).num_values)
        rows = max(1, min(limits.batch_rows_max, group.num_rows * limits.batch_bytes // (values * _VALUE_BYTES)))
        for batch in reader.reader.iter_batches(rows, [number], column_indices=[place]):
            yield _leaf(batch.column(0))


def _leaf(array: Any) -> pa.Array:
    while pa.types.is_nested(array.type):
        array = array.flatten()[0] if pa.types.is_struct(array.type) else array.flatten()
    return array


def _count(values: pa.Array) -> int:
    return pc.sum(pc.is_nan(values)).as_py() or 0 if pa.types.is_floating(values.type) else 0
