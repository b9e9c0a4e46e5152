"""What the plans of all modes have in common as JSON: the envelope, the heading, and how they name files.

    {"format": 1, "kind": "iceberg rewrite plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "uuid": "8e…", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "deletes": [["…/e.parquet", null], ["…/v.puffin", 4]],
              "groups": [{"inputs": [{"path": "…/a.parquet", "sequence_number": 3, "equality": [0], "vector": 1, …}]}],
              …}}

A document names files, deletes by their number in a list, as thousands may apply to each of thousands of files. Their
manifest entries are looked up in the table of now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.iceberg.deletes.matching import Deletes
from deltacompact.catalog.iceberg.table.content_files import Content, ContentFile, Entry, Status, canonical
from deltacompact.catalog.iceberg.table.table_state import TableState

PLAN_FORMAT = 1

Key = tuple[str, int | None]
"""The path of a delete file, and the offset of a deletion vector in it."""


class Headed(Protocol):
    """What the heading says of a plan."""

    @property
    def table_id(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def options(self) -> Any: ...


class Source(Protocol):
    """A data file of a plan, and the deletes that may apply to it."""

    @property
    def entry(self) -> Entry: ...
    @property
    def deletes(self) -> Deletes: ...


def enveloped(mode: str, plan: Headed, body: dict[str, Any]) -> dict[str, Any]:
    """The document of a plan, with its checksum."""
    heading: dict[str, Any] = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
    }
    whole = heading | body
    return {"format": PLAN_FORMAT, "kind": f"iceberg {mode} plan", "sha256": checksum(whole), "plan": whole}


def opened(text: str | bytes, mode: str, state: TableState) -> Mapping[str, Any]:
    """What the plan in a document says. Raises InputError if it is no plan, is damaged, or is of another table."""
    kind = f"iceberg {mode} plan"
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError(f"this is not an Iceberg {mode} plan: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise InputError(f"this is not an Iceberg {mode} plan")
    if document.get("format") != PLAN_FORMAT:
        raise InputError(f"the plan has format {document.get('format')!r}, not {PLAN_FORMAT}: update deltacompact")
    body: Any = document.get("plan")
    if document.get("sha256") != checksum(body):
        raise InputError("the plan is damaged: its SHA-256 differs")
    if (body["uuid"], body["branch"]) != (state.metadata.uuid, state.branch):
        raise InputError(f"the plan is of branch {body['branch']!r} of table {body['table']!r} ({body['uuid']})")
    found: Mapping[str, Any] = body
    return found


def mode_of(document: Mapping[str, Any]) -> str:
    """The mode whose plan a document is."""
    return str(document["kind"]).removeprefix("iceberg ").removesuffix(" plan")


def checksum(body: Any) -> str:
    """SHA-256 of the plan in one canonical form."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plain(value: Any) -> Any:
    """A partition value as JSON has it."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def value_of(value: Any) -> Any:
    """The partition value of `plain`."""
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else canonical(value)


# Files


def numbered_deletes(sources: Iterable[Source]) -> dict[Key, int]:
    """The deletes of data files, and the number of each in a document's list."""
    listed = {entry.file.key: None for source in sources for entry in source.deletes.all}
    return {key: number for number, key in enumerate(listed)}


def source_document(source: Source, numbers: Mapping[Key, int]) -> dict[str, Any]:
    """A data file as a document names it, with the numbers of its deletes."""
    deletes = source.deletes
    return {
        "path": source.entry.file.path,
        "sequence_number": source.entry.sequence_number,
        "first_row_id": source.entry.file.first_row_id,
        "equality": [numbers[entry.file.key] for entry in deletes.equality],
        "positions": [numbers[entry.file.key] for entry in deletes.positions],
        "vector": numbers[deletes.vector.file.key] if deletes.vector else None,
    }


def input_paths(group: Mapping[str, Any]) -> frozenset[str]:
    """The data files of a group of a document."""
    return frozenset(source["path"] for source in group["inputs"])


def stale(path: str) -> ConflictError:
    return ConflictError(f"the plan is stale: another commit removed {path}")


class NamedFiles:
    """The files that a document names, in the table of now."""

    def __init__(self, state: TableState, deletes: Iterable[Sequence[Any]]) -> None:
        self._data = {entry.file.path: entry for entry in state.data}
        self._deletes = {entry.file.key: entry for entry in state.deletes}
        self._keys: list[Key] = [(path, offset) for path, offset in deletes]

    def present(self, source: Mapping[str, Any]) -> tuple[Entry, Deletes]:
        """A data file with its deletes. Raises ConflictError if one of them is not there any more."""
        entry = self._entry(source)
        if entry is None or entry.file.first_row_id != source["first_row_id"]:
            raise stale(source["path"])
        return entry, _deletes(source, self._present)

    def past(self, source: Mapping[str, Any]) -> tuple[Entry, Deletes]:
        """The same, where a file that is not there any more is only known by its name and its sequence number."""
        entry = self._entry(source) or _gone(Content.DATA, (source["path"], None), source["sequence_number"])
        return entry, _deletes(source, self._past)

    def _entry(self, source: Mapping[str, Any]) -> Entry | None:
        entry = self._data.get(source["path"])
        return entry if entry is not None and entry.sequence_number == source["sequence_number"] else None

    def _present(self, number: int) -> Entry:
        entry = self._deletes.get(self._keys[number])
        if entry is None:
            raise stale(self._keys[number][0])
        return entry

    def _past(self, number: int) -> Entry:
        key = self._keys[number]
        return self._deletes.get(key) or _gone(Content.POSITION_DELETES, key, None)


def _deletes(source: Mapping[str, Any], of_number: Callable[[int], Entry]) -> Deletes:
    return Deletes(
        tuple(of_number(number) for number in source["equality"]),
        tuple(of_number(number) for number in source["positions"]),
        None if source["vector"] is None else of_number(source["vector"]),
    )


def _gone(content: Content, key: Key, sequence_number: int | None) -> Entry:
    file = ContentFile(content, key[0], "PARQUET", -1, (), 0, 0, content_offset=key[1])
    return Entry(Status.DELETED, None, sequence_number, None, file)
