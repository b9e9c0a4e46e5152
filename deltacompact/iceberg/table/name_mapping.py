"""Files without field ids: the table's name mapping says which column is which.

    schema.name-mapping.default    1: id, ident    2: total    3: place {4: town, 5: zip}
    the file, without ids          ident    Total    place {town, fax}
    read as                        1        -        3 {4, -}         names are compared by case; "-" is not read

Files that `add_files`, `migrate` or `snapshot` brought into a table come from writers who knew no ids. Spec, "Column
Projection": a column with an id keeps it, and one without takes that of its name. The items of a list are `element`
there, the keys and values of a map `key` and `value`, whatever the file calls them.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.field_ids import FIELD_ID, assigned, field_id, fields_below

PROPERTY = "schema.name-mapping.default"

Names = Mapping[str, "Mapped"]
"""Fields of one struct, by each of their names."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """The id of a field, and the names of its children. None: the table does not have the field."""

    field_id: int | None
    children: Names = field(default_factory=dict, hash=False)


def name_mapping(properties: Mapping[str, str], table_id: str) -> Names | None:
    """The name mapping of a table; None: it has none. Raises InputError for one that cannot be read."""
    text = properties.get(PROPERTY)
    if text is None:
        return None
    try:
        return _parsed(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"table {table_id!r}: its property {PROPERTY} is no name mapping: {error}") from error


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> Names:
    """The parsed mapping. Cached, so that all data files of a table share one object."""
    return _names(json.loads(text))


def _names(fields: Sequence[Mapping[str, Any]]) -> Names:
    found: dict[str, Mapped] = {}
    for described in fields:
        number = described.get("field-id")
        mapped = Mapped(None if number is None else int(number), _names(described.get("fields") or ()))
        for name in described["names"]:
            if name in found:
                raise ValueError(f"the name {name!r} is there twice")
            found[name] = mapped
    return found


def identified(columns: pa.Schema, names: Names | None, constants: Collection[int], path: str) -> pa.Schema:
    """A file's columns with their field ids, at any depth. Columns without an id and without a known name are left out.

    `constants`: ids of columns whose value the file's partition tells. No file column gets such an id by its name.
    Raises SchemaError, naming the file, where ids are missing and there are no names, or where two columns have an id.
    """
    lacking = next(_unidentified(columns), None)
    if lacking is None:
        return columns
    if names is None:
        raise SchemaError(
            f"{path}: column {lacking!r} has no field id, and the table has no name mapping: "
            f"set the table's property {PROPERTY}"
        )
    own = {field_id(column) for column in columns}
    known = [column for column in _fields(columns, names, path) if field_id(column) is not None]
    return assigned(
        pa.schema([column for column in known if field_id(column) in own or field_id(column) not in constants])
    )


def _unidentified(fields: Iterable[pa.Field]) -> Iterator[str]:
    """The names of fields without an id. The parts of lists and maps need none: there is only one of each."""
    for column in fields:
        if field_id(column) is None:
            yield column.name
        yield from _unidentified(fields_below(column.type))


def _fields(fields: Iterable[pa.Field], names: Names, path: str) -> list[pa.Field]:
    """The fields of one struct. An id that a field has in the file is not given to another one by its name."""
    fields = list(fields)
    own = {field_id(column) for column in fields}
    by_id = {mapped.field_id: mapped for mapped in names.values()}
    found = []
    for column in fields:
        number = field_id(column)
        mapped = names.get(column.name) if number is None else by_id.get(number)
        if number is None and mapped is not None and mapped.field_id not in own:
            number = mapped.field_id
        metadata = None if number is None else {FIELD_ID: str(number)}
        children = {} if mapped is None else mapped.children
        found.append(column.with_type(_type(column.type, children, path)).with_metadata(metadata))
    counts = Counter(field_id(column) for column in found)
    for column in found:
        if field_id(column) is not None and counts[field_id(column)] > 1:
            same = " and ".join(repr(other.name) for other in found if field_id(other) == field_id(column))
            raise SchemaError(
                f"{path}: columns {same} have one field id, {field_id(column)}, by the table's {PROPERTY}"
            )
    return found


def _type(type_: pa.DataType, names: Names, path: str) -> pa.DataType:
    def part(column: pa.Field, name: str) -> pa.Field:
        mapped = names.get(name)
        return column.with_type(_type(column.type, {} if mapped is None else mapped.children, path))

    t = pa.types
    if t.is_struct(type_):
        return pa.struct(_fields(type_, names, path))
    if t.is_map(type_):
        return pa.map_(part(type_.key_field, "key"), part(type_.item_field, "value"))
    if is_list(type_):
        item = part(type_.value_field, "element")
        return pa.large_list(item) if t.is_large_list(type_) else pa.list_(item)
    return type_
