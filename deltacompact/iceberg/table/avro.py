"""Avro files in memory, the only door to fastavro. Values stay as they are stored: a date is a whole number of days.

    written(schema, records, metadata)  ->  bytes
    records(bytes)                      ->  the records as dicts, and the file's metadata
    split(bytes, "data_file", …)        ->  each record, with the field "data_file" as its stored bytes
    Growing(schema, metadata)           ->  a file that grows by records which are encoded already

fastavro would turn logical types into Python objects, which cannot hold every value (a year above 9999). So the logical
types are taken out of the header's schema before the records are decoded. Values go back under the same schema, with
its logical types.

fastavro reads the codecs of Python's own library. Arrow decodes snappy and zstandard, in which other engines write.
"""

from __future__ import annotations

import functools
import io
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

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
_LONG = fastavro.parse_schema("long")
_SCHEMA = "avro.schema"
_CODEC = "avro.codec"


def avro_bytes(schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
    """An Avro file, deflated as Iceberg's own manifests are."""
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(dict(schema)), records, codec="deflate", metadata=dict(metadata))
    return sink.getvalue()


def records(data: bytes, path: str) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, str]]:
    """The records, the writer's schema and the metadata. Raises CorruptionError naming the file if it is not Avro."""
    with _naming(path):
        meta, schema, plain = _plain(data)
        found: list[Any] = list(fastavro.reader(plain))
        return found, schema, {name: text.decode() for name, text in meta.items()}


def schema_of(data: bytes, path: str) -> dict[str, Any]:
    """The writer's schema. Raises CorruptionError naming the file if it is not Avro."""
    with _naming(path):
        return _header(io.BytesIO(data))[1]


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """One record, with one field (a record itself) as its stored bytes.

    around   all other fields
    seen     the wanted fields of the stored record, decoded
    stored   the bytes of the stored record
    """

    around: dict[str, Any]
    seen: dict[str, Any]
    stored: bytes


def split(data: bytes, path: str, name: str, seen: Collection[str]) -> list[SplitRecord]:
    """Each record, with the field `name` as stored bytes. Of its own fields, only those in `seen` are decoded."""
    with _naming(path):
        _, schema, plain = _plain(data)
        fields = _without_logical_types(schema)["fields"]
        place = next(place for place, field in enumerate(fields) if field["name"] == name)
        inner = fields[place]["type"]
        before, stored, after = (
            fastavro.parse_schema(schema)
            for schema in (_record("before", fields[:place]), inner, _record("after", fields[place + 1 :]))
        )
        wanted = fastavro.parse_schema(inner | {"fields": [part for part in inner["fields"] if part["name"] in seen]})
        found = []
        for block in fastavro.block_reader(plain):
            source: io.BytesIO = block.bytes_  # type: ignore[attr-defined]
            raw = source.getvalue()
            for _ in range(block.num_records):
                around: Any = fastavro.schemaless_reader(source, before, None)
                start = source.tell()
                part: Any = fastavro.schemaless_reader(source, stored, wanted)
                end = source.tell()
                if place + 1 < len(fields):
                    around |= fastavro.schemaless_reader(source, after, None)
                found.append(SplitRecord(around, part, raw[start:end]))
        return found


class Codec:
    """Turns records of one schema into bytes, and back."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = fastavro.parse_schema(_without_logical_types(dict(schema)))

    def decoded(self, data: bytes) -> dict[str, Any]:
        found: Any = fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)
        return dict(found)

    def encoded(self, record: Mapping[str, Any]) -> bytes:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, self._schema, record)
        return sink.getvalue()


class Growing:
    """A deflated Avro file to which encoded records are added. `size`: its bytes so far."""

    BLOCK_BYTES = 64_000

    def __init__(self, schema: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        self._sync = os.urandom(16)
        meta = {_SCHEMA: json.dumps(schema), _CODEC: "deflate", **metadata}
        self._sink = io.BytesIO()
        header = {
            "magic": MAGIC,
            "meta": {name: text.encode() for name, text in meta.items()},
            "sync": self._sync,
        }
        fastavro.schemaless_writer(self._sink, _HEADER, header)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of the blocks that are complete."""
        return self._sink.tell()

    def add(self, record: bytes) -> None:
        self._waiting.append(record)
        self._waiting_bytes += len(record)
        if self._waiting_bytes >= self.BLOCK_BYTES:
            self._end_block()

    def finished(self) -> bytes:
        if self._waiting:
            self._end_block()
        return self._sink.getvalue()

    def _end_block(self) -> None:
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)  # Avro's deflate has no zlib header
        block = deflate.compress(b"".join(self._waiting)) + deflate.flush()
        _write_block(self._sink, len(self._waiting), block, self._sync)
        self._waiting, self._waiting_bytes = [], 0


