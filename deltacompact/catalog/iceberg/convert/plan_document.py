"""A convert plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg convert plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 7, "options": {…},
              "equality_deletes": [{"path": "…/e.parquet", "reason": "applies", "rows": 17, "data_files": 1}],
              "data_files": [{"path": "…/a.parquet", "rows": …, "equality_deletes": 1, "position_deletes": 0}],
              "not_opened": 12, "stays": {}}}

The document names files; which delete applies to which data file is found again in the table of now. An equality
delete that is not there any more makes the plan stale. A data file that is gone need not be asked.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.iceberg.convert.options import ConvertOptions
from deltacompact.catalog.iceberg.convert.plan import Conversion, ConvertPlan, Reason, plan_conversion
from deltacompact.catalog.iceberg.deletes.finding import Asked
from deltacompact.catalog.iceberg.rewrite.plan_document import checksum
from deltacompact.catalog.iceberg.table.table_state import TableState

PLAN_FORMAT = 1
KIND = "iceberg convert plan"


def plan_document(plan: ConvertPlan) -> dict[str, Any]:
    """The document, with its checksum."""
    body = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
        "equality_deletes": [_conversion(one) for one in plan.conversions],
        "data_files": [_asked(one) for one in plan.asked],
        "not_opened": plan.not_opened,
        "stays": {reason.value: count for reason, count in plan.stays},
    }
    return {"format": PLAN_FORMAT, "kind": KIND, "sha256": checksum(body), "plan": body}


def plan_to_json(plan: ConvertPlan) -> str:
    """The plan as JSON. `plan_from_json` returns an equal plan as long as the table has its files."""
    return json.dumps(plan_document(plan), indent=1)


def plan_from_json(text: str | bytes, state: TableState) -> ConvertPlan:
    """The plan of a document, resolved in the table of now.

    Raises InputError if it is no plan, is damaged, or is of another table, and ConflictError if it is stale.
    """
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError(f"this is not an {KIND}: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"this is not an {KIND}")
    if document.get("format") != PLAN_FORMAT:
        raise InputError(f"the plan has format {document.get('format')!r}, not {PLAN_FORMAT}: update deltacompact")
    body: Any = document.get("plan")
    if document.get("sha256") != checksum(body):
        raise InputError("the plan is damaged: its SHA-256 differs")
    if (body["uuid"], body["branch"]) != (state.metadata.uuid, state.branch):
        raise InputError(f"the plan is of branch {body['branch']!r} of table {body['table']!r} ({body['uuid']})")
    deletes = [one["path"] for one in body["equality_deletes"]]
    live = {entry.file.path for entry in state.deletes}
    for path in deletes:
        if path not in live:
            raise ConflictError(f"the plan is stale: another commit removed {path}")
    data = frozenset(one["path"] for one in body["data_files"])
    found = plan_conversion(state, ConvertOptions(**body["options"]), frozenset(deletes), data)
    return replace(
        found,
        snapshot_id=body["snapshot_id"],
        sequence_number=body["sequence_number"],
        not_opened=body["not_opened"],
        stays=tuple((Reason(reason), count) for reason, count in body["stays"].items()),
    )


def _conversion(one: Conversion) -> dict[str, Any]:
    return {
        "path": one.entry.file.path,
        "reason": one.reason.value,
        "rows": one.entry.file.rows,
        "data_files": one.data_files,
    }


def _asked(one: Asked) -> dict[str, Any]:
    return {
        "path": one.entry.file.path,
        "rows": one.entry.file.rows,
        "equality_deletes": len(one.deletes.equality),
        "position_deletes": len(one.deletes.by_position),
    }
