"""The columns of an Iceberg table that shows compacted rows. Pure.

    day=1    id int32, v string               id int32, v string
    day=2    id int64, n uint64               refused: Iceberg has no unsigned integers: column 'n'
    day=3    id int64, w dictionary<string>   id int64, v string, w string, day string

Compacted files stay as they are and have no field ids: readers match columns by name. So the types must be those that
readers of Iceberg accept in a Parquet file, and not only types that could be converted.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

import pyarrow as pa

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import Partition
from deltacompact.base.wording import with_article
from deltacompact.iceberg.table.content_files import PartitionTuple, PartitionValue
from deltacompact.tabular import conversion, schemas

_UTC = ("UTC", "+00:00", "Etc/UTC", "Z")
_EPOCH = datetime.date(1970, 1, 1)


def shown_columns(schema: pa.Schema, where: str) -> pa.Schema:
    """The columns in the types that Iceberg has for them. Raises SchemaError naming the column that it has none for."""
    return pa.schema([(field.name, _shown(field.type, f"{where}: column {field.name!r}")) for field in schema])


def joined(parts: Iterable[pa.Schema], where: str) -> pa.Schema:
    """The union of shown columns by name. Raises SchemaError where two types do not fit."""
    types: dict[str, pa.DataType] = {}
    for part in parts:
        for field in part:
            known = types.get(field.name, field.type)
            wider = schemas.widened(known, field.type)
            if wider is None:
                raise SchemaError(f"{where}: column {field.name!r} is {field.type}, which does not fit {known}")
            types[field.name] = wider
    return pa.schema(list(types.items()))


def with_partition_keys(columns: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """The columns, and a text column for each partition key that no file has."""
    return pa.schema([*columns, *(pa.field(name, pa.string()) for name in keys if name not in columns.names)])


def check_partition_keys(columns: pa.Schema, keys: Sequence[str]) -> None:
    """Raise SchemaError for a partition key whose type is not one that partitions are made of."""
    for name in keys:
        if not _makes_partitions(columns.field(name).type):
            raise SchemaError(
                f"partition key {name!r} is {with_article(str(columns.field(name).type))} in the files: tables that "
                "are published are partitioned by texts, whole numbers, dates and booleans"
            )


def refuse_widened(before: pa.Schema, after: pa.Schema, keys: Sequence[str]) -> None:
    """Raise SchemaError for a partition key that would become wider: readers of Iceberg fail on its old partitions."""
    for name in keys:
        was, would_be = (with_article(str(columns.field(name).type)) for columns in (before, after))
        if was != would_be:
            raise SchemaError(f"partition key {name!r} is {was} in the Iceberg table, and would become {would_be}")


def partition_tuple(partition: Partition, columns: pa.Schema) -> PartitionTuple:
    """The partition's values as a manifest has them. Raises SchemaError for one that does not fit its column."""
    return tuple(_plain(schemas.partition_scalar(text, columns.field(name))) for name, text in partition.values)


def _plain(scalar: pa.Scalar) -> PartitionValue:
    value = scalar.as_py()
    return (value - _EPOCH).days if isinstance(value, datetime.date) else value


def _makes_partitions(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(type_) or t.is_signed_integer(type_) or t.is_date32(type_) or t.is_boolean(type_))


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


def refuse_required(columns: pa.Schema, table_id: str) -> None:
    """Raise InputError for an Iceberg table with a column that must not be null: rows here may have null in it."""
    for field in columns:
        if not field.nullable:
            raise InputError(
                f"Iceberg table {table_id!r}: column {field.name!r} is required, rows here may have no value"
            )
