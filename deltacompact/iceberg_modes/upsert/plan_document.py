"""Writes an upsert plan as JSON, for a person to approve and another process to carry out, and reads it back.

    {"format": 1, "kind": "iceberg upsert plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "compared_by": "key id; scope table", "recorded": "key 1; scope table", "through": 5,
              "deletes": [["…/e.parquet", null]],
              "groups": [{"key_space": [0, [3]], "rows": 1000, "bytes": 4000,
                          "inputs": [{"path": "…/a.parquet", "reason": "came_since", "equality": [[0, 1]], …}]}],
              "settled_files": 2, …}}

An approved plan compares the data files that it names, with their current deletes. Newer files are left to the next
run. If a named file is gone, the plan is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltacompact.base.errors import ConflictError
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes import plan_envelope
from deltacompact.iceberg_modes.options import stored_options
from deltacompact.iceberg_modes.plan_envelope import (
    NamedFiles,
    all_input_paths,
    as_planned,
    groups_document,
    plain,
    stale,
    value_of,
)
from deltacompact.iceberg_modes.upsert.columns import UpsertColumns
from deltacompact.iceberg_modes.upsert.options import NAME, Reach, UpsertOptions
from deltacompact.iceberg_modes.upsert.plan import (
    KeySpace,
    SpaceGroup,
    UpsertPlan,
    UpsertReason,
    UpsertTask,
    plan_of_files,
)


def plan_document(plan: UpsertPlan) -> dict[str, Any]:
    """The document, with its checksum."""
    body = {
        "format_version": plan.format_version,
        "compared_by": plan.words,
        "recorded": plan.recorded,
        "reach": plan.reach.value,
        "through": plan.through,
        **groups_document(plan.groups, _group, lambda source: {"reason": source.reason.value}),
        "settled_files": plan.settled_files,
    }
    return plan_envelope.enveloped(plan, body)


def plan_from_json(text: str | bytes, state: TableState) -> UpsertPlan:
    """The plan of a document, on the current table.

    Raises InputError if the text is not a plan, is damaged, or belongs to another table, and ConflictError if the plan
    is stale.
    """
    body = plan_envelope.opened(text, NAME, state)
    paths = all_input_paths(body)
    plan = plan_of_files(state, stored_options(UpsertOptions, body["options"]), paths)
    there = {source.entry.file.path for source in plan.inputs}
    if gone := next(iter(sorted(paths - there)), None):
        raise stale(gone)
    if plan.words != body["compared_by"]:
        raise ConflictError(f"the plan is stale: it compares by {body['compared_by']}, now that is {plan.words}")
    return as_planned(plan, body, through=body["through"], settled_files=body["settled_files"])


def plan_of_body(body: Mapping[str, Any], state: TableState, columns: UpsertColumns) -> UpsertPlan:
    """The plan as it was made, with the deletes of that time. The caller has checked that `columns` are the same."""
    files = NamedFiles(state, body["deletes"])
    inputs = [
        UpsertTask(*files.past(source), _key_space_of(group["key_space"]), UpsertReason(source["reason"]))
        for group in body["groups"]
        for source in group["inputs"]
    ]
    return UpsertPlan(
        *plan_envelope.heading_of(body, state.metadata.specs),
        stored_options(UpsertOptions, body["options"]),
        body["format_version"],
        columns,
        Reach(body["reach"]),
        tuple(inputs),
        body["settled_files"],
        None,
        body["through"],
    )


def _group(group: SpaceGroup) -> dict[str, Any]:
    return {
        "key_space": group.key_space and [group.key_space[0], [plain(value) for value in group.key_space[1]]],
        "rows": group.rows,
        "bytes": group.bytes,
    }


def _key_space_of(document: Any) -> KeySpace:
    return document and (document[0], tuple(value_of(value) for value in document[1]))
