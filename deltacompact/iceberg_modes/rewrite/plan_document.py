"""A rewrite plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg rewrite plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "deletes": [["…/e.parquet", null], ["…/v.puffin", 4]],
              "groups": [{"partition": [3], "output_files": 1, "bytes": …, "rows": …, "extents": {"day": 0.02},
                          "inputs": [{"path": "…/a.parquet", "equality": [[0, 1]], "vector": 1, …}]}],
              "stays": {"right_size": 12}}}

If a planned file or delete is gone, the plan is stale. Files and deletes that came since the plan are judged at the
commit, like any commit of others. Extents are the plan's, so rows are divided in the same way whenever it is carried
out. A plan without extents has 1 for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from deltacompact.iceberg.table.content_files import Spec
from deltacompact.iceberg.table.partition_values import compared_tuple
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes import plan_envelope
from deltacompact.iceberg_modes.options import stored_options
from deltacompact.iceberg_modes.plan_envelope import (
    NamedFiles,
    groups_document,
    input_paths,
    plain,
    stays_document,
    stays_of,
    value_of,
)
from deltacompact.iceberg_modes.rewrite.choosing import RewriteReason, RewriteTask
from deltacompact.iceberg_modes.rewrite.options import NAME, RewriteOptions
from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan

_NEWER = ("merge_uncompared", "cluster_by", "write_amplification_max", "strategy", "sort_order", "readable_by")


def plan_document(plan: RewritePlan) -> dict[str, Any]:
    """The document, with its checksum."""
    options = asdict(plan.options)
    for unchosen in _NEWER:
        if not options[unchosen]:
            del options[unchosen]  # versions that do not know it can read the plan
    body = {
        "options": options,
        **groups_document(plan.groups, _group, lambda source: {"reason": source.reason.value}),
        "stays": stays_document(plan.stays),
    }
    return plan_envelope.enveloped(plan, body)


def plan_from_json(text: str | bytes, state: TableState, done: frozenset[str] = frozenset()) -> RewritePlan:
    """The plan of a document, resolved in the current table, without the groups whose files are `done`.

    Raises InputError if it is no plan, is damaged, or is of another table, and ConflictError if it is stale.
    """
    body = plan_envelope.opened(text, NAME, state)
    wanted = [number for number, group in enumerate(body["groups"]) if not input_paths(group) <= done]
    plan = plan_of_body(body, state, wanted)
    return replace(plan.of(plan.groups), stays=stays_of(body, RewriteReason))


def plan_of_body(body: Mapping[str, Any], state: TableState, numbers: Iterable[int]) -> RewritePlan:
    """The plan with these groups only, and without what stays: a newer version may have written other reasons for that.

    Raises ConflictError if one of them is stale.
    """
    files = NamedFiles(state, body["deletes"])
    return RewritePlan(
        *plan_envelope.heading_of(body, state.metadata.specs),
        stored_options(RewriteOptions, body["options"]),
        tuple(_group_of(files, state.metadata.specs, number, body["groups"][number]) for number in numbers),
        (),
    )


def _group(group: FileGroup) -> dict[str, Any]:
    return {
        "spec_id": group.spec_id,
        "partition": None if group.partition is None else [plain(value) for value in group.partition],
        "output_files": group.output_files,
        "bytes": group.bytes,
        "rows": group.rows,
        **({"extents": dict(group.extents)} if group.extents else {}),
    }


def _group_of(files: NamedFiles, specs: Mapping[int, Spec], number: int, group: Mapping[str, Any]) -> FileGroup:
    inputs = tuple(RewriteTask(*files.present(source), RewriteReason(source["reason"])) for source in group["inputs"])
    partition = group["partition"]
    if partition is not None:
        partition = compared_tuple(tuple(value_of(value) for value in partition), specs[group["spec_id"]])
    return FileGroup(number, inputs, group["spec_id"], partition, group["output_files"], group.get("extents", {}))
