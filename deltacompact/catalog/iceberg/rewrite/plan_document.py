"""A rewrite plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg rewrite plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "groups": [{"partition": [3], "output_files": 1, "bytes": …, "rows": …,
                          "inputs": [{"path": "…/a.parquet", "reason": "too_small", "equality": ["…/e.parquet"], …}]}],
              "stays": {"right_size": 12}}}

The document names files; their manifest entries are looked up in the table of now. A file or a delete that is not there
any more makes the plan stale. What came since the plan is judged at the commit, like any other commit of others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.iceberg.deletes.matching import Deletes
from deltacompact.catalog.iceberg.rewrite.options import JobOrder, RewriteOptions
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, Input, Reason, RewritePlan
from deltacompact.catalog.iceberg.table.content_files import Entry
from deltacompact.catalog.iceberg.table.table_state import TableState

PLAN_FORMAT = 1
_KIND = "iceberg rewrite plan"


def plan_document(plan: RewritePlan) -> dict[str, Any]:
    """The document, with its checksum."""
    body = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
        "groups": [_group(group) for group in plan.groups],
        "stays": {reason.value: count for reason, count in plan.stays},
    }
    return {"format": PLAN_FORMAT, "kind": _KIND, "sha256": checksum(body), "plan": body}


def plan_to_json(plan: RewritePlan) -> str:
    """The plan as JSON. `plan_from_json` returns an equal plan as long as the table has its files."""
    return json.dumps(plan_document(plan), indent=1)


def plan_from_json(text: str | bytes, state: TableState) -> RewritePlan:
    """The plan of a document, resolved in the table of now.

    Raises InputError if it is no plan, is damaged, or is of another table, and ConflictError if it is stale.
    """
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError("this is not an Iceberg rewrite plan: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InputError("this is not an Iceberg rewrite plan")
    if document.get("format") != PLAN_FORMAT:
        raise InputError(f"the plan has format {document.get('format')!r}, not {PLAN_FORMAT}: update deltacompact")
    body: Any = document.get("plan")
    if document.get("sha256") != checksum(body):
        raise InputError("the plan is damaged: its SHA-256 differs")
    if (body["uuid"], body["branch"]) != (state.metadata.uuid, state.branch):
        raise InputError(f"the plan is of branch {body['branch']!r} of table {body['table']!r} ({body['uuid']})")
    options = RewriteOptions(**body["options"] | {"job_order": JobOrder(body["options"]["job_order"])})
    data = {entry.file.key: entry for entry in state.data}
    deletes = {entry.file.key: entry for entry in state.deletes}
    groups = tuple(_group_of(number, group, data, deletes) for number, group in enumerate(body["groups"]))
    return RewritePlan(
        body["table"],
        body["uuid"],
        body["branch"],
        body["snapshot_id"],
        body["sequence_number"],
        options,
        groups,
        tuple((Reason(reason), count) for reason, count in body["stays"].items()),
    )


def checksum(body: Any) -> str:
    """SHA-256 of the plan in one canonical form."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _group(group: FileGroup) -> dict[str, Any]:
    return {
        "spec_id": group.spec_id,
        "partition": [value.hex() if isinstance(value, bytes) else value for value in group.partition],
        "output_files": group.output_files,
        "bytes": group.bytes,
        "rows": group.rows,
        "inputs": [_input(source) for source in group.inputs],
    }


def _input(source: Input) -> dict[str, Any]:
    deletes = source.deletes
    return {
        "path": source.entry.file.path,
        "reason": source.reason.value,
        "equality": [entry.file.path for entry in deletes.equality],
        "positions": [entry.file.path for entry in deletes.positions],
        "vector": list(deletes.vector.file.key) if deletes.vector else None,
    }


Keyed = Mapping[tuple[str, int | None], Entry]


def _group_of(number: int, group: Mapping[str, Any], data: Keyed, deletes: Keyed) -> FileGroup:
    inputs = tuple(
        Input(
            _found(data, (source["path"], None)),
            Deletes(
                _all_found(deletes, source["equality"]),
                _all_found(deletes, source["positions"]),
                _found(deletes, tuple(source["vector"])) if source["vector"] else None,
            ),
            Reason(source["reason"]),
        )
        for source in group["inputs"]
    )
    first = inputs[0].entry.file
    return FileGroup(number, first.spec_id, first.partition, inputs, group["output_files"])


def _all_found(entries: Keyed, paths: Iterable[str]) -> tuple[Entry, ...]:
    return tuple(_found(entries, (path, None)) for path in paths)


def _found(entries: Keyed, key: Any) -> Entry:
    if key not in entries:
        raise ConflictError(f"the plan is stale: another commit removed {key[0]}")
    return entries[key]
