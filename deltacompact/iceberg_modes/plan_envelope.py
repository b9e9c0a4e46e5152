"""The parts that all plans share as JSON: the envelope with its checksum, the heading, and the names of files.

    {"format": 1, "kind": "iceberg rewrite plan", "sha256": "5c5c…",
     "plan": {"table": "ns.t", "uuid": "8e…", "branch": "main", "snapshot_id": 7, "sequence_number": 5, "options": {…},
              "deletes": [["…/e.parquet", null], ["…/v.puffin", 4]],
              "groups": [{"inputs": [{"path": "…/a.parquet", "equality": [[0, 1]], "vector": 1, …}]}],
              …}}

A document names files. Thousands of deletes may apply to each of thousands of files, so they are numbered by age, and a
file has runs of numbers: [7, 500] are the deletes 7 to 506. Their manifest entries are looked up in the current table.
"""

from __future__ import annotations

import bisect
import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask, OncePerTuple, each_delete, only_path
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry, Spec, Status, canonical
from deltacompact.iceberg.table.table_state import Heading, TableState
from deltacompact.iceberg_modes.plan import ModePlan, ScanTaskGroup, Task
from deltacompact.storage.checksummed import is_whole, with_checksum

PLAN_FORMAT = 1

Plan = TypeVar("Plan", bound=ModePlan)
Reason = TypeVar("Reason", bound=enum.StrEnum)
Key = tuple[str, int | None]
"""The path of a delete file, and the offset of a deletion vector in it."""


def enveloped(plan: ModePlan, body: dict[str, Any]) -> dict[str, Any]:
    """The document of a plan, with its checksum."""
    heading: dict[str, Any] = {
        "table": plan.table_id,
        "uuid": plan.uuid,
        "branch": plan.branch,
        "snapshot_id": plan.snapshot_id,
        "sequence_number": plan.sequence_number,
        "options": asdict(plan.options),
    }
    return with_checksum("plan", heading | body, format=PLAN_FORMAT, kind=f"iceberg {plan.mode} plan")


def groups_document(
    groups: Sequence[ScanTaskGroup[Task]],
    of_group: Callable[[Any], dict[str, Any]],
    of_input: Callable[[Task], dict[str, Any]],
) -> dict[str, Any]:
    """The groups with their data files, and the deletes that apply to these. `of_group` and `of_input` add what the
    mode needs besides."""
    numbered = NumberedDeletes(source for group in groups for source in group.inputs)
    return {
        "deletes": [list(key) for key in numbered.keys],
        "groups": [
            of_group(group)
            | {"inputs": [source_document(source, numbered) | of_input(source) for source in group.inputs]}
            for group in groups
        ],
    }


def stays_document(stays: Iterable[tuple[enum.StrEnum, int]]) -> dict[str, int]:
    """By reason, how many files stay."""
    return {reason.value: count for reason, count in stays}


def stays_of(body: Mapping[str, Any], reason: type[Reason]) -> tuple[tuple[Reason, int], ...]:
    return tuple((reason(word), count) for word, count in body["stays"].items())


def heading_of(body: Mapping[str, Any], specs: Mapping[int, Spec]) -> Heading:
    """The heading of a document: the same values as `TableState.heading`."""
    return body["table"], body["uuid"], specs, body["branch"], body["snapshot_id"], body["sequence_number"]


def as_planned(plan: Plan, body: Mapping[str, Any], **own: Any) -> Plan:
    """A plan that was computed anew for a document's files, with the document's snapshot instead of the current one."""
    return replace(plan, snapshot_id=body["snapshot_id"], sequence_number=body["sequence_number"], **own)


def opened(text: str | bytes, mode: str, state: TableState) -> Mapping[str, Any]:
    """The body of a plan's document. Raises InputError if it is no plan, is damaged, or belongs to another table."""
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
    if not is_whole(document, "plan"):
        raise InputError("the plan is damaged: its SHA-256 differs")
    if (body["uuid"], body["branch"]) != (state.metadata.uuid, state.branch):
        raise InputError(f"the plan is of branch {body['branch']!r} of table {body['table']!r} ({body['uuid']})")
    found: Mapping[str, Any] = body
    return found


def mode_of(document: Mapping[str, Any]) -> str:
    """The mode whose plan a document is."""
    return str(document["kind"]).removeprefix("iceberg ").removesuffix(" plan")


