"""Writes a plan as JSON and reads it back, so that another process can execute it.

    {"format": 1, "kind": "compaction plan", "sha256": "5c5c…",
     "plan": {"snapshot": …, "keys": …, "options": …, "rounds": [[1, 2, 5, 80, 0]], "schemas": ["…"], …}}

Sources are not written: they are the snapshot's files in fold order. Each schema is written once. The checksum covers
the written plan, so a truncated or edited document is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import (
    CompactedDelta,
    Delta,
    ObjectRef,
    OperationType,
    Partition,
    SortKey,
    TableKeys,
)
from deltacompact.base.numbers import DeltaFileNumber, Ordinal
from deltacompact.base.settings import Options
from deltacompact.index.keys import Encoding, KeyClass, KeyColumn, SortColumn
from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning.plan import Capacity, CompactionPlan, Round, sources_of
from deltacompact.storage.checksummed import canonical, is_whole, with_checksum
from deltacompact.table.documents import SchemaTable, far_from_json, file_from_json, file_to_json
from deltacompact.table.ports import Moment, PartitionSnapshot

PLAN_FORMAT = 1
_KIND = "compaction plan"


def plan_to_json(plan: CompactionPlan) -> str:
    """The plan as one line of JSON. `plan_from_json` returns an equal plan."""
    schemas = SchemaTable()
    body = {
        "snapshot": _snapshot_to_json(plan.input, schemas),
        "keys": _keys_to_json(plan.keys),
        "options": plan.options.to_json(),
        "encoding": _encoding_to_json(plan.encoding, schemas),
        "schema": schemas.add(plan.schema),
        "rounds": [[getattr(round_, field.name) for field in fields(Round)] for round_ in plan.rounds],
        "hash_bucket_count": plan.hash_bucket_count,
        "changes_only": plan.changes_only,
        "base_manifest": json.loads(plan.base_manifest.to_bytes()) if plan.base_manifest else None,
        "tombstone_retention": plan.tombstone_retention,
        "capacity": asdict(plan.capacity),
        "schemas": schemas.encoded,
    }
    return canonical(with_checksum("plan", body, format=PLAN_FORMAT, kind=_KIND))


def plan_from_json(text: str | bytes) -> CompactionPlan:
    """The plan of a document. Raises InputError if it is not a plan, is damaged, or comes from a newer release."""
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError("this is not a compaction plan: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InputError("this is not a compaction plan")
    if document.get("format") != PLAN_FORMAT:
        version = document.get("format")
        raise InputError(f"the compaction plan has format {version!r}, not {PLAN_FORMAT}: update deltacompact")
    body: Any = document.get("plan")
    if not is_whole(document, "plan"):
        raise InputError("the compaction plan is damaged: its SHA-256 differs")
    try:
        return _plan_from_json(body)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(f"the compaction plan cannot be read: {error!r}") from error


def _plan_from_json(body: dict[str, Any]) -> CompactionPlan:
    schemas = SchemaTable(body["schemas"])
    snapshot = _snapshot_from_json(body["snapshot"], schemas)
    manifest = body["base_manifest"]
    return CompactionPlan(
        snapshot,
        _keys_from_json(body["keys"]),
        Options.from_json(body["options"]),
        _encoding_from_json(body["encoding"], schemas),
        schemas[body["schema"]],
        sources_of(snapshot),
        tuple(_round_from_json(*values) for values in body["rounds"]),
        body["hash_bucket_count"],
        body["changes_only"],
        IndexManifest.from_bytes(json.dumps(manifest).encode(), "the plan's base manifest") if manifest else None,
        body["tombstone_retention"],
        _capacity_from_json(body["capacity"]),
    )


def _snapshot_to_json(snapshot: PartitionSnapshot, schemas: SchemaTable) -> dict[str, Any]:
    base = snapshot.base
    return {
        "source_table_id": snapshot.source_table_id,
        "destination_table_id": snapshot.destination_table_id,
        "partition": [list(value) for value in snapshot.partition.values],
        "base": _compacted_to_json(base, schemas) if base else None,
        "owned": snapshot.owned,
        "deltas": [
            {
                "position": delta.position,
                "operation": delta.operation.value,
                "files": [file_to_json(file, schemas) for file in delta.files],
            }
            for delta in snapshot.deltas
        ],
        "index": asdict(snapshot.index) if snapshot.index else None,
        "watermark": snapshot.watermark,
        "next_file_number": snapshot.next_file_number,
        "moment": asdict(snapshot.moment),
        "identity": dict(snapshot.identity),
        "why": snapshot.why,
        "columns": None,  # the release before looks for it
    }


def _snapshot_from_json(document: Mapping[str, Any], schemas: SchemaTable) -> PartitionSnapshot:
    deltas = tuple(
        Delta(
            delta["position"],
            OperationType(delta["operation"]),
            tuple(file_from_json(file, schemas) for file in delta["files"]),
        )
        for delta in document["deltas"]
    )
    return PartitionSnapshot(
        document["source_table_id"],
        document["destination_table_id"],
        Partition(tuple((name, value) for name, value in document["partition"])),
        _compacted_from_json(document["base"], schemas) if document["base"] else None,
        document["owned"],
        deltas,
        ObjectRef(**document["index"]) if document["index"] else None,
        document["watermark"],
        document["next_file_number"],
        Moment(**document["moment"]),
        document["identity"],
        document["why"],
    )


def _compacted_to_json(compacted: CompactedDelta, schemas: SchemaTable) -> dict[str, Any]:
    return {
        "files": [file_to_json(file, schemas) for file in compacted.files],
        "index": asdict(compacted.index),
        "watermark": compacted.watermark,
        "next_file_number": compacted.next_file_number,
        "source_table_id": compacted.source_table_id,
        "source_lineage": compacted.source_lineage,
        "session_id": compacted.session_id,
        "schema": schemas.add(compacted.schema),
        "far": compacted.far,
    }


def _compacted_from_json(document: Mapping[str, Any], schemas: SchemaTable) -> CompactedDelta:
    return CompactedDelta(
        tuple(file_from_json(file, schemas) for file in document["files"]),
        ObjectRef(**document["index"]),
        document["watermark"],
        document["next_file_number"],
        document["source_table_id"],
        document["source_lineage"],
        document["session_id"],
        schemas[document["schema"]],
        far_from_json(document),
    )


def _keys_to_json(keys: TableKeys) -> dict[str, Any]:
    return {"primary": keys.primary, "sort": [[key.name, key.direction.value] for key in keys.sort]}


def _keys_from_json(document: Mapping[str, Any]) -> TableKeys:
    return TableKeys(tuple(document["primary"]), tuple(map(SortKey.of, document["sort"])))


def _capacity_from_json(document: Mapping[str, Any]) -> Capacity:
    return Capacity(**{**document, "nodes": tuple(document["nodes"])})


def _round_from_json(number: int, first: int, stop: int, position: int, file_number: int) -> Round:
    return Round(number, Ordinal(first), Ordinal(stop), position, DeltaFileNumber(file_number))


def _encoding_to_json(encoding: Encoding, schemas: SchemaTable) -> dict[str, Any]:
    """The encoding. A schema stores the types of its sort columns."""
    types = pa.schema([(column.name, column.type) for column in encoding.sort_columns])
    return {
        "version": encoding.version,
        "key_columns": [
            [column.name, column.key_class and column.key_class.name, column.scale] for column in encoding.key_columns
        ],
        "sort_columns": [[column.descending, column.width, column.longest] for column in encoding.sort_columns],
        "sort_types": schemas.add(types),
    }


def _encoding_from_json(document: Mapping[str, Any], schemas: SchemaTable) -> Encoding:
    key_columns = tuple(
        KeyColumn(name, KeyClass[key_class] if key_class else None, scale)
        for name, key_class, scale in document["key_columns"]
    )
    sort_columns = tuple(
        SortColumn(field.name, field.type, *known)
        for field, known in zip(schemas[document["sort_types"]], document["sort_columns"], strict=True)
    )
    return Encoding(key_columns, sort_columns, document["version"])
