"""Rows of Avro files (object containers), as Kafka Connect writes change events. Tables hold no Avro files.

    {"type": "record", "fields": [{"name": "op", "type": "string"}, {"name": "after", "type": ["null", Value]}]}
    ->  op string, after struct<…>

The types of the columns come from the file's schema. Records, and items of arrays, that take no bytes are refused: a
small file may claim any number of them. fastavro decodes decimals and times of day. Dates, timestamps and UUIDs are
read as they are stored: fastavro would make Python objects of them, and Python's dates end with 9999.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any

import pyarrow as pa

from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.wording import text_of
from deltacompact.tabular.column_types import decimal_of

_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_AS_STORED = {"date", "uuid", *(name for name in _LOGICAL if "timestamp" in name)}
"""Logical types that Arrow takes as they are stored."""

_LACKS = re.compile(r"(\w+) codec is supported but you need to install one of the following libraries: \('([^']+)'")
"""What fastavro says of a codec whose library is not there."""


def read_avro(file: IO[bytes], path: str) -> pa.Table:
    """All rows. Raises InputError naming a file that is not Avro, or a field whose type no column can hold."""
    import fastavro

    data = file.read()
    try:
        reader = fastavro.reader(io.BytesIO(data))
        known = dict[str, pa.DataType]()
        record = _record(fastavro.parse_schema(reader.writer_schema), path)  # parsing gives every name its namespace
        schema = pa.schema([_field(field, known, path) for field in record["fields"]])
        if _takes_no_bytes(pa.struct(list(schema))):
            raise InputError(f"{path}: the records have no field with a value")
        stored, rows = fastavro.parse_schema(_as_stored(record)), list[Any]()
        for block in fastavro.block_reader(io.BytesIO(data)):
            source = block.bytes_  # type: ignore[attr-defined]  # documented, but not typed
            if block.num_records > len(source.getbuffer()):
                raise InputError(f"{path} is damaged: a block has more records than bytes")
            rows += [fastavro.schemaless_reader(source, stored) for _ in range(block.num_records)]
        return pa.Table.from_pylist(rows, schema)
    except DeltaCompactError:
        raise
    except Exception as error:  # broken bytes make fastavro raise almost anything, even SystemError
        if lacks := _LACKS.match(said := text_of(error)):
            raise InputError(
                f"{path} is compressed by {lacks[1]}, which needs {lacks[2]}: pip install {lacks[2]}"
            ) from error
        raise InputError(f"{path} cannot be read as Avro: {said[:200]}") from error


def _as_stored(schema: Any) -> Any:
    """The schema without logical types that Arrow takes as they are stored."""
    if isinstance(schema, list):
        return [_as_stored(inside) for inside in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {name: _as_stored(inside) for name, inside in schema.items() if not name.startswith("__fastavro")}
    return {name: inside for name, inside in fields.items() if name != "logicalType" or inside not in _AS_STORED}


def _record(schema: Any, path: str) -> Any:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InputError(f"{path}: the Avro file must hold records")
    return schema


def _field(field: Any, known: dict[str, pa.DataType], path: str) -> pa.Field:
    return pa.field(field["name"], _type(field["type"], known, f"{path}: field {field['name']!r}"))


def _type(schema: Any, known: dict[str, pa.DataType], path: str) -> pa.DataType:
    """The column's type. `known` has the named types so far: Avro defines a named type at its first use."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise InputError(f"{path} is a union of several types, which no column has")
        return _type(branches[0], known, path)
    if isinstance(schema, str):
        if schema not in known and schema not in _PRIMITIVE:
            raise InputError(f"{path} has the Avro type {schema!r}, which no column has")
        return known.get(schema) or _PRIMITIVE[schema]
    type_ = _composed(schema, known, path)
    if "name" in schema:
        known[schema["name"]] = type_
    return type_


def _composed(schema: Any, known: dict[str, pa.DataType], path: str) -> pa.DataType:
    match schema["type"], schema.get("logicalType"):
        case _, "decimal":
            return decimal_of(schema["precision"], schema.get("scale", 0))
        case _, logical if logical in _LOGICAL:
            return _LOGICAL[logical]
        case "record", _:
            return pa.struct([_field(field, known, path) for field in schema["fields"]])
        case "array", _:
            item = _type(schema["items"], known, path)
            if _takes_no_bytes(item):
                raise InputError(f"{path} is an array of values without bytes, which no column has")
            return pa.list_(item)
        case "map", _:
            return pa.map_(pa.string(), _type(schema["values"], known, path))
        case "fixed", _:
            return pa.binary(schema["size"])
        case "enum", _:
            return pa.string()
        case inner, _:
            return _type(inner, known, path)


def _takes_no_bytes(type_: pa.DataType) -> bool:
    """Whether Avro may store any number of these values in no bytes."""
    if pa.types.is_struct(type_):
        return all(_takes_no_bytes(field.type) for field in type_)
    return bool(pa.types.is_null(type_) or type_ == pa.binary(0))
