"""Columns as the JSON of a Delta table's metadata (PROTOCOL.md, "Schema Serialization Format"). Pure.

    id int32, then int64    {"name":"id","type":"long","nullable":true,
                             "metadata":{"delta.typeChanges":[{"fromType":"integer","toType":"long"}]}}

If a file has a narrower type than the table, the change is recorded: readers convert only types that are in this
history ("Type Widening").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError

TYPE_CHANGES = "delta.typeChanges"
_PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {type_: name for name, type_ in _PRIMITIVES.items()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")

Json = Any


def schema_string(columns: pa.Schema, known: str | None, stored: Sequence[pa.Schema]) -> str:
    """The columns as the metadata has them. `known`: the schema string before; `stored`: the columns of files.

    All columns have types of Delta tables.
    """
    before = json.loads(known) if known else {}
    older = [*stored, *([] if known is None else [columns_of(known, "")])]
    struct = pa.struct(list(columns))
    return json.dumps(_struct_json(struct, before, [pa.struct(list(schema)) for schema in older]))


def columns_of(text: str, where: str) -> pa.Schema:
    """The columns of a table. Raises InputError naming a column of a type that no publication has."""
    fields = json.loads(text)["fields"]
    return pa.schema([_field_of(field, f"{where}: column {field['name']!r}") for field in fields])


def is_widened(text: str) -> bool:
    """Whether some file has another type for a column."""
    return any(TYPE_CHANGES in metadata for metadata in _metadata(json.loads(text)))


def has_local_times(columns: pa.Schema) -> bool:
    """Whether a column has timestamps without a zone."""
    return any(_has_local_times(field.type) for field in columns)


def _has_local_times(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.tz is None
    return any(_has_local_times(type_.field(index).type) for index in range(type_.num_fields))


def _metadata(type_: Json) -> Iterator[Mapping[str, Any]]:
    """The metadata of all fields of a type."""
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield field["metadata"]
        yield from _metadata(field["type"])
    for inside in ("elementType", "keyType", "valueType"):
        yield from _metadata(type_.get(inside))


# To JSON


def _struct_json(type_: pa.StructType, before: Mapping[str, Any], older: Sequence[pa.DataType]) -> Json:
    known = {field["name"]: field for field in before.get("fields", ())}
    structs = [old for old in older if pa.types.is_struct(old)]
    fields = []
    for field in type_:
        had = [struct.field(index).type for struct in structs if (index := struct.get_field_index(field.name)) >= 0]
        fields.append(_field_json(field, known.get(field.name, {}), had))
    return {"type": "struct", "fields": fields}


def _field_json(field: pa.Field, before: Mapping[str, Any], older: Sequence[pa.DataType]) -> Json:
    metadata = dict(before.get("metadata", {}))
    recorded = list(metadata.get(TYPE_CHANGES, ()))
    for type_ in older:
        recorded += [change for change in _changes(type_, field.type, ()) if change not in recorded]
    if recorded:
        metadata[TYPE_CHANGES] = recorded
    type_ = _type_json(field.type, before.get("type"), older)
    return {"name": field.name, "type": type_, "nullable": True, "metadata": metadata}


def _type_json(type_: pa.DataType, before: Json, older: Sequence[pa.DataType]) -> Json:
    t, known = pa.types, before if isinstance(before, dict) else {}
    if t.is_struct(type_):
        return _struct_json(type_, known, older)
    if t.is_map(type_):
        maps = [old for old in older if t.is_map(old)]
        return {
            "type": "map",
            "keyType": _type_json(type_.key_type, known.get("keyType"), [map_.key_type for map_ in maps]),
            "valueType": _type_json(type_.item_type, known.get("valueType"), [map_.item_type for map_ in maps]),
            "valueContainsNull": True,
        }
    if t.is_list(type_):
        inner = [old.value_type for old in older if t.is_list(old)]
        element = _type_json(type_.value_type, known.get("elementType"), inner)
        return {"type": "array", "elementType": element, "containsNull": True}
    return _name(type_)


def _name(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _NAMES[type_]


def _changes(before: pa.DataType, after: pa.DataType, path: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The changes below one field, down to the next struct, whose fields have their own changes."""
    t = pa.types
    if t.is_list(after) and t.is_list(before):
        yield from _changes(before.value_type, after.value_type, (*path, "element"))
    elif t.is_map(after) and t.is_map(before):
        yield from _changes(before.key_type, after.key_type, (*path, "key"))
        yield from _changes(before.item_type, after.item_type, (*path, "value"))
    elif not t.is_nested(after) and before != after:
        where = {"fieldPath": ".".join(path)} if path else {}
        yield {"fromType": _name(before), "toType": _name(after)} | where


# From JSON


def _field_of(field: Mapping[str, Any], what: str) -> pa.Field:
    return pa.field(field["name"], _type_of(field["type"], what), field.get("nullable", True))


def _type_of(type_: Json, what: str) -> pa.DataType:
    if isinstance(type_, dict):
        return _nested_of(type_, what)
    if found := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(found[1]), int(found[2]))
    if type_ not in _PRIMITIVES:
        raise InputError(f"{what} is {type_!r}, which publications do not have")
    return _PRIMITIVES[type_]


def _nested_of(type_: Mapping[str, Any], what: str) -> pa.DataType:
    match type_["type"]:
        case "struct":
            return pa.struct([_field_of(field, f"{what}, {field['name']!r}") for field in type_["fields"]])
        case "array":
            return pa.list_(_type_of(type_["elementType"], what))
        case "map":
            return pa.map_(_type_of(type_["keyType"], what), _type_of(type_["valueType"], what))
    raise InputError(f"{what} is {type_['type']!r}, which publications do not have")
