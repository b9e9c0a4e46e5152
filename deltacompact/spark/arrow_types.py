"""Arrow types where Spark has none of the same kind, and Arrow types as Spark writes them.

    uint32 -> int64      uint64 -> decimal(20, 0)      float16 -> float      dictionary<string> -> string
    timestamp[ns] -> timestamp[us], the rest cut off   fixed_size_binary(4) -> binary      null -> null
    list<item: string not null> (Spark writes it) -> list<item: string>

Nested types follow their items.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from deltacompact.base.errors import InputError

DECIMAL_PRECISION_MAX = 38
_WIDER_INTEGER = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20)}


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark can hold. Raises InputError naming the column that it cannot."""
    return pa.schema([pa.field(field.name, _named(field, spark_arrow_type)) for field in schema])


def spark_arrow_type(type_: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark takes for values of this one."""
    t = pa.types
    if t.is_dictionary(type_):
        return spark_arrow_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return spark_arrow_type(type_.storage_type)
    if t.is_unsigned_integer(type_):
        return _WIDER_INTEGER[type_.bit_width]
    if t.is_float16(type_):
        return pa.float32()
    if t.is_decimal(type_):
        if type_.precision > DECIMAL_PRECISION_MAX:
            raise InputError(f"{type_}: Spark's decimals have at most {DECIMAL_PRECISION_MAX} digits")
        return pa.decimal128(type_.precision, type_.scale)
    if t.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if t.is_duration(type_):
        return pa.duration("us")
    if t.is_date(type_):
        return pa.date32()
    if t.is_time(type_):
        return pa.time64("ns")
    if t.is_large_string(type_) or t.is_string_view(type_):
        return pa.string()
    if t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_):
        return pa.binary()
    return nested(type_, spark_arrow_type)


def written_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a written file: what Spark happens to know about nulls does not make it another type."""
    return pa.schema([pa.field(field.name, nested(field.type, _written_type)) for field in schema])


def _written_type(type_: pa.DataType) -> pa.DataType:
    return nested(type_, _written_type)


def nested(type_: pa.DataType, items: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Lists, structs and maps of items of other types, all nullable; any other type as it is."""
    t = pa.types
    lists = (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)
    if any(test(type_) for test in lists):
        return pa.list_(items(type_.value_type))
    if t.is_struct(type_):
        return pa.struct([(field.name, items(field.type)) for field in type_])
    if t.is_map(type_):
        return pa.map_(items(type_.key_type), items(type_.item_type))
    return type_


def _named(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    try:
        return change(field.type)
    except InputError as error:
        raise InputError(f"column {field.name!r}: {error}") from None
