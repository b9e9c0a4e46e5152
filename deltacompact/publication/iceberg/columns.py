"""The types that an Iceberg table has for compacted rows. Pure.

    day=1    id int32, v string               id int32, v string
    day=2    id int64, n uint64               refused: Iceberg has no unsigned integers: column 'n'

Compacted files stay as they are and have no field ids: readers match columns by name. So the types must be those that
readers of Iceberg accept in a Parquet file, and not only types that could be converted.
"""

from __future__ import annotations

import datetime

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.wording import with_article
from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue
from deltacompact.publication.port import Value
from deltacompact.tabular import conversion, schemas

_UTC = ("UTC", "+00:00", "Etc/UTC", "Z")
_EPOCH = datetime.date(1970, 1, 1)


def shown_columns(schema: pa.Schema, where: str) -> pa.Schema:
    """The columns in the types that Iceberg has for them. Raises SchemaError naming the column that it has none for."""
    return pa.schema([(field.name, _shown(field.type, f"{where}: column {field.name!r}")) for field in schema])


def partition_tuple(values: tuple[Value, ...]) -> PartitionTuple:
    """The values of a partition as a manifest has them."""
    return tuple(map(_plain, values))


def _plain(value: Value) -> PartitionValue:
    return (value - _EPOCH).days if isinstance(value, datetime.date) else value


def _shown(type_: pa.DataType, what: str) -> pa.DataType:
    t = pa.types
    if t.is_dictionary(type_):
        return _shown(type_.value_type, what)
    if t.is_struct(type_) and type_.num_fields:
        return pa.struct([(field.name, _shown(field.type, f"{what}, {field.name!r}")) for field in type_])
    if t.is_map(type_):
        return pa.map_(_shown(type_.key_type, what), _shown(type_.item_type, what))
    if conversion.is_list(type_):
        return pa.list_(_shown(type_.value_type, what))
    shown = _shown_primitive(type_)
    if shown is None:
        raise SchemaError(f"{what} is {with_article(str(type_))}, {_why_not(type_)}")
    return shown


def _shown_primitive(type_: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if t.is_signed_integer(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    if t.is_timestamp(type_):
        fits = type_.unit != "ns" and (type_.tz is None or type_.tz in _UTC)
        return pa.timestamp("us", None if type_.tz is None else "UTC") if fits else None
    if schemas.is_string(type_):
        return pa.string()
    if t.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 and type_.scale >= 0 else None
    if schemas.is_binary(type_):
        return type_ if t.is_fixed_size_binary(type_) else pa.binary()
    same = t.is_boolean(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_date32(type_)
    return type_ if same or type_ == pa.time64("us") else None


def _why_not(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_null(type_):
        return "because no row has had a value in it yet: Iceberg needs a type"
    if t.is_unsigned_integer(type_):
        return "and Iceberg has no unsigned integers"
    if t.is_timestamp(type_) or t.is_time(type_):
        return "and Iceberg has microseconds, in UTC or without a zone"
    return "which Iceberg does not have"
