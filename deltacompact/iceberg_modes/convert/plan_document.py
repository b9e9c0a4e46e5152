"""A convert plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg convert plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 7, "options": {…},
              "equality_deletes": [{"path": "…/e.parquet", "reason": "applies", "rows": 17, "data_files": 1}],
              "deletes": [["…/e.parquet", null]],
              "groups": [{"rows": …, "bytes": …, "inputs": [{"path": "…/a.parquet", "equality": [[0, 1]], …}]}],
              "not_opened": 12, "stays": {}}}

Which delete applies to which data file is computed anew from the current table. If a planned equality delete is gone,
the plan is stale. If a data file is gone, it need not be searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes import plan_envelope
from deltacompact.iceberg_modes.convert.options import NAME, ConvertOptions
from deltacompact.iceberg_modes.convert.plan import Conversion, ConvertPlan, ConvertReason, plan_conversion
from deltacompact.iceberg_modes.options import stored_options
from deltacompact.iceberg_modes.plan_envelope import (
    all_input_paths,
    as_planned,
    groups_document,
    stale,
    stays_document,
    stays_of,
)


def plan_document(plan: ConvertPlan) -> dict[str, Any]:
    """The document, with its checksum."""
    body = {
        "equality_deletes": [_conversion(conversion) for conversion in plan.conversions],
        **groups_document(
            plan.groups,
            lambda group: {"rows": group.rows, "bytes": group.bytes},
            lambda source: {"rows": source.entry.file.rows},
        ),
        "not_opened": plan.not_opened,
        "stays": stays_document(plan.stays),
    }
    return plan_envelope.enveloped(plan, body)


def plan_from_json(text: str | bytes, state: TableState, done: frozenset[str] = frozenset()) -> ConvertPlan:
    """The plan of a document, resolved in the current table. Equality deletes that are `done` may be gone.

    Raises InputError if it is no plan, is damaged, or is of another table, and ConflictError if it is stale.
    """
    body = plan_envelope.opened(text, NAME, state)
    deletes = equality_paths(body)
    live = {entry.file.path for entry in state.deletes}
    if gone := next((delete["path"] for delete in body["equality_deletes"] if delete["path"] not in live | done), None):
        raise stale(gone)
    options = stored_options(ConvertOptions, body["options"])
    found = plan_conversion(state, options, deletes, all_input_paths(body))
    return as_planned(found, body, not_opened=body["not_opened"], stays=stays_of(body, ConvertReason))


def equality_paths(body: Mapping[str, Any]) -> frozenset[str]:
    """The equality deletes that the plan of a document converts."""
    return frozenset(delete["path"] for delete in body["equality_deletes"])


def _conversion(delete: Conversion) -> dict[str, Any]:
    return {
        "path": delete.entry.file.path,
        "reason": delete.reason.value,
        "rows": delete.entry.file.rows,
        "data_files": delete.data_files,
    }
