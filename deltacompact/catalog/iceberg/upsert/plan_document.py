"""An upsert plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg upsert plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "compared_by": "key id; scope table", "key_spaces": 1, "rows": 1000, "bytes": 4000,
              "files": ["…/a.parquet", …], "settled_files": 2}}

The document names data files; their deletes are those of now. Files that came since the plan are left to the next run.
A file that is not there any more makes the plan stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.base.model import SortKey
from deltacompact.catalog.iceberg.rewrite.plan_document import checksum
from deltacompact.catalog.iceberg.table.table_state import TableState
from deltacompact.catalog.iceberg.upsert.options import Reach, UpsertOptions
from deltacompact.catalog.iceberg.upsert.plan import UpsertPlan, plan_of_files

PLAN_FORMAT = 1
_KIND = "iceberg upsert plan"


def plan_document(plan: UpsertPlan) -> dict[str, Any]:
    """The document, with its checksum."""
    body = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
        "compared_by": plan.words,
        "key_spaces": len(plan.key_spaces),
        "rows": plan.rows,
        "bytes": plan.bytes,
        "files": [source.entry.file.path for source in plan.inputs],
        "settled_files": plan.settled_files,
    }
    return {"format": PLAN_FORMAT, "kind": _KIND, "sha256": checksum(body), "plan": body}


def plan_to_json(plan: UpsertPlan) -> str:
    """The plan as JSON. `plan_from_json` returns an equal plan as long as the table is as it was."""
    return json.dumps(plan_document(plan), indent=1)


def plan_from_json(text: str | bytes, state: TableState) -> UpsertPlan:
    """The plan of a document, resolved in the table of now.

    Raises InputError if it is no plan, is damaged, or is of another table, and ConflictError if it is stale.
    """
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError("this is not an Iceberg upsert plan: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InputError("this is not an Iceberg upsert plan")
    if document.get("format") != PLAN_FORMAT:
        raise InputError(f"the plan has format {document.get('format')!r}, not {PLAN_FORMAT}: update deltacompact")
    body: Any = document.get("plan")
    if document.get("sha256") != checksum(body):
        raise InputError("the plan is damaged: its SHA-256 differs")
    if (body["uuid"], body["branch"]) != (state.metadata.uuid, state.branch):
        raise InputError(f"the plan is of branch {body['branch']!r} of table {body['table']!r} ({body['uuid']})")
    plan = plan_of_files(state, _options(body["options"]), frozenset(body["files"]))
    there = {source.entry.file.path for source in plan.inputs}
    if gone := next((path for path in body["files"] if path not in there), None):
        raise ConflictError(f"the plan is stale: another commit removed {gone}")
    if plan.words != body["compared_by"]:
        raise ConflictError(f"the plan is stale: it compares by {body['compared_by']}, now that is {plan.words}")
    return replace(
        plan,
        snapshot_id=body["snapshot_id"],
        sequence_number=body["sequence_number"],
        settled_files=body["settled_files"],
    )


def _options(options: Mapping[str, Any]) -> UpsertOptions:
    return UpsertOptions(
        tuple(options["key_columns"]),
        tuple(SortKey.of((key["name"], key["direction"])) for key in options["sort_columns"]),
        options["operation_column"],
        tuple(options["delete_values"]),
        None if options["reach"] is None else Reach(options["reach"]),
        options["trusts_row_order"],
        options.get("key_index"),
    )
