"""Fills columns with values that are not in the file.

    a.parquet, rows 0‥2    _row_id    null · 17 · null    fill 100 + row number    ->  100 · 17 · 102
                           country    no such column      fill "de"                ->  "de" · "de" · "de"

Iceberg derives a row id from the row's position until the row moves. A column's initial default applies to files that
are older than the column. Fills are matched by field id, as columns are, because names change their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile, Fill
from deltacompact.tabular.field_ids import field_id, fills_of


def filled(table: pa.Table, file: DataFile, names: Sequence[str], first: int) -> pa.Table:
    """The columns `names`, filled. The table's first row is row `first` of the file."""
    if not file.fills:
        return table
    fill_of, has = fills_of(file), frozenset(table.column_names)
    columns = []
    for name in names:
        fill = fill_of.get(field_id(file.schema.field(name)))
        if fill is None:
            columns.append(table[name])
        elif name in has:
            columns.append(pc.coalesce(table[name], _values(fill, first, table.num_rows)))
        else:
            columns.append(pa.chunked_array([_values(fill, first, table.num_rows)], fill.column.type))
    return pa.Table.from_arrays(columns, names=list(names)) if columns else table


def _values(fill: Fill, first: int, rows: int) -> pa.Array:
    if fill.step == 0:
        return pa.repeat(fill.value, rows)
    start = fill.value.as_py() + first * fill.step
    return pa.array(np.arange(start, start + rows * fill.step, fill.step), fill.column.type)
