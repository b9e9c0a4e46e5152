"""The head of a stream: the object `stream/hint.json`, which saves reading the log entry by entry. Pure.

    {"version": "4-a1…", "parent": "3-77…", "seal": 9,            the seal at 3-77… entry 9 led to 4-a1…
     "log": {"from": 100, "entries": [{…}, {…}],              entries 100 and 101 of 4-a1…, after its checkpoint
             "schemas": ["…"], "sha256": "…"}}                 their schemas: each once, though all entries have it

    open a stream    GET the head · GET the seal · GET the checkpoint, if there is one · LIST what came since

A head only saves time. It may be stale: writers overwrite it in any order, so entries may have come since, or a seal.
It counts only if the seal is there. The checksum covers the stream's folder, too, so a copy of another stream's head is
ignored, like a damaged head. Older releases write and read only the first three fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deltacompact.delta_streams.log.entries import dump
from deltacompact.delta_streams.paths import GENESIS, is_version
from deltacompact.storage.checksummed import checksum

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class StreamHead:
    """A version that was active once, the seal that led to it (None: unknown), and the documents of its last entries.

    The entries before `first` are in the checkpoint of `first` entries. Without `entries`, the head only names the
    version.
    """

    version: str
    parent: str | None = None
    seal: int | None = None
    first: int = 0
    entries: tuple[Any, ...] = ()

    @property
    def tail(self) -> int:
        """The length of the log when the head was written. 0: unknown."""
        return self.first + len(self.entries)


def only(of_versions: dict[str, Known], versions: Container[str]) -> dict[str, Known]:
    """What is known of these versions. Another thread may add to it meanwhile."""
    return {version: known for version, known in of_versions.copy().items() if version in versions}


class RecentEntries:
    """The stored entries of each version since its last checkpoint. A head repeats them."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[int, bytes]] = {}
        self._first: dict[str, int] = {}
        self.written: dict[str, int] = {}
        """By version, the length of the log that the stored head repeats."""

    def add(self, version: str, sequence: int, data: bytes) -> None:
        if sequence >= self._first.get(version, 0):
            self._entries.setdefault(version, {})[sequence] = data

    def begin_at(self, version: str, tail: int) -> None:
        """There is a checkpoint of `tail` entries: forget those."""
        self._first[version] = tail
        entries = self._entries.get(version, {})
        self._entries[version] = {sequence: data for sequence, data in entries.items() if sequence >= tail}

    def keep(self, versions: Container[str]) -> None:
        """Forget all other versions."""
        self._entries, self._first = only(self._entries, versions), only(self._first, versions)
        self.written = only(self.written, versions)

    def since_checkpoint(self, version: str, tail: int) -> list[bytes]:
        """The entries from the last checkpoint up to `tail`. Raises KeyError if this process lacks one."""
        known = self._entries.get(version, {})
        return [known[sequence] for sequence in range(self._first.get(version, 0), tail)]


def encoded(stream: str, version: str, parent: str | None, seal: int | None, first: int, log: Sequence[bytes]) -> bytes:
    """The document of a head. `log`: the stored entries from `first` on; left out if empty."""
    head: dict[str, Any] = {"version": version, "parent": parent, "seal": seal}
    if log:
        numbers: dict[str, int] = {}
        entries = [
            _with_schemas(json.loads(entry), lambda text: numbers.setdefault(text, len(numbers))) for entry in log
        ]
        schemas = list(numbers)
        digest = checksum([stream, version, first, entries, schemas])
        head["log"] = {"from": first, "entries": entries, "schemas": schemas, "sha256": digest}
    return dump(head)


def _with_schemas(entry: dict[str, Any], other: Callable[[Any], Any]) -> dict[str, Any]:
    """An entry with a number for each schema, or a schema for each number."""
    return {**entry, "schemas": [other(each) for each in entry["schemas"]]} if "schemas" in entry else entry


def parsed(stream: str, data: bytes) -> StreamHead | None:
    """The head in an object. None: it is damaged, or another stream's."""
    try:
        document = json.loads(data)
        version, parent, seal, log = (document.get(name) for name in ("version", "parent", "seal", "log"))
    except (ValueError, AttributeError):
        return None
    if not isinstance(version, str) or not is_version(version):
        return None
    known_seal = isinstance(seal, int) and isinstance(parent, str) and is_version(parent)
    hint = StreamHead(version, parent, seal) if known_seal else StreamHead(version)
    if version != GENESIS and not known_seal:
        return hint
    try:
        first, entries, schemas = int(log["from"]), log["entries"], log["schemas"]
        if first >= 0 and log["sha256"] == checksum([stream, version, first, entries, schemas]):
            whole = tuple(_with_schemas(entry, schemas.__getitem__) for entry in entries)
            return StreamHead(version, hint.parent, hint.seal, first, whole)
    except (LookupError, TypeError, ValueError):
        pass
    return hint
