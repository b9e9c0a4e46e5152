"""Checkpoints: one Parquet file with the state of a version (PROTOCOL.md, "V1 Spec", "Classic checkpoint").

protocol   metaData   txn            add               remove
{3, 7, …}  null       null           null              null
null       null       null           {a, stats, …}     null
null       null       null           null              {c, deletionTimestamp}      a tombstone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXTS),
        ("deletionVector", _VECTOR),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_SCHEMA = pa.schema(
    [("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)]
)


def checkpoint_file(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """The bytes of a checkpoint with these actions."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(actions), _SCHEMA), sink)
    return bytes(sink.getvalue())


def actions_in(data: bytes) -> list[dict[str, Any]]:
    """The actions of a checkpoint, as commits have them."""
    file = pq.ParquetFile(pa.BufferReader(data))
    table = file.read(columns=[name for name in _SCHEMA.names if name in file.schema_arrow.names])
    return [
        {kind: _without_nulls(action)}
        for kind in table.column_names
        for action in table[kind].filter(table[kind].is_valid()).to_pylist(maps_as_pydicts="strict")
    ]


def _without_nulls(value: Any) -> Any:
    """The value without nulls, as a commit has it. Partition values stay: they are texts or null."""
    if not isinstance(value, dict):
        return value
    return {
        name: inside if name == "partitionValues" else _without_nulls(inside)
        for name, inside in value.items()
        if inside is not None
    }
