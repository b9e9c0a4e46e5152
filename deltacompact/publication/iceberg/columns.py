"""What Iceberg needs besides types: keys of maps that can hold wider ones later, and values of partitions. Pure.

    map<int32, string>                        map<int64, string>, unless the table has the column already
    day=2026-11-22 (date)                     20779 in manifests

Compacted files have no field ids: readers match columns by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection

import pyarrow as pa

from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue
from deltacompact.publication.port import Value
from deltacompact.tabular.coarse_times import is_coarse
from deltacompact.tabular.far_values import leaves

_EPOCH = datetime.date(1970, 1, 1)


def has_coarse_times(stored: pa.Schema) -> bool:
    """Whether Parquet files of these columns have timestamps in milliseconds, as they have seconds, too."""
    return any(is_coarse(type_) for _, type_ in leaves(stored))


def with_widest_keys(columns: pa.Schema, known: Collection[str]) -> pa.Schema:
    """The columns with the widest types for the keys of maps, but for `known` columns, which the table has already.

    Readers of Iceberg take narrower keys in files, but nobody can give a table wider ones later.
    """
    return pa.schema(
        [field if field.name in known else field.with_type(_with_widest_keys(field.type)) for field in columns]
    )


def _with_widest_keys(type_: pa.DataType, is_key: bool = False) -> pa.DataType:
    t = pa.types
    if t.is_struct(type_):
        return pa.struct([field.with_type(_with_widest_keys(field.type, is_key)) for field in type_])
    if t.is_map(type_):
        return pa.map_(_with_widest_keys(type_.key_type, True), _with_widest_keys(type_.item_type, is_key))
    if t.is_list(type_):
        return pa.list_(_with_widest_keys(type_.value_type, is_key))
    if is_key and t.is_integer(type_):
        return pa.int64()
    if is_key and t.is_floating(type_):
        return pa.float64()
    return pa.decimal128(38, type_.scale) if is_key and t.is_decimal(type_) else type_


def partition_tuple(values: tuple[Value, ...]) -> PartitionTuple:
    """The values of a partition as a manifest has them."""
    return tuple(map(_plain, values))


def _plain(value: Value) -> PartitionValue:
    return (value - _EPOCH).days if isinstance(value, datetime.date) else value
