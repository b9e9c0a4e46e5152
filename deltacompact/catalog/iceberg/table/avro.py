"""Avro files in memory, the only door to fastavro. Values stay as they are stored: a date is a whole number of days.

    written(schema, records, metadata)  ->  bytes
    records(bytes)                      ->  the records as dicts, and the file's metadata

fastavro would turn logical types into Python objects, which cannot hold every value (a year above 9999). So the logical
types are taken out of the header's schema before the records are decoded. Values go back under the same schema, with
its logical types.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from deltacompact.base.errors import CorruptionError

MAGIC = b"Obj\x01"
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_SCHEMA = "avro.schema"


def written(schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
    """An Avro file, deflated as Iceberg's own manifests are."""
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(dict(schema)), records, codec="deflate", metadata=dict(metadata))
    return sink.getvalue()


def records(data: bytes, path: str) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, str]]:
    """The records, the writer's schema and the metadata. Raises CorruptionError naming the file if it is not Avro."""
    try:
        source = io.BytesIO(data)
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
        if header["magic"] != MAGIC:
            raise ValueError("it does not begin like an Avro file")
        schema = json.loads(header["meta"][_SCHEMA])
        metadata = {name: text.decode() for name, text in header["meta"].items()}
        header["meta"][_SCHEMA] = json.dumps(_without_logical_types(schema)).encode()
        plain = io.BytesIO()
        fastavro.schemaless_writer(plain, _HEADER, header)
        plain.write(source.read())
        plain.seek(0)
        found: list[Any] = list(fastavro.reader(plain))
        return found, schema, metadata
    except (ValueError, KeyError, TypeError, IndexError, EOFError, OSError, StopIteration) as error:
        raise CorruptionError(f"{path} is not a readable Avro file: {error or type(error).__name__}") from error


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return [_without_logical_types(value) for value in schema] if isinstance(schema, list) else schema