_OF_DAMAGE = (
    *(ValueError, KeyError, TypeError, IndexError, EOFError, OSError, StopIteration),
    *(zlib.error, fastavro.schema.SchemaParseException),
)
"""What is raised where the bytes of a file make no sense."""


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except _OF_DAMAGE as error:
        raise CorruptionError(f"{path} is not a readable Avro file: {error or type(error).__name__}") from error


def _header(source: io.BytesIO) -> tuple[Any, dict[str, Any]]:
    header: Any = fastavro.schemaless_reader(source, _HEADER, None)
    if header["magic"] != MAGIC:
        raise ValueError("it does not begin like an Avro file")
    return header, _schemas(header["meta"][_SCHEMA])[0]


@functools.lru_cache(maxsize=256)
def _schemas(text: bytes) -> tuple[dict[str, Any], bytes]:
    """A schema as a header has it, and the same as text without logical types.

    Cached, because a table's manifests share a few schemas, and parsing took most of the time to read a small one.
    """
    schema = _spelled_out(json.loads(text), {})
    return schema, json.dumps(_without_logical_types(schema)).encode()


def _plain(data: bytes) -> tuple[dict[str, bytes], dict[str, Any], io.BytesIO]:
    """Metadata and schema of a file, and the file rewritten for fastavro: no logical types, and a codec it knows."""
    source = io.BytesIO(data)
    header, schema = _header(source)
    plain_schema = _schemas(header["meta"][_SCHEMA])[1]
    decode = _DECODERS.get(header["meta"].get(_CODEC, b"null"))
    if decode is not None:
        header["meta"][_CODEC] = b"null"
    plain = io.BytesIO()
    meta = header["meta"] | {_SCHEMA: plain_schema}
    fastavro.schemaless_writer(plain, _HEADER, header | {"meta": meta})
    if decode is None:
        plain.write(source.read())
    while decode is not None and source.tell() < len(data):
        rows: Any = fastavro.schemaless_reader(source, _LONG, None)
        size: Any = fastavro.schemaless_reader(source, _LONG, None)
        stored, sync = source.read(size), source.read(len(header["sync"]))
        if sync != header["sync"]:
            raise ValueError("a block does not end as its header says")
        _write_block(plain, rows, decode(stored), sync)
    plain.seek(0)
    return header["meta"], schema, plain


def _write_block(sink: io.BytesIO, rows: int, block: bytes, sync: bytes) -> None:
    fastavro.schemaless_writer(sink, _LONG, rows)
    fastavro.schemaless_writer(sink, _LONG, len(block))
    sink.write(block + sync)


def _spelled_out(schema: Any, defined: dict[str, Any]) -> Any:
    """The schema with each fixed type defined where it is used, under a name of its own.

    If two columns have the same decimal type, Java defines `decimal_9_2` at the first, and only names it at the second.
    PyIceberg defines it twice, which Avro forbids.
    """
    if isinstance(schema, list):
        return [_spelled_out(member, defined) for member in schema]
    if isinstance(schema, str) and schema in defined:
        defined[schema] = defined[schema] | {"name": defined[schema]["name"] + "_"}
        return defined[schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "fixed":
        former = defined.get(schema["name"])
        defined[schema["name"]] = schema if former is None else schema | {"name": former["name"] + "_"}
        return defined[schema["name"]]
    return {
        name: _spelled_out(value, defined) if name in ("type", "fields", "items", "values") else value
        for name, value in schema.items()
    }


def _from_snappy(stored: bytes) -> bytes:
    """The decoded block. It begins with its decoded size (seven bits a byte), and ends with a CRC-32 of its content."""
    last = next(place for place, byte in enumerate(stored) if byte < 128)
    size = sum((byte & 127) << (7 * place) for place, byte in enumerate(stored[: last + 1]))
    block: bytes = pa.decompress(stored[:-4], size, codec="snappy", asbytes=True)
    if zlib.crc32(block) != int.from_bytes(stored[-4:], "big"):
        raise ValueError("the CRC-32 of a block differs")
    return block


def _from_zstandard(stored: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
        block: bytes = stream.read()
        return block


_DECODERS = {b"snappy": _from_snappy, b"zstandard": _from_zstandard}


def _record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return [_without_logical_types(value) for value in schema] if isinstance(schema, list) else schema
