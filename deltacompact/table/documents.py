"""Data files as JSON: in log entries and in the records of sessions.

    {"number": 3, "path": "orders/data/7291….parquet", "rows": 3, "bytes": 1012, "schema": 0, …}     schemas: ["…"]

Each distinct schema of a document is written once, and files refer to it by number. A file with a full URI is not
managed, any other file is; `managed` is written only for exceptions to this rule.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltacompact.base.data_file import Clustered, DataFile, DeletionVector, FarValues, Stamp
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import ContentType
from deltacompact.storage.identity import is_uri


def file_to_json(file: DataFile, schemas: SchemaTable) -> dict[str, Any]:
    document: dict[str, Any] = {
        "number": file.number,
        "path": file.path,
        "content_type": file.content_type,
        "rows": file.rows,
        "bytes": file.bytes,
        "schema": schemas.add(file.schema),
    }
    if file.deletions:
        document["deletions"] = dataclasses.asdict(file.deletions)
    if file.name is not None:
        document["name"] = file.name
    if file.stamp:
        known = dataclasses.asdict(file.stamp).items()
        document["stamp"] = {name: value for name, value in known if value is not None}
    if file.longest:
        document["longest"] = dict(file.longest)
    if file.decoded_bytes is not None:
        document["decoded_bytes"] = file.decoded_bytes
    if file.far is not None:
        document["far"] = file.far
    if file.nulls is not None:
        document["nulls"] = dict(file.nulls)
    if file.managed is is_uri(file.path):
        document["managed"] = file.managed
    if file.decodes:
        document["decodes"] = True
    if file.group_bytes is not None:
        document["group_bytes"] = file.group_bytes
    if file.widest_row_bytes is not None:
        document["widest_row_bytes"] = file.widest_row_bytes
    if file.ranges:
        document["ranges"] = file.ranges
    if file.fingerprint is not None:
        document["fingerprint"] = str(file.fingerprint)
    if file.clustered is not None:
        document["clustered"] = dataclasses.asdict(file.clustered)
    return document


def file_from_json(value: dict[str, Any], schemas: SchemaTable) -> DataFile:
    return DataFile(
        value["number"],
        value["path"],
        ContentType(value["content_type"]),
        value["rows"],
        value["bytes"],
        schemas[value["schema"]],
        DeletionVector(**value["deletions"]) if "deletions" in value else None,
        value.get("name"),
        Stamp(**value["stamp"]) if "stamp" in value else None,
        tuple(value.get("longest", {}).items()),
        value.get("decoded_bytes"),
        value.get("managed", not is_uri(value["path"])),
        far=far_from_json(value),
        nulls=tuple(value["nulls"].items()) if "nulls" in value else None,
        decodes=value.get("decodes", False),
        group_bytes=value.get("group_bytes"),
        ranges=tuple(map(tuple, value.get("ranges", ()))),
        fingerprint=Fingerprint.certain(value.get("fingerprint")),
        widest_row_bytes=value.get("widest_row_bytes"),
        clustered=_clustered(value["clustered"]) if "clustered" in value else None,
    )


def _clustered(value: Mapping[str, Any]) -> Clustered:
    return Clustered(value["by"], value["run"], tuple((name, low, high) for name, low, high in value["ranges"]))


def far_from_json(value: Mapping[str, Any]) -> FarValues | None:
    """The far values of a file or of compacted rows; None: the release that wrote the document did not measure them."""
    far = value.get("far")
    return None if far is None else tuple((path, low, high) for path, low, high in far)


def encoded_schema(schema: pa.Schema) -> str:
    """The schema without metadata, as Arrow serializes it."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode()


def decoded_schema(text: str) -> pa.Schema:
    """The schema of such a text."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class SchemaTable:
    """The distinct schemas of one document, by number."""

    def __init__(self, encoded: Any = ()) -> None:
        self.encoded: list[str] = list(encoded)
        self._decoded: dict[int, pa.Schema] = {}
        self._numbers: dict[str, int] = {text: number for number, text in enumerate(self.encoded)}
        self._added: dict[int, tuple[pa.Schema, int]] = {}

    def add(self, schema: pa.Schema) -> int:
        if id(schema) not in self._added:  # encode once: it takes long, and most files of a stream share a schema
            self._added[id(schema)] = (schema, self._add(schema))
        return self._added[id(schema)][1]

    def _add(self, schema: pa.Schema) -> int:
        text = encoded_schema(schema)
        if text not in self._numbers:
            self._numbers[text] = len(self.encoded)
            self.encoded.append(text)
        return self._numbers[text]

    def __getitem__(self, number: int) -> pa.Schema:
        if number not in self._decoded:
            self._decoded[number] = decoded_schema(self.encoded[number])
        return self._decoded[number]
