"""Damages rows with the columns id and v as a fault of memory or of a disk does. Each fault must be found.

flipped      a value changed              1 a, 2 b, 3 c -> 1 A, 2 b, 3 c
exchanged    two keys swapped values      1 a, 2 b, 3 c -> 1 b, 2 a, 3 c
replaced     a row became a copy of another
                                          1 a, 2 b, 3 c -> 1 a, 1 a, 3 c
twice        a row came twice             1 a, 2 b, 3 c -> 1 a, 1 a, 2 b, 3 c
lost         a row is gone                1 a, 2 b, 3 c -> 1 a, 2 b
"""

from __future__ import annotations

import pyarrow as pa


def flipped(table: pa.Table) -> pa.Table:
    return _with(table, ["A", *table["v"].to_pylist()[1:]])


def exchanged(table: pa.Table) -> pa.Table:
    first, second, *others = table["v"].to_pylist()
    return _with(table, [second, first, *others])


def replaced(table: pa.Table) -> pa.Table:
    return table.take(pa.array([0, 0, *range(2, table.num_rows)]))


def twice(table: pa.Table) -> pa.Table:
    return table.take(pa.array([0, *range(table.num_rows)]))


def lost(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows - 1)


FAULTS = (flipped, exchanged, replaced, twice, lost)


def _with(table: pa.Table, values: list[str | None]) -> pa.Table:
    place = table.column_names.index("v")
    field = table.schema.field(place)
    return table.set_column(place, field, pa.array(values, field.type))
