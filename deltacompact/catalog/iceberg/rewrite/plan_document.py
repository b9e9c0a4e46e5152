"""A rewrite plan as JSON, and back: to be read, approved, kept, and carried out by another process.

    {"format": 1, "kind": "iceberg rewrite plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "deletes": [["…/e.parquet", null], ["…/v.puffin", 4]],
              "groups": [{"partition": [3], "output_files": 1, "bytes": …, "rows": …,
                          "inputs": [{"path": "…/a.parquet", "reason": "too_small", "equality": [0], "vector": 1, …}]}],
              "stays": {"right_size": 12}}}

The document names files, deletes by their number in a list, as thousands may apply to each of thousands of files. Their
manifest entries are looked up in the table of now. A file or a delete that is not there any more makes the plan stale.
What came since the plan is judged at the commit, like any other commit of others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.iceberg.deletes.matching import Deletes
from deltacompact.catalog.iceberg.rewrite.options import JobOrder, RewriteOptions
from deltacompact.catalog.iceberg.rewrite.plan import FileGroup, Input, Reason, RewritePlan
from deltacompact.catalog.iceberg.table.content_files import Entry, canonical
from deltacompact.catalog.iceberg.table.table_state import TableState

PLAN_FORMAT = 1
_KIND = "iceberg rewrite plan"


def plan_document(plan: RewritePlan) -> dict[str, Any]:
    """The document, with its checksum."""
    listed = {entry.file.key: None for group in plan.groups for source in group.inputs for entry in source.deletes.all}
    numbers = {key: number for number, key in enumerate(listed)}
    body = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
        "deletes": [list(key) for key in numbers],
        "groups": [_group(group, numbers) for group in plan.groups],
        "stays": {reason.value: count for reason, count in plan.stays},
    }
    return {"format": PLAN_FORMAT, "kind": _KIND, "sha256": checksum(body), "plan": body}


def plan_to_json(plan: RewritePlan) -> str:
    """The plan as JSON. `plan_from_json` returns an equal plan as long as the table has its files."""
    return json.dumps(plan_document(plan), indent=1)


def plan_from_json(text: str | bytes, state: TableState, done: frozenset[str] = frozenset()) -> RewritePlan:
    """The plan of a document, resolved in the table of now, without the groups whose files are `done`.

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
    wanted = [number for number, group in enumerate(body["groups"]) if not input_paths(group) <= done]
    plan = plan_of_body(body, state, wanted)
    return plan.of(plan.groups)


def plan_of_body(body: Mapping[str, Any], state: TableState, numbers: Iterable[int]) -> RewritePlan:
    """The plan with these groups only. Raises ConflictError if one of them is stale."""
    options = RewriteOptions(**body["options"] | {"job_order": JobOrder(body["options"]["job_order"])})
    look_up = _LookUp(state, body["deletes"])
    return RewritePlan(
        body["table"],
        body["uuid"],
        body["branch"],
        body["snapshot_id"],
        body["sequence_number"],
        options,
        tuple(look_up.group(number, body["groups"][number]) for number in numbers),
        tuple((Reason(reason), count) for reason, count in body["stays"].items()),
    )


def input_paths(group: Mapping[str, Any]) -> frozenset[str]:
    """The data files of a group of a document."""
    return frozenset(source["path"] for source in group["inputs"])


def checksum(body: Any) -> str:
    """SHA-256 of the plan in one canonical form."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plain(value: Any) -> Any:
    """A partition value as JSON has it."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def value_of(value: Any) -> Any:
    """The partition value of `plain`."""
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else canonical(value)


Key = tuple[str, int | None]


def _group(group: FileGroup, numbers: Mapping[Key, int]) -> dict[str, Any]:
    return {
        "spec_id": group.spec_id,
        "partition": None if group.partition is None else [plain(value) for value in group.partition],
        "output_files": group.output_files,
        "bytes": group.bytes,
        "rows": group.rows,
        "inputs": [_input(source, numbers) for source in group.inputs],
    }


def _input(source: Input, numbers: Mapping[Key, int]) -> dict[str, Any]:
    deletes = source.deletes
    return {
        "path": source.entry.file.path,
        "sequence_number": source.entry.sequence_number,
        "first_row_id": source.entry.file.first_row_id,
        "reason": source.reason.value,
        "equality": [numbers[entry.file.key] for entry in deletes.equality],
        "positions": [numbers[entry.file.key] for entry in deletes.positions],
        "vector": numbers[deletes.vector.file.key] if deletes.vector else None,
    }


class _LookUp:
    """Finds the files of a document in the table of now."""

    def __init__(self, state: TableState, deletes: Iterable[Sequence[Any]]) -> None:
        self._data = {entry.file.path: entry for entry in state.data}
        self._deletes = {entry.file.key: entry for entry in state.deletes}
        self._keys = [(path, offset) for path, offset in deletes]

    def group(self, number: int, group: Mapping[str, Any]) -> FileGroup:
        inputs = tuple(self._input(source) for source in group["inputs"])
        partition = group["partition"]
        if partition is not None:
            partition = tuple(value_of(value) for value in partition)
        return FileGroup(number, group["spec_id"], partition, inputs, group["output_files"])

    def _input(self, source: Mapping[str, Any]) -> Input:
        entry = self._data.get(source["path"])
        if entry is None or (entry.sequence_number, entry.file.first_row_id) != (
            source["sequence_number"],
            source["first_row_id"],
        ):
            raise _stale(source["path"])
        deletes = Deletes(
            tuple(self._delete(number) for number in source["equality"]),
            tuple(self._delete(number) for number in source["positions"]),
            None if source["vector"] is None else self._delete(source["vector"]),
        )
        return Input(entry, deletes, Reason(source["reason"]))

    def _delete(self, number: int) -> Entry:
        entry = self._deletes.get(self._keys[number])
        if entry is None:
            raise _stale(self._keys[number][0])
        return entry


def _stale(path: str) -> ConflictError:
    return ConflictError(f"the plan is stale: another commit removed {path}")
