"""Values that PostgreSQL did not say: Debezium writes a placeholder for a large value that did not change.

    name     __debezium_unavailable_value                        refused: an upsert replaces the whole row
    tags     [__debezium_unavailable_value]                      the same in lists, maps and structs
    photo    the same bytes, or their text in base64 or in hex, as `binary.handling.mode` has them
    counts   the same bytes as a list of numbers, for int[] and bigint[]
    ids      a list of one UUID, which is made of these bytes

Each column is looked at once, at every depth.
"""

from __future__ import annotations

import base64
import hashlib
import uuid

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.change_events.events import Indices, Origin
from deltacompact.tabular import column_types
from deltacompact.tabular.conversion import is_list

PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = PLACEHOLDER.encode()
_UUID = uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3)
_SPELLINGS = pa.array(
    [_BYTES, base64.b64encode(_BYTES), _BYTES.hex().encode(), str(_UUID).encode(), _UUID.bytes], pa.large_binary()
)
"""A UUID stands in lists alone; no other value is that one."""


def check_available(rows: pa.Table, origin: Origin) -> None:
    """Raises InputError naming the row and column that has the placeholder, whole or inside of its value."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _may_have_it(column.type) and (row := _first(column)) is not None:
            raise InputError(
                f"{origin.row(row)}: column {name!r} is {PLACEHOLDER}: PostgreSQL did not say its value, and an upsert "
                "replaces the whole row: set REPLICA IDENTITY FULL on the source table"
            )


def _first(column: pa.ChunkedArray) -> int | None:
    before = 0
    for chunk in column.chunks:
        if len(found := _rows_with_it(chunk)):
            return before + int(found.min())
        before += len(chunk)
    return None


def _may_have_it(type_: pa.DataType) -> bool:
    if column_types.is_string(type_) or column_types.is_binary(type_):
        return True
    if pa.types.is_dictionary(type_):
        return _may_have_it(type_.value_type)
    if is_list(type_) and column_types.is_number(type_.value_type):
        return True
    return any(_may_have_it(type_.field(number).type) for number in range(type_.num_fields))


def _rows_with_it(column: pa.Array) -> Indices:
    """The places of the values that are the placeholder, or have it inside."""
    type_ = column.type
    if column_types.is_string(type_) or column_types.is_binary(type_):
        return np.flatnonzero(np.asarray(pc.is_in(column.cast(pa.large_binary()), value_set=_SPELLINGS)))
    if pa.types.is_dictionary(type_):
        return _rows_with_it(column.dictionary_decode())
    if pa.types.is_map(type_):  # as a list of its entries: Arrow's list functions end the process for maps
        return _rows_with_it(column.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))))
    if is_list(type_) and column_types.is_number(type_.value_type):
        rows = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(pc.list_value_length(column), len(_BYTES)), False)))
        numbers = pc.list_flatten(column.take(pa.array(rows))).cast(pa.float64(), safe=False).to_numpy(False)
        found: Indices = rows[(numbers.reshape(-1, len(_BYTES)) == list(_BYTES)).all(axis=1)]
        return found
    if is_list(type_):
        parents = np.asarray(pc.list_parent_indices(column))
        return parents[_rows_with_it(pc.list_flatten(column))]
    if pa.types.is_struct(type_):
        return np.concatenate([np.zeros(0, np.int64), *map(_rows_with_it, column.flatten())])
    return np.zeros(0, np.int64)
