"""How the validator compares the values of each Arrow type in Spark.

timestamp[us, tz], int32, string      the Spark type of the same kind; Spark's own Parquet reader may read it
timestamp[ns], time32, duration       a number that compares in the same way: the count of units
uint64, decimal256(60, 1)             decimal(20, 0), text
map<string, double>                   its entries, as maps cannot be compared with <=>
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as S
from pyspark.sql.pandas.types import from_arrow_type

from deltacompact.base.errors import InputError
from deltacompact.spark import arrow_types


def comparable_type(type_: pa.DataType) -> pa.DataType:
    """A type that Spark has, holds all values of this one, and orders them in the same way."""
    t = pa.types
    if t.is_dictionary(type_):
        return comparable_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return comparable_type(type_.storage_type)
    if t.is_uint64(type_):
        return pa.decimal128(20)
    if t.is_time32(type_):
        return pa.int32()
    if t.is_integer(type_) or t.is_time64(type_) or t.is_duration(type_):
        return pa.int64()
    if t.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None) if type_.unit in ("ms", "us") else pa.int64()
    if t.is_floating(type_):
        return pa.float64()
    if t.is_decimal(type_):
        fits = type_.precision <= arrow_types.DECIMAL_PRECISION_MAX
        return pa.decimal128(type_.precision, type_.scale) if fits else pa.string()
    if t.is_null(type_):
        return pa.string()
    if t.is_nested(type_):
        return arrow_types.nested(type_, comparable_type)
    return arrow_types.spark_arrow_type(type_)


def spark_struct(schema: pa.Schema) -> S.StructType:
    """A comparable schema as Spark's."""
    return S.StructType([S.StructField(field.name, spark_type(field.type)) for field in schema])


def spark_type(type_: pa.DataType) -> S.DataType:
    return from_arrow_type(type_, prefer_timestamp_ntz=True)


def is_native(type_: pa.DataType) -> bool:
    """Whether Spark's Parquet reader reads what pyarrow wrote of this type, without loss."""
    t = pa.types
    if t.is_timestamp(type_):
        return type_.unit in ("ms", "us")
    if t.is_decimal(type_):
        return bool(type_.precision <= arrow_types.DECIMAL_PRECISION_MAX)
    if t.is_list(type_):
        return is_native(type_.value_type)
    if t.is_struct(type_):
        return all(is_native(field.type) for field in type_)
    if t.is_map(type_):
        return is_native(type_.key_type) and is_native(type_.item_type)
    if t.is_integer(type_):
        return not t.is_uint64(type_)
    tests = (t.is_boolean, t.is_float32, t.is_float64, t.is_string, t.is_large_string, t.is_binary, t.is_date32)
    return any(test(type_) for test in tests)


def native_type(type_: pa.DataType) -> S.DataType:
    """The type with which Spark reads a Parquet column that pyarrow wrote."""
    if pa.types.is_unsigned_integer(type_):
        return {8: S.ShortType(), 16: S.IntegerType(), 32: S.LongType()}[type_.bit_width]
    if pa.types.is_nested(type_):
        if pa.types.is_struct(type_):
            return S.StructType([S.StructField(field.name, native_type(field.type)) for field in type_])
        if pa.types.is_map(type_):
            return S.MapType(native_type(type_.key_type), native_type(type_.item_type))
        return S.ArrayType(native_type(type_.value_type))
    return spark_type(arrow_types.spark_arrow_type(type_))


def comparison_of(column: Column, type_: pa.DataType) -> Column:
    """A column as it can be compared with <=>: maps cannot, their entries can."""
    if not _has_map(type_):
        return column
    if pa.types.is_map(type_):
        entries = F.map_entries(column)
        return F.transform(
            entries,
            lambda entry: F.struct(
                comparison_of(entry["key"], type_.key_type), comparison_of(entry["value"], type_.item_type)
            ),
        )
    if pa.types.is_struct(type_):
        inside = F.struct(*(comparison_of(column[field.name], field.type).alias(field.name) for field in type_))
        return F.when(column.isNotNull(), inside)
    return F.transform(column, lambda item: comparison_of(item, type_.value_type))


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    if pa.types.is_struct(type_):
        return any(_has_map(field.type) for field in type_)
    return pa.types.is_list(type_) and _has_map(type_.value_type)


def sort_column(column: Column, field: pa.Field) -> Column:
    """A sort column as Spark orders it like we do: one zero, one NaN."""
    if pa.types.is_decimal(field.type) and pa.types.is_string(comparable_type(field.type)):
        raise InputError(f"sort key {field.name!r} is {field.type}: Spark's decimals have at most 38 digits")
    if pa.types.is_floating(field.type):
        return F.when(column == 0, F.lit(0.0)).otherwise(column)
    return column
