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

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Partition
from deltacompact.base.wording import text_of
from deltacompact.tabular import column_types
from deltacompact.tabular.column_types import grown, plain_type, stored_type, widened
from deltacompact.tabular.conversion import converted, converted_column, without_view
from deltacompact.tabular.partition_texts import partition_scalar
from deltacompact.tabular.whole_days import no_date

_NO_ROWS = {b"deltacompact": b"no row yet"}
"""Metadata of a column that only files without rows have. The first file with rows decides its type."""


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
            fields.append(promised_field(name, promised[name]))
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


def promised_field(name: str, type_: pa.DataType) -> pa.Field:
    """A column whose type may still change."""
    return pa.field(name, type_, metadata=_NO_ROWS)


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


def lacks_types(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether a column, or a part of one, is null in `stored`, because it had no value there, and has a type now."""
    return column_types.lacks_types(pa.struct(list(stored)), pa.struct(list(wanted)))


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column's values, decoded from dictionaries and taken out of extension types."""
    return converted_column(column, plain_type(column.type))


def computable(table: pa.Table, path: str) -> pa.Table:
    """The same values in types that can be filtered and written. Dictionaries contain no nulls.

    Raises SchemaError naming file and column of a date64 that is no date.
    """
    changed: dict[int, tuple[pa.Field, pa.ChunkedArray]] = {}
    for number, field in enumerate(table.schema):
        column = table.column(number)
        type_ = stored_type(field.type)
        if (why := no_date(column)) is not None:
            raise SchemaError(f"{path}: column {field.name!r}: {why}")
        if pa.types.is_dictionary(type_) and any(chunk.dictionary.null_count for chunk in column.chunks):
            column = converted_column(pa.chunked_array([_null_by_index(chunk) for chunk in column.chunks]), type_)
        elif type_ != field.type:
            column = converted_column(column, type_)
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
        return converted_column(column, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = text_of(error)
        raise SchemaError(f"{path}: column {name!r} does not fit {type_}: {reason}") from None


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
