"""Matches columns by field id: a file is read under the column names that the table has today.

    the table    1: id    4: total    2: address {6: town, 5: zip}
    the file     1: id    3: price    2: addr {5: zip, 7: fax}         written before a few changes
    it reads as  id                   address {town, zip}              renamed; town is null; price and fax were dropped

Parquet stores the ids, and pyarrow shows them in a field's metadata, at any depth. An id always means the same column,
so a column that was dropped and added again under the same name is a new column. `matched` decides this once for each
file. Readers of the file get the table's names, and other code needs no ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from deltacompact.base.data_file import DataFile, Fill
from deltacompact.base.errors import SchemaError
from deltacompact.tabular.conversion import converted, is_list, null_mask, relisted, remapped

FIELD_ID = b"PARQUET:field_id"
_ASSIGNED = {b"field ids": b"assigned"}


def field_id(field: pa.Field) -> int | None:
    """The id of a field; None: it has no id."""
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


def id_of(field: pa.Field) -> int:
    """The id of a field of a table's own schema, where each has one."""
    number = field_id(field)
    assert number is not None, f"{field.name}: a table's columns have field ids"
    return number


def fields_by_id(fields: Iterable[pa.Field]) -> Iterator[tuple[int, pa.Field]]:
    """Fields at any depth, with their ids."""
    for field in fields:
        number = field_id(field)
        if number is not None:
            yield number, field
        yield from fields_by_id(field.type.field(place) for place in range(field.type.num_fields))


def assigned(columns: pa.Schema) -> pa.Schema:
    """The columns of a file that lacks ids, with ids that come from elsewhere."""
    return columns.with_metadata(_ASSIGNED)


def matched(file: DataFile, columns: pa.Schema) -> DataFile:
    """The file with only the columns whose ids `columns` has, under the names that `columns` has.

    A column that the file lacks, but that is filled, counts as a column of the file.
    Raises SchemaError for a column without an id.
    """
    stored = file.schema if file.stored is None else file.stored
    _refuse_unidentified(columns, "the table")
    _refuse_unidentified(stored, file.path)
    has_by_id = _by_id(fill.column for fill in file.fills) | _by_id(stored)
    has = [(wanted, has_by_id.get(field_id(wanted))) for wanted in columns]
    schema = pa.schema([_matched(wanted, field) for wanted, field in has if field is not None])
    wanted_by_id = _by_id(columns) if file.longest else {}
    known = [(wanted_by_id.get(field_id(file.schema.field(name))), size) for name, size in file.longest]
    longest = tuple((column.name, size) for column, size in known if column is not None)
    return replace(file, schema=schema, stored=stored, longest=longest)


def stored_names(file: DataFile, names: Sequence[str]) -> list[str]:
    """The file's own names of these columns of its schema. Leaves out columns that the file lacks: they are filled."""
    if file.stored is None:
        return list(names)
    stored = _by_id(file.stored)
    found = [stored.get(field_id(file.schema.field(name))) for name in names]
    return [column.name for column in found if column is not None]


def fills_of(file: DataFile) -> dict[int | None, Fill]:
    """The file's fills by field id. Of several fills of one column, the first counts."""
    return {field_id(fill.column): fill for fill in reversed(file.fills)}


def as_stored(file: DataFile) -> DataFile:
    """The file with its own column names."""
    return file if file.stored is None else replace(file, schema=file.stored, stored=None)


def projected(table: pa.Table, file: DataFile, names: Sequence[str]) -> pa.Table:
    """The columns `names` of a table of the file's rows, under the table's names instead of the file's, at any depth.

    Leaves out columns that the file lacks.
    """
    if file.stored is None:
        return table
    by_id = _by_id(file.stored)
    wanted = [file.schema.field(name) for name in names]
    pairs = [(field, found) for field in wanted if (found := by_id.get(field_id(field))) is not None]
    columns = []
    for number, (field, stored) in enumerate(pairs):
        chunks = [_projected(chunk, stored.type, field.type) for chunk in table.column(number).chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, names=[field.name for field, _ in pairs]) if columns else table


