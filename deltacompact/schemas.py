"""One schema for many files: the union by name, widening where nothing is lost, refusing the rest by name.

    a.parquet   id int32,  note string
    b.parquet   id int64,  note dictionary<string>,  price double     ->  id int64, note string, price double
    c.parquet   id string                                             ->  refused: c.parquet, column 'id'

A column that a file lacks reads as null there, except a partition column: it has the partition's value.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from deltacompact.errors import SchemaError
from deltacompact.model import DataFile, Partition

_TIME_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def union(files: Iterable[DataFile], base: pa.Schema | None = None) -> pa.Schema:
    """The table's schema: columns in order of appearance. Raises SchemaError naming file and column."""
    columns: dict[str, pa.DataType] = {field.name: field.type for field in base or ()}
    seen: list[pa.Schema] = []
    for file in files:
        if any(file.schema is schema for schema in seen[-4:]):
            continue
        seen.append(file.schema)
        for field in file.schema:
            known = columns.get(field.name)
            wider = without_views(field.type) if known is None else widened(known, without_views(field.type))
            if wider is None:
                raise SchemaError(
                    f"{file.path}: column {field.name!r} is {field.type}, which does not fit {known} in other files"
                )
            columns[field.name] = wider
    return pa.schema(list(columns.items()))


def widened(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, or None."""
    if a == b:
        return a
    if pa.types.is_null(a) or pa.types.is_null(b):
        return b if pa.types.is_null(a) else a
    if pa.types.is_dictionary(a) or pa.types.is_dictionary(b):
        return widened(_decoded(a), _decoded(b))
    for family in (_integers, _floats, _decimals, _timestamps, _times, _strings, _binaries, _nested):
        if (wider := family(a, b)) is not None:
            return wider
    return None


def without_views(type_: pa.DataType) -> pa.DataType:
    """Views are a layout in memory that little can compute with: tables have the plain type.

    So are narrow indices into dictionaries: those of several files together have more values than 127.
    """
    if pa.types.is_dictionary(type_) and type_.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = type_.value_field.with_type(without_views(type_.value_type))
        return pa.list_(item) if pa.types.is_list(type_) else pa.large_list(item)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(without_views(type_.value_type)), type_.list_size)
    if pa.types.is_map(type_):
        item = type_.item_field.with_type(without_views(type_.item_type))
        return pa.map_(without_views(type_.key_type), item, type_.keys_sorted)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(without_views(field.type)) for field in type_])
    if pa.types.is_string_view(type_):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(type_) else type_


def computable(table: pa.Table) -> pa.Table:
    """The same values in types that can be filtered and written: no views, no nulls hidden in dictionaries."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        type_ = without_views(field.type)
        if pa.types.is_dictionary(type_) and any(chunk.dictionary.null_count for chunk in column.chunks):
            column = column.cast(type_.value_type).dictionary_encode().cast(type_)
        elif type_ != field.type:
            column = column.cast(type_)
        else:
            continue
        table = table.set_column(place, pa.field(field.name, type_), column)
    return table


def _decoded(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _integers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_integer(a) and pa.types.is_integer(b)):
        return None
    if pa.types.is_unsigned_integer(a) == pa.types.is_unsigned_integer(b):
        family = _UNSIGNED if pa.types.is_unsigned_integer(a) else _SIGNED
        return family[max(a.bit_width, b.bit_width)]
    signed, unsigned = (b, a) if pa.types.is_unsigned_integer(a) else (a, b)
    return _SIGNED[max(signed.bit_width, min(64, unsigned.bit_width * 2))]  # uint64 beyond int64 is refused by value


def _floats(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return a if a.bit_width > b.bit_width else b
    return None


def _decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal(a) and pa.types.is_decimal(b)) or a.scale != b.scale:
        return None
    width, precision = max(a.bit_width, b.bit_width), max(a.precision, b.precision)
    make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[width]
    return make(precision, a.scale)


def _timestamps(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        return pa.timestamp(_finer(a.unit, b.unit), a.tz)
    if pa.types.is_duration(a) and pa.types.is_duration(b):
        return pa.duration(_finer(a.unit, b.unit))
    return None


def _times(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_time(a) and pa.types.is_time(b):
        unit = _finer(a.unit, b.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()  # a date64 that is no whole day is refused by value
    return None


def _strings(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_string(a) and is_string(b):
        return pa.large_string() if pa.types.is_large_string(a) or pa.types.is_large_string(b) else pa.string()
    return None


def is_variable(type_: pa.DataType) -> bool:
    """Whether its values may be of any size."""
    if type_.num_fields:
        lists = not (pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_))
        return lists or any(is_variable(type_.field(place).type) for place in range(type_.num_fields))
    return is_string(_decoded(type_)) or (is_binary(_decoded(type_)) and not pa.types.is_fixed_size_binary(type_))


def is_string(type_: pa.DataType) -> bool:
    """Strings of any layout."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _binaries(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_binary(a) and is_binary(b):
        return pa.large_binary() if pa.types.is_large_binary(a) or pa.types.is_large_binary(b) else pa.binary()
    return None


def is_binary(type_: pa.DataType) -> bool:
    """Bytes of any layout, decimals not."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or (pa.types.is_fixed_size_binary(type_) and not pa.types.is_decimal(type_))
    )


def _nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Nested types that differ in names of items or nullability only are one type."""
    if pa.types.is_list(a) and pa.types.is_list(b):
        item = widened(a.value_type, b.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(a) and pa.types.is_struct(b) and [f.name for f in a] == [f.name for f in b]:
        items = [(f.name, widened(f.type, g.type)) for f, g in zip(a, b, strict=True)]
        return None if any(item is None for _, item in items) else pa.struct(items)
    return None


def _finer(a: str, b: str) -> str:
    return _TIME_UNITS[max(_TIME_UNITS.index(a), _TIME_UNITS.index(b))]


def align(table: pa.Table, schema: pa.Schema, partition: Partition, path: str) -> pa.Table:
    """The table with exactly the schema's columns. Raises SchemaError naming file and column of a value that overflows.

    Units: rows stay as they are; nothing is copied where the type fits already.
    """
    constants = dict(partition.values)
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(cast(table[field.name], field.type, path, field.name))
        elif field.name in constants:
            constant = partition_scalar(constants[field.name], field)
            columns.append(pa.chunked_array([pa.repeat(constant, table.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    if not columns:
        return table.select([])
    return pa.Table.from_arrays(columns, schema=schema)


def cast(column: pa.ChunkedArray, type_: pa.DataType, path: str, name: str) -> pa.ChunkedArray:
    """Checked cast: a value that does not fit is refused."""
    if column.type == type_:
        return column
    try:
        if pa.types.is_dictionary(type_):  # from values there is no cast but to dictionaries of strings
            return _plain(column).cast(type_.value_type).dictionary_encode().cast(type_)
        return _plain(column).cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise SchemaError(f"{path}: column {name!r} does not fit {type_}: {reason}") from None


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dictionaries decoded, views made plain: casts between the rest exist."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_binary_view(column.type):
        column = column.cast(pa.binary())
    return column


def partition_scalar(text: str | None, field: pa.Field) -> pa.Scalar:
    """A partition value in the type of its column."""
    plain = _decoded(field.type)
    try:
        value = pa.scalar(text, pa.string()).cast(plain) if text is not None else pa.scalar(None, plain)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaError(f"partition value {text!r} is no {plain}, the type of column {field.name!r}") from None
    return value.cast(field.type) if plain != field.type else value


def check_partition_values(table: pa.Table, partition: Partition, path: str) -> None:
    """Where a file has the partition columns, every row must say the partition's value."""
    for name, text in partition.values:
        if name not in table.column_names or not table.num_rows:
            continue
        column = _plain(table[name])
        if pa.types.is_null(column.type):
            agrees = text is None
        else:
            try:
                expected = partition_scalar(text, pa.field(name, column.type))
            except SchemaError as error:
                raise SchemaError(f"{path}: {error}") from None
            agrees = _all_equal(column, expected)
        if not agrees:
            shown = "null" if text is None else repr(text)
            raise SchemaError(f"{path}: column {name!r} disagrees with the partition's value {shown}")


def _all_equal(column: pa.ChunkedArray, expected: pa.Scalar) -> bool:
    if not expected.is_valid:
        return bool(column.null_count == len(column))
    return bool(column.null_count == 0 and pc.all(pc.equal(column, expected)).as_py())
