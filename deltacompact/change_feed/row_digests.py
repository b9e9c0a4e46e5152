"""Digests of whole rows: equal rows have equal digests. Values are compared by type and bits, at any depth.

{id: 5, tags: ["a", "b"]}     the digest of 5 and of the concatenated digests of "a" and "b"
0.0 and -0.0 differ, every NaN is the same, null equals null, [] is not null

Columns at the top level are digested like keys of deletes (SHA-1). Lists, maps and structs become bytes first: the
digests of their parts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.iceberg.deletes.delete_keys import as_arrow, digests
from deltacompact.tabular.column_types import plain_type
from deltacompact.tabular.schemas import plain

Digests = npt.NDArray[np.uint8]
"""(rows, 20)"""


def row_digests(table: pa.Table, path: str) -> Digests:
    """The digest of each row: (rows, 20). Raises SchemaError naming the file for a type without values."""
    if not table.num_columns:
        return np.zeros((table.num_rows, 20), np.uint8)
    columns = [_flat(column, path) for column in table.columns]
    flat = pa.Table.from_arrays(columns, names=[str(number) for number in range(len(columns))])
    return digests(flat, flat.schema, path)


def _flat(column: pa.ChunkedArray, path: str) -> pa.ChunkedArray:
    """A nested column as bytes; others as they are."""
    values = plain(column)
    if pa.types.is_nested(values.type):
        return pa.chunked_array([_bytes(chunk, path) for chunk in values.chunks], pa.large_binary())
    if pa.types.is_null(values.type):
        return pa.chunked_array([pa.nulls(len(values), pa.bool_())])
    return values


def _bytes(array: pa.Array, path: str) -> pa.Array:
    t = pa.types
    if t.is_struct(array.type):
        parts = array.flatten()
        names = [str(number) for number in range(len(parts))]
        found = row_digests(pa.Table.from_arrays(parts, names=names), path)
        return pc.if_else(array.is_valid(), as_arrow(found).cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))
    if t.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([("0", array.type.key_type), ("1", array.type.item_type)])))
    if t.is_fixed_size_list(array.type):
        array = array.cast(pa.large_list(array.type.value_type))
    items = array.flatten()  # without those that lie under nulls
    found = row_digests(pa.table({"0": items}), path)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]) * found.shape[1]
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(found).reshape(-1))]
    joined = pa.Array.from_buffers(pa.large_binary(), len(array), buffers)
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.large_binary()))


def digestible(type_: pa.DataType) -> bool:
    """Whether a column may be part of a key."""
    return not pa.types.is_nested(plain_type(type_))
