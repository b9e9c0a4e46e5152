"""One schema for many files: the union of columns by name. Types widen if no value is lost; else the file is refused.

    a.parquet   id int32,  note string
    b.parquet   id int64,  note dictionary<string>,  price double     ->  id int64, note string, price double
    c.parquet   id string                                             ->  refused: c.parquet, column 'id'

If a file lacks a column, its rows get null, or the partition's value for a partition column. So columns and their
children are nullable, whatever a file declares. A file without rows adds columns but never causes a refusal: the files
with rows decide the type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import DataFile, Partition
from deltacompact.base.wording import text_of
from deltacompact.tabular.conversion import converted, is_list, without_view
from deltacompact.tabular.whole_days import part_of_day

_NO_ROWS = {b"deltacompact": b"no row yet"}
"""Metadata of a column that only files without rows have. The first file with rows decides its type."""

_DIGITS_OF_128_BITS = 38
_TIME_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def union(files: Iterable[DataFile], base: pa.Schema | None = None) -> pa.Schema:
    """The table's schema: columns in order of appearance. Raises SchemaError naming file and column."""
    columns: dict[str, pa.DataType] = {}
    promised: dict[str, pa.DataType] = {}
    order: dict[str, None] = {}
    for path, schema, rows in _distinct(files, base):
        for field in schema:
            order[field.name] = None
            type_ = stored_type(field.type)
            if not rows or is_promised(field):
                before = promised.get(field.name, type_)
                promised[field.name] = widened(before, type_) or before
                continue
            known = columns.get(field.name)
            wider = type_ if known is None else widened(known, type_)
            if wider is None:
                raise SchemaError(
                    f"{path}: column {field.name!r} is {field.type}, which does not fit {known} in other files"
                )
            columns[field.name] = wider
    fields = []
    for name in order:
        if name not in promised or not pa.types.is_null(columns.get(name, pa.null())):
            fields.append(pa.field(name, columns[name]))
        else:
            fields.append(pa.field(name, promised[name], metadata=_NO_ROWS))
    return pa.schema(fields)


def known_types(columns: pa.Schema | None) -> dict[str, pa.DataType]:
    """The types by name. A column without any value yet has no type yet."""
    return {field.name: field.type for field in columns or () if not pa.types.is_null(field.type)}


def with_types(known: pa.Schema | None, found: pa.Schema, inexact: Collection[str]) -> pa.Schema:
    """The known types, and those of other columns: the types for the next text file.

    In the columns `inexact`, which are keys, doubles are left out: a parser must tell them from large whole numbers.
    """
    types = known_types(known)
    for field in found:
        if field.name in types:
            types[field.name] = grown(types[field.name], field.type)
        elif not (field.name in inexact and pa.types.is_floating(field.type)):
            types[field.name] = field.type
    return pa.schema(list(types.items()))