def agree(file: DataFile, schema: pa.Schema) -> bool:
    """Whether the file's own columns have the ids, names and order of `schema`, at any depth, and no fill changes them.

    True for files whose columns are matched by name, False for files whose ids were assigned from elsewhere.
    """
    if file.stored is None:
        return True
    if file.stored.metadata == _ASSIGNED:
        return False
    filled = fills_of(file)
    return not any(field_id(column) in filled for column in schema) and _agree(list(file.stored), list(schema))


def _refuse_unidentified(columns: pa.Schema, path: str) -> None:
    for field in columns:
        if field_id(field) is None:
            raise SchemaError(f"{path}: column {field.name!r} has no field id, but columns are matched by field id")


def _by_id(fields: Iterable[pa.Field]) -> dict[int | None, pa.Field]:
    """Fields by id, in a dict, because a table may have thousands of columns."""
    return {field_id(field): field for field in fields}


def _matched(wanted: pa.Field, stored: pa.Field) -> pa.Field:
    """A field with the table's name and id, and with the file's type under the table's names."""
    return pa.field(wanted.name, _matched_type(wanted.type, stored.type), metadata=wanted.metadata)


def _matched_type(wanted: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """The file's type under the table's names.

    A struct gets all children of the table's struct, so that it has rows even if the file has none of the children.
    """
    t = pa.types
    if t.is_struct(wanted) and t.is_struct(stored):
        by_id = _by_id(stored)
        children = [(child, by_id.get(field_id(child))) for child in wanted]
        return pa.struct([child if known is None else _matched(child, known) for child, known in children])
    if t.is_map(wanted) and t.is_map(stored):
        key = wanted.key_field.with_type(_matched_type(wanted.key_type, stored.key_type))
        return pa.map_(key, wanted.item_field.with_type(_matched_type(wanted.item_type, stored.item_type)))
    if is_list(wanted) and is_list(stored):
        item = wanted.value_field.with_type(_matched_type(wanted.value_type, stored.value_type))
        return pa.large_list(item) if t.is_large_list(stored) else pa.list_(item)
    return stored


def _projected(array: pa.Array, stored: pa.DataType, wanted: pa.DataType) -> pa.Array:
    t = pa.types
    if not t.is_nested(wanted) or _agree(list(fields_below(stored)), list(fields_below(wanted))):
        return converted(array, wanted)
    if t.is_struct(wanted):
        return _struct(array, stored, wanted)
    if t.is_map(wanted):
        return remapped(
            array,
            wanted,
            lambda keys, type_: _projected(keys, stored.key_type, type_),
            lambda items, type_: _projected(items, stored.item_type, type_),
        )
    return relisted(array, wanted, lambda items, type_: _projected(items, stored.value_type, type_))


def _struct(array: pa.Array, stored: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """A struct with its children matched by id. Children that the file lacks are null."""
    known = {field_id(child): (child.type, values) for child, values in zip(stored, array.flatten(), strict=True)}
    children = []
    for child in wanted:
        type_, values = known.get(field_id(child), (child.type, pa.nulls(len(array), child.type)))
        children.append(_projected(values, type_, child.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=null_mask(array))


def _agree(stored: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> bool:
    names, others = ([(field_id(field), field.name) for field in fields] for fields in (stored, wanted))
    return names == others and all(
        _agree(list(fields_below(field.type)), list(fields_below(other.type)))
        for field, other in zip(stored, wanted, strict=True)
    )


def fields_below(type_: pa.DataType) -> Iterator[pa.Field]:
    """The named fields below a type: children of structs, also inside of lists and maps.

    The names of a list's items and of a map's keys and items have no meaning.
    """
    t = pa.types
    if t.is_struct(type_):
        yield from type_
    elif t.is_map(type_):
        yield from fields_below(type_.key_type)
        yield from fields_below(type_.item_type)
    elif is_list(type_):
        yield from fields_below(type_.value_type)