def plain(value: Any) -> Any:
    """A partition value as JSON has it."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def value_of(value: Any) -> Any:
    """The partition value of `plain`."""
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else canonical(value)


# Files


class NumberedDeletes:
    """The deletes of some data files, numbered by age, so that the deletes of one file make few runs of numbers."""

    def __init__(self, sources: Iterable[FileScanTask]) -> None:
        self._entries: dict[int, ManifestEntry] = {}
        self.runs_of = OncePerTuple(self.runs)
        for entry in each_delete(source.deletes for source in sources):  # there may be millions of pairs
            self._entries[id(entry)] = entry
        by_age = sorted(self._entries.values(), key=lambda entry: (entry.sequence, entry.file.path, _offset(entry)))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(entry.file.key for entry in by_age))}
        self.keys: tuple[Key, ...] = tuple(numbers)
        self._numbers = {place: numbers[entry.file.key] for place, entry in self._entries.items()}

    def runs(self, deletes: Sequence[ManifestEntry]) -> list[list[int]]:
        """The numbers of these deletes: the first one of each run, and how many."""
        numbers = np.fromiter(map(self._numbers.__getitem__, map(id, deletes)), np.int64, len(deletes))
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        counts = np.diff(starts, append=len(numbers))
        runs: list[list[int]] = np.column_stack([numbers[starts], counts]).tolist()
        return runs


def source_document(source: FileScanTask, numbered: NumberedDeletes) -> dict[str, Any]:
    """A data file as a document names it, with the numbers of its deletes."""
    deletes = source.deletes
    vector = numbered.runs([deletes.vector]) if deletes.vector else None
    return {
        "path": source.entry.file.path,
        "sequence_number": source.entry.sequence_number,
        "first_row_id": source.entry.file.first_row_id,
        "equality": numbered.runs_of(deletes.equality),
        "positions": [*numbered.runs(deletes.own), *numbered.runs_of(deletes.shared)],
        "vector": vector and vector[0][0],
    }


def input_paths(group: Mapping[str, Any]) -> frozenset[str]:
    """The data files of a group of a document."""
    return frozenset(source["path"] for source in group["inputs"])


def all_input_paths(body: Mapping[str, Any]) -> frozenset[str]:
    """The data files of all groups of a document."""
    return frozenset[str]().union(*map(input_paths, body["groups"]))


def stale(path: str) -> ConflictError:
    return ConflictError(f"the plan is stale: another commit removed {path}")


class NamedFiles:
    """Finds the files that a document names in the current table."""

    def __init__(self, state: TableState, deletes: Iterable[Sequence[Any]]) -> None:
        self._data = {entry.file.path: entry for entry in state.data}
        live = {entry.file.key: entry for entry in state.deletes}
        keys: list[Key] = [(path, offset) for path, offset in deletes]
        self._deletes = [live.get(key) or _gone(Content.POSITION_DELETES, key, None) for key in keys]
        self._found: dict[tuple[tuple[int, ...], ...], tuple[ManifestEntry, ...]] = {}
        self._missing = [number for number, key in enumerate(keys) if key not in live]

    def present(self, source: Mapping[str, Any]) -> tuple[ManifestEntry, Deletes]:
        """A data file with its deletes. Raises ConflictError if one of them is not there any more."""
        entry = self._entry(source)
        if entry is None or entry.file.first_row_id != source["first_row_id"]:
            raise stale(source["path"])
        for first, count in _runs(source):
            place = bisect.bisect_left(self._missing, first)
            if place < len(self._missing) and self._missing[place] < first + count:
                raise stale(self._deletes[self._missing[place]].file.path)
        return entry, self._deletes_of(source)

    def past(self, source: Mapping[str, Any]) -> tuple[ManifestEntry, Deletes]:
        """A data file with its deletes. A file that is gone has only its name and its sequence number."""
        entry = self._entry(source) or _gone(Content.DATA, (source["path"], None), source["sequence_number"])
        return entry, self._deletes_of(source)

    def _entry(self, source: Mapping[str, Any]) -> ManifestEntry | None:
        entry = self._data.get(source["path"])
        return entry if entry is not None and entry.sequence_number == source["sequence_number"] else None

    def _deletes_of(self, source: Mapping[str, Any]) -> Deletes:
        vector = source["vector"]
        own: list[Sequence[int]] = []
        shared: list[Sequence[int]] = []
        for run in source["positions"]:
            (shared if only_path(self._deletes[run[0]].file) is None else own).append(run)
        return Deletes(
            self._in_runs(source["equality"]),
            self._in_runs(shared),
            None if vector is None else self._deletes[vector],
            self._in_runs(own),
        )

    def _in_runs(self, runs: Iterable[Sequence[int]]) -> tuple[ManifestEntry, ...]:
        chosen = tuple(map(tuple, runs))
        if chosen not in self._found:  # data files with the same deletes share a tuple of them
            of_runs = (self._deletes[first : first + count] for first, count in chosen)
            self._found[chosen] = tuple(chain.from_iterable(of_runs))
        return self._found[chosen]


def _runs(source: Mapping[str, Any]) -> Iterator[Sequence[int]]:
    """The runs of all deletes of a data file."""
    yield from source["equality"]
    yield from source["positions"]
    if source["vector"] is not None:
        yield source["vector"], 1


def _offset(entry: ManifestEntry) -> int:
    """Where a deletion vector lies in its file; 0 for files of their own."""
    return entry.file.content_offset or 0


def _gone(content: Content, key: Key, sequence_number: int | None) -> ManifestEntry:
    file = ContentFile(content, key[0], "PARQUET", -1, (), 0, 0, content_offset=key[1])
    return ManifestEntry(Status.DELETED, None, sequence_number, None, file)