def grown(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The known type, with what only the other one has at any depth: fields of structs, and types instead of null.

    struct<a: date, b: null>, struct<a: string, b: int64, c: double>  ->  struct<a: date, b: int64, c: double>
    """
    if known == found or pa.types.is_null(known):
        return found
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        types = {field.name: field.type for field in found}
        own = [field.with_type(grown(field.type, types.get(field.name, field.type))) for field in known]
        names = {field.name for field in known}
        return pa.struct([*own, *(field for field in found if field.name not in names)])
    if is_list(known) and is_list(found):
        item = known.value_field.with_type(grown(known.value_type, found.value_type))
        if pa.types.is_fixed_size_list(known):
            return pa.list_(item, known.list_size)
        return pa.large_list(item) if pa.types.is_large_list(known) else pa.list_(item)
    return known


def is_promised(field: pa.Field) -> bool:
    """Whether only files without rows have had this column, so that its type may still change."""
    return (field.metadata or {}).items() >= _NO_ROWS.items()


def decided_types(columns: pa.Schema) -> dict[str, pa.DataType]:
    """The types by name, without those that only files without rows have had."""
    return {field.name: field.type for field in columns if not is_promised(field)}


def holds(known: pa.DataType | None, found: pa.DataType) -> bool:
    """Whether a column of the known type stays as it is with a file's column of the other type. None: there is none."""
    return known is not None and widened(known, stored_type(found)) == known


def unmarked(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata, for readers and the log: an appended file may be a copy of ours, marks included."""
    return pa.schema([(field.name, field.type) for field in schema])


def _distinct(files: Iterable[DataFile], base: pa.Schema | None) -> Iterator[tuple[str, pa.Schema, bool]]:
    """(path, schema, has rows) of the base, and of each file whose schema differs from the last few files'."""
    if base is not None:
        yield "the compacted files", base, True
    seen: list[tuple[pa.Schema, bool]] = []
    for file in files:
        if any(file.schema is schema and bool(file.rows) is rows for schema, rows in seen[-4:]):
            continue
        seen.append((file.schema, bool(file.rows)))
        yield file.path, file.schema, bool(file.rows)


def widened(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that can hold the values of both, or None."""
    if a == b:
        return a
    if pa.types.is_null(a) or pa.types.is_null(b):
        return b if pa.types.is_null(a) else a
    plain_a, plain_b = plain_type(a), plain_type(b)
    if (plain_a, plain_b) != (a, b):
        return widened(plain_a, plain_b)
    for family in (_integers, _floats, _decimals, _timestamps, _times, _strings, _binaries, _nested):
        if (wider := family(a, b)) is not None:
            return wider
    return None


def lacks_types(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether a column, or a part of one, is null in `stored`, because it had no value there, and has a type now."""
    return _lacks_types(pa.struct(list(stored)), pa.struct(list(wanted)))


def _lacks_types(stored: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    if t.is_null(stored):
        return not t.is_null(wanted)
    if t.is_struct(stored) and t.is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        return any(_lacks_types(field.type, types.get(field.name, field.type)) for field in stored)
    if t.is_map(stored) and t.is_map(wanted):
        return _lacks_types(stored.key_type, wanted.key_type) or _lacks_types(stored.item_type, wanted.item_type)
    return is_list(stored) and is_list(wanted) and _lacks_types(stored.value_type, wanted.value_type)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type of a column in tables and compacted files.

    Views and run-end encoding become plain types, because few functions of Arrow accept them. A dictionary stays a
    dictionary, with indices wide enough for several files, but unordered, because the dictionaries of several files
    have no common order. A nested dictionary becomes its values, because few formats can hold it. Children are
    nullable. A struct without fields, which JSON has for `{}`, becomes null, and a list of the fixed size 0 a list of
    any size: Parquet cannot hold them. PyIceberg reads decimals of 128 bits only, and no lists of structs of a fixed
    size: other decimals become those where the digits fit, such lists plain lists.
    """
    t = pa.types
    if t.is_primitive(type_) or t.is_string(type_):  # the most frequent types skip the many tests below
        return type_
    if isinstance(type_, pa.BaseExtensionType):
        storage = stored_type(type_.storage_type)
        return type_ if storage == type_.storage_type else storage
    if t.is_run_end_encoded(type_):
        return stored_type(type_.value_type)
    if t.is_dictionary(type_):
        values = stored_type(type_.value_type)
        if t.is_nested(values) or t.is_null(values) or plain_type(values) != values:
            return values
        return pa.dictionary(pa.int64() if type_.index_type.bit_width == 64 else pa.int32(), values)
    if t.is_decimal(type_):
        return decimal_of(type_.precision, type_.scale)
    if t.is_struct(type_):
        return pa.struct([pa.field(field.name, _inside(field.type)) for field in type_]) if len(type_) else pa.null()
    if t.is_map(type_):
        return pa.map_(_inside(type_.key_type), _inside(type_.item_type))
    if is_list(type_):
        item = _inside(type_.value_type)
        if t.is_fixed_size_list(type_) and type_.list_size and not t.is_struct(item):
            return pa.list_(item, type_.list_size)
        return pa.large_list(item) if t.is_large_list(type_) or t.is_large_list_view(type_) else pa.list_(item)
    return without_view(type_)


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """The type of stored decimals."""
    return (pa.decimal128 if precision <= _DIGITS_OF_128_BITS else pa.decimal256)(precision, scale)


def _inside(type_: pa.DataType) -> pa.DataType:
    """The stored type of a child."""
    stored = stored_type(type_)
    return stored.value_type if pa.types.is_dictionary(stored) else stored


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values inside of a dictionary or an extension type."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    return stored_type(type_)


def values_type(type_: pa.DataType) -> pa.DataType:
    """As `plain_type`, but a type that is plain already stays the same object: its fields keep their metadata."""
    plain = plain_type(type_)
    return type_ if plain == type_ else plain


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column's values, decoded from dictionaries and taken out of extension types."""
    return _converted(column, plain_type(column.type))


def computable(table: pa.Table, path: str) -> pa.Table:
    """The same values in types that can be filtered and written. Dictionaries contain no nulls.

    Raises SchemaError naming file and column of a date64 with a time of day.
    """
    changed: dict[int, tuple[pa.Field, pa.ChunkedArray]] = {}
    for number, field in enumerate(table.schema):
        column = table.column(number)
        type_ = stored_type(field.type)
        if (part := part_of_day(column)) is not None:
            raise SchemaError(f"{path}: column {field.name!r}: date64 value {part} ms is not a whole day")
        if pa.types.is_dictionary(type_) and any(chunk.dictionary.null_count for chunk in column.chunks):
            column = _converted(pa.chunked_array([_null_by_index(chunk) for chunk in column.chunks]), type_)
        elif type_ != field.type:
            column = _converted(column, type_)
        else:
            continue
        changed[number] = pa.field(field.name, type_), column
    return with_columns(table, changed)


def _null_by_index(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values. Indices of a null in the dictionary become null, without decoding any value.

    dictionary [a, null, b], indices [0, 1, 2]  ->  dictionary [a, b], indices [0, null, 1]
    """
    from deltacompact.base import compute as pc

    values = converted(array.dictionary, without_view(array.type.value_type))  # views cannot be filtered
    valid = values.is_valid()
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int32())), 1), None)
    return pa.DictionaryArray.from_arrays(places.take(array.indices), values.drop_null())


def with_columns(table: pa.Table, changed: Mapping[int, tuple[pa.Field, pa.ChunkedArray]]) -> pa.Table:
    """The table with these columns replaced, in one step, because each `set_column` touches every column."""
    if not changed:
        return table
    both = [changed.get(place, (field, None)) for place, field in enumerate(table.schema)]
    columns = [table.column(place) if column is None else column for place, (_, column) in enumerate(both)]
    return pa.Table.from_arrays(columns, schema=pa.schema([field for field, _ in both], table.schema.metadata))


def _integers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_integer(a) and pa.types.is_integer(b)):
        return None
    if pa.types.is_unsigned_integer(a) == pa.types.is_unsigned_integer(b):
        family = _UNSIGNED if pa.types.is_unsigned_integer(a) else _SIGNED
        return family[max(a.bit_width, b.bit_width)]
    signed, unsigned = (b, a) if pa.types.is_unsigned_integer(a) else (a, b)
    return _SIGNED[max(signed.bit_width, min(64, unsigned.bit_width * 2))]  # casting refuses a uint64 above int64


def _floats(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return a if a.bit_width > b.bit_width else b
    return None


def _decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal(a) and pa.types.is_decimal(b)) or a.scale != b.scale:
        return None
    return decimal_of(max(a.precision, b.precision), a.scale)


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
        return pa.date32()  # casting refuses a date64 that is not a whole day
    return None


def _strings(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_string(a) and is_string(b):
        return pa.large_string() if pa.types.is_large_string(a) or pa.types.is_large_string(b) else pa.string()
    return None


def is_variable(type_: pa.DataType) -> bool:
    """Whether values of the type may have any size."""
    if type_.num_fields:
        lists = not (pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_))
        return lists or any(is_variable(type_.field(child).type) for child in range(type_.num_fields))
    return has_lengths(plain_type(type_))


def has_lengths(type_: pa.DataType) -> bool:
    """Whether values of this plain type vary in length: strings, and binaries without a fixed size."""
    return is_string(type_) or (is_binary(type_) and not pa.types.is_fixed_size_binary(type_))


def is_string(type_: pa.DataType) -> bool:
    """Whether the type is a string of any layout."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _binaries(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_binary(a) and is_binary(b):
        return pa.large_binary() if pa.types.is_large_binary(a) or pa.types.is_large_binary(b) else pa.binary()
    return None


def is_binary(type_: pa.DataType) -> bool:
    """Whether the type is a binary of any layout. Decimals are not binaries."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or (pa.types.is_fixed_size_binary(type_) and not pa.types.is_decimal(type_))
    )


def _nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_list(a) and is_list(b):
        return _lists(a, b)
    if pa.types.is_map(a) and pa.types.is_map(b):
        key, item = widened(a.key_type, b.key_type), widened(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return _structs(a, b) if pa.types.is_struct(a) and pa.types.is_struct(b) else None


def _lists(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Two lists of one fixed size stay so. Other lists become large lists if one of the two is large."""
    item = widened(a.value_type, b.value_type)
    if item is None:
        return None
    if pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b) and a.list_size == b.list_size:
        return pa.list_(item, a.list_size)
    return pa.large_list(item) if pa.types.is_large_list(a) or pa.types.is_large_list(b) else pa.list_(item)


def _structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The union of the children by name. If a name occurs twice, both types need the same names in the same order."""
    names = [[field.name for field in type_] for type_ in (a, b)]
    if any(len(set(children)) < len(children) for children in names):
        if names[0] != names[1]:
            return None
        children = [(f.name, widened(f.type, g.type)) for f, g in zip(a, b, strict=True)]
    else:
        types: dict[str, pa.DataType | None] = {field.name: field.type for field in a}
        for field in b:
            types[field.name] = widened(types.get(field.name, field.type), field.type)
        children = list(types.items())
    return None if any(type_ is None for _, type_ in children) else pa.struct(children)


def _finer(a: str, b: str) -> str:
    return _TIME_UNITS[max(_TIME_UNITS.index(a), _TIME_UNITS.index(b))]


def with_partition_keys(columns: pa.Schema, keys: Iterable[str]) -> pa.Schema:
    """The columns, and a text column for each partition key that no file has."""
    return pa.schema([*columns, *(pa.field(name, pa.string()) for name in keys if name not in columns.names)])


def align(table: pa.Table, schema: pa.Schema, partition: Partition, path: str) -> pa.Table:
    """The table with exactly the schema's columns. Raises SchemaError naming file and column of a value that overflows.

    Rows stay in order. Columns that have the right type already are not copied.
    """
    place_of = {name: place for place, name in enumerate(table.column_names)}  # a table may have 3,000 columns
    constants = dict(partition.values)
    columns = []
    for field in schema:
        if field.name in place_of:
            columns.append(cast(table.column(place_of[field.name]), field.type, path, field.name))
        elif field.name in constants:
            constant = partition_scalar(constants[field.name], field)
            columns.append(pa.chunked_array([pa.repeat(constant, table.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    if not columns:
        return table.select([])
    return pa.Table.from_arrays(columns, schema=schema)


def cast(column: pa.ChunkedArray, type_: pa.DataType, path: str, name: str) -> pa.ChunkedArray:
    """The column in the type. Raises SchemaError if a value does not fit."""
    if column.type == type_:
        return column
    try:
        return _converted(column, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = text_of(error)
        raise SchemaError(f"{path}: column {name!r} does not fit {type_}: {reason}") from None


def _converted(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    return pa.chunked_array([converted(chunk, type_) for chunk in column.chunks], type_)


def partition_scalar(text: str | None, field: pa.Field) -> pa.Scalar:
    """A partition value, cast to the type of its column. Raises SchemaError if it does not fit."""
    plain = plain_type(field.type)
    try:
        value = pa.scalar(text, pa.string()).cast(plain) if text is not None else pa.scalar(None, plain)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaError(f"partition value {text!r} does not fit {plain}, the type of column {field.name!r}") from None
    return value.cast(field.type) if plain != field.type else value


def check_partition_values(table: pa.Table, partition: Partition, path: str) -> None:
    """Raises SchemaError if a row has another value in a partition column than the partition."""
    for name, text in partition.values:
        if name not in table.column_names or not table.num_rows:
            continue
        column = plain(table[name])
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
    from deltacompact.base import compute as pc

    return bool(column.null_count == 0 and pc.all(pc.equal(column, expected)).as_py())


def check_columns(schema: pa.Schema, path: str) -> None:
    """Refuse duplicate columns and unions: no format that we write can hold them."""
    seen = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"{path}: column {name!r} appears twice")
        seen.add(name)
    for field in schema:
        if _has_union(field.type):
            raise SchemaError(
                f"{path}: column {field.name!r} is {field.type}: values of several types cannot be folded"
            )


def _has_union(type_: pa.DataType) -> bool:
    below = range(type_.num_fields) if pa.types.is_nested(type_) else ()
    return pa.types.is_union(type_) or any(_has_union(type_.field(number).type) for number in below)
