"""The lines of a commit (PROTOCOL.md, "Actions").

{"commitInfo": …}                                                   unique: shows whose commit a version is
{"protocol": …}   {"metaData": …}                                   if they change
{"txn": {"appId": "file:///lake/orders/day=1", "version": 4}}       version 4 of this stream is shown from here on
{"remove": {"path": "/lake/…", "deletionVector": …}}                names the vector that the file was added with
{"add": {"path": "/lake/…", "deletionVector": …}}
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from deltacompact.publication.delta.difference import DEAD_ROWS
from deltacompact.publication.delta.log import Action
from deltacompact.publication.port import ShownFile, Value

_ENGINE = "deltacompact"


def commit_lines(actions: Iterable[Action]) -> bytes:
    """Characters are not escaped: delta-rs takes the escapes of each second plane, as of "𠮷", for other characters."""
    lines = (json.dumps(action, separators=(",", ":"), ensure_ascii=False) for action in actions)
    return b"".join(line.encode() + b"\n" for line in lines)


def commit_info(now_ms: int) -> Action:
    info = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}
    return {"commitInfo": info | {"isBlindAppend": False, "engineInfo": _ENGINE, "txnId": str(uuid.uuid4())}}


def metadata_with(
    known: Action, schema_string: str, keys: Iterable[str], properties: Mapping[str, str], now_ms: int
) -> dict[str, Any]:
    """The known metadata, with these columns and properties."""
    fresh = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "createdTime": now_ms}
    configuration = {**(known.get("configuration") or {}), **properties}
    changed = {"schemaString": schema_string, "partitionColumns": list(keys), "configuration": configuration}
    return fresh | dict(known) | changed


def transaction(application: str, version: int, now_ms: int) -> Action:
    return {"txn": {"appId": application, "version": version, "lastUpdated": now_ms}}


def add(
    file: ShownFile, path: str, keys: Iterable[str], statistics: str, vector: Mapping[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    """`path`: the file, as this log names it."""
    added: dict[str, Any] = {
        "path": path,
        "partitionValues": partition_texts(file, keys),
        "size": file.file.bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": statistics,
    }
    if vector is not None:
        added |= {"deletionVector": dict(vector), "tags": {DEAD_ROWS: file.dead_rows}}
    return {"add": added}


def remove(file: Action, now_ms: int) -> dict[str, Any]:
    """The action names the file's deletion vector. Without it, readers would keep the file, and see its rows twice."""
    removed = {
        "path": file["path"],
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": file["partitionValues"],
        "size": file["size"],
    }
    vector = file.get("deletionVector")
    return {"remove": removed | ({} if vector is None else {"deletionVector": vector})}


def partition_texts(file: ShownFile, keys: Iterable[str]) -> dict[str, str | None]:
    """PROTOCOL.md, "Partition Value Serialization"."""
    return {key: _text(value) for key, value in zip(keys, file.partition, strict=True)}


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
