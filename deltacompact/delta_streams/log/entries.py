"""The kinds of log entries, and their JSON form.

    0  opened     number 3, parent 2-5f…, lineage 0, tokens and last position inherited
    1  compacted  the files with one live row per key, and their index
    2  carried    the commits that arrived while the compaction ran
    3  committed  a writer's deltas
    4  fence      session s, or attempt run-1/3/1, may not publish any more
    5  index      the index was rehashed
    6  retracted  the delta at position 90 no longer counts
    7  sealed     the stream goes on in version 4-a1…

An entry holds each schema once. A long entry is a stub that names its body (path and SHA-256). A seal never has a body,
because it must be readable for ever.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.data_file import LayoutAccount
from deltacompact.base.deltas import Commit, CompactedDelta, Delta, ObjectRef
from deltacompact.base.errors import InputError
from deltacompact.base.model import FORMAT_VERSION, OperationType
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.log.tokens import Tokens
from deltacompact.table.documents import SchemaTable, far_from_json, file_from_json, file_to_json


@dataclass(frozen=True, slots=True)
class TakenOut:
    """A file that was taken out of the parent version, and its number of live rows."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The first entry of a version. `lineage` names the genesis or restatement from which the contents descend.

    `taken_out`: the version was written to take out a file.
    """

    number: int
    parent: str | None
    lineage: str
    tokens: Tokens
    last_position: int | None
    time_ms: int = 0
    taken_out: TakenOut | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    delta: CompactedDelta


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    commit: Commit


@dataclass(frozen=True, slots=True)
class Carried:
    commits: Sequence[Commit]


@dataclass(frozen=True, slots=True)
class Fence:
    session_id: str


@dataclass(frozen=True, slots=True)
class IndexReplaced:
    index: ObjectRef


@dataclass(frozen=True, slots=True)
class Retracted:
    position: int


@dataclass(frozen=True, slots=True)
class Sealed:
    successor: str
    time_ms: int = 0


Entry = Opened | Compacted | CommittedEntry | Carried | Fence | IndexReplaced | Retracted | Sealed

_KINDS: dict[str, type] = {
    "opened": Opened,
    "compacted": Compacted,
    "committed": CommittedEntry,
    "carried": Carried,
    "fence": Fence,
    "index": IndexReplaced,
    "retracted": Retracted,
    "sealed": Sealed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def kind_of(entry: Entry) -> str:
    return _NAMES[type(entry)]


def to_document(entry: Entry) -> dict[str, Any]:
    """The entry as JSON values."""
    schemas = SchemaTable()
    return {"format": FORMAT_VERSION, "kind": kind_of(entry), **_body(entry, schemas), "schemas": schemas.encoded}


def from_document(document: dict[str, Any], path: str) -> Entry:
    """The entry in a document. Raises InputError for a format or kind that only a newer release knows."""
    check_format(document, path)
    kind = document.get("kind")
    if kind not in _KINDS:
        raise InputError(f"{path}: log entry of unknown kind {kind!r}; a newer deltacompact wrote it")
    schemas = SchemaTable(document.get("schemas", ()))
    match kind:
        case "opened":
            tokens = Tokens.from_json(document["tokens"])
            return Opened(
                document["number"],
                document["parent"],
                document["lineage"],
                tokens,
                document["last_position"],
                document["time_ms"],
                TakenOut(**document["taken_out"]) if "taken_out" in document else None,
            )
        case "compacted":
            delta = _compacted_from(document["delta"], schemas)
            account = LayoutAccount(**document["account"]) if "account" in document else None
            return Compacted(dataclasses.replace(delta, far=far_from_json(document), account=account))
        case "committed":
            return CommittedEntry(_commit_from(document["commit"], schemas))
        case "carried":
            return Carried(tuple(_commit_from(commit, schemas) for commit in document["commits"]))
        case "fence":
            return Fence(document["session_id"])
        case "index":
            return IndexReplaced(ObjectRef(**document["index"]))
        case "retracted":
            return Retracted(document["position"])
        case _:
            return Sealed(document["successor"], document["time_ms"])


def check_format(document: Any, path: str) -> None:
    """Raise InputError if a newer deltacompact wrote the document, before any of it is used."""
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise InputError(f"{path} was not written by deltacompact: it has no format version")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {version}, this deltacompact knows up to {FORMAT_VERSION}: update it"
        )


def dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _body(entry: Entry, schemas: SchemaTable) -> dict[str, Any]:
    match entry:
        case Opened():
            return {
                "number": entry.number,
                "parent": entry.parent,
                "lineage": entry.lineage,
                "tokens": entry.tokens.to_json(),
                "last_position": entry.last_position,
                "time_ms": entry.time_ms,
                **({"taken_out": dataclasses.asdict(entry.taken_out)} if entry.taken_out else {}),
            }
        case Compacted(delta):
            known = {field.name: getattr(delta, field.name) for field in dataclasses.fields(delta)}
            far, account = known.pop("far"), known.pop("account")  # release 0.1 expects no other fields in the delta
            return {
                **({} if far is None else {"far": far}),
                **({} if account is None else {"account": dataclasses.asdict(account)}),
                "delta": {
                    **known,
                    "files": [file_to_json(file, schemas) for file in delta.files],
                    "index": dataclasses.asdict(delta.index),
                    "schema": schemas.add(delta.schema),
                },
            }
        case CommittedEntry(commit):
            return {"commit": _commit_to(commit, schemas)}
        case Carried(commits):
            return {"commits": [_commit_to(commit, schemas) for commit in commits]}
        case Fence(session_id):
            return {"session_id": session_id}
        case IndexReplaced(index):
            return {"index": dataclasses.asdict(index)}
        case Retracted(position):
            return {"position": position}
        case Sealed(successor, time_ms):
            return {"successor": successor, "time_ms": time_ms}


def _commit_to(commit: Commit, schemas: SchemaTable) -> dict[str, Any]:
    return {
        "commit_id": commit.commit_id,
        "time_ms": commit.time_ms,
        **token_to_json(commit.token),
        "deltas": [delta_to_json(delta, schemas) for delta in commit.deltas],
    }


def _commit_from(value: dict[str, Any], schemas: SchemaTable) -> Commit:
    deltas = tuple(delta_from_json(delta, schemas) for delta in value["deltas"])
    return Commit(value["commit_id"], value["time_ms"], deltas, token_from_json(value))


def token_to_json(token: Token | None) -> dict[str, Any]:
    """Write a producer and its number as one text, as release 0.1 did; `sequence` repeats the number."""
    if token is None or token.joined:
        return {"token": token.name if token else None}
    text = token.name if token.sequence is None else f"{token.name}:{token.sequence}"
    return {"token": text, "sequence": token.sequence}


def token_from_json(value: dict[str, Any]) -> Token | None:
    text = value["token"]
    if text is None:
        return None
    if "sequence" not in value:
        return Token(text, joined=True)
    sequence = value["sequence"]
    return Token(text) if sequence is None else Token(text.removesuffix(f":{sequence}"), sequence)


def _compacted_from(value: dict[str, Any], schemas: SchemaTable) -> CompactedDelta:
    files = tuple(file_from_json(file, schemas) for file in value["files"])
    index, schema = ObjectRef(**value["index"]), schemas[value["schema"]]
    return CompactedDelta(**{**value, "files": files, "index": index, "schema": schema})


def delta_to_json(delta: Delta, schemas: SchemaTable) -> dict[str, Any]:
    files = [file_to_json(file, schemas) for file in delta.files]
    return {"position": delta.position, "operation": delta.operation, "files": files}


def delta_from_json(value: dict[str, Any], schemas: SchemaTable) -> Delta:
    files = tuple(file_from_json(file, schemas) for file in value["files"])
    return Delta(value["position"], OperationType(value["operation"]), files)
