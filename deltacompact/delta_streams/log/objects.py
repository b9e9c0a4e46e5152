"""The objects of a stream's logs: reads and puts entries with their bodies, one by one, and lists them.

    stream/4-a1/…07.json    {"kind": "committed", …}                 a short entry
    stream/4-a1/…08.json    {"kind": "carried", "body": {"path": "manifest/5c….json", "sha256": "…"}}      a long one
    listed: 0 1 2 4         entry 3 is asked for: it is there (a page of the listing had missed it), or it is a hole

Entries never change. A hole is an entry that somebody removed from outside: every process that meets a hole refuses to
go on. If the reply to a put is lost, the commit id in the slot shows who won (storage/certain_put.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.model import FORMAT_VERSION
from deltacompact.delta_streams.log.entries import (
    CommittedEntry,
    Entry,
    Fence,
    Opened,
    Sealed,
    check_format,
    dump,
    from_document,
    kind_of,
    to_document,
)
from deltacompact.delta_streams.log.heads import RecentEntries
from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.storage.certain_put import Effect, put_certainly
from deltacompact.storage.objects import Fetches, ObjectStat, ObjectStore

ENTRIES_AT_ONCE = 16
"""How many entries of a log are fetched at a time."""

ReadEntry = tuple[Entry, str | None]
"""An entry, and the path of its body. None: the body is not an object of its own."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How a log is divided into objects; tests pass lower limits.

    entry_bytes_max                a longer entry stores its body as a separate object and names it
    entries_between_checkpoints    in a short log; a long log has checkpoints less often
    probes_before_listing          entries to probe for one by one before listing the rest of the log
    streams_listed_min             a table with fewer streams gets no listing (listing.py)
    keys_in_a_page                 how many keys S3 returns in one answer to a LIST request
    """

    entry_bytes_max: int = 64 << 10
    entries_between_checkpoints: int = 100
    probes_before_listing: int = 8
    streams_listed_min: int = 8
    keys_in_a_page: int = 1000


LOG_LIMITS = LogLimits()


class LogObjects:
    """The log entries of all versions of one stream on a store. `recent` holds those that a head would repeat."""

    def __init__(self, store: ObjectStore, paths: StreamPaths, limits: LogLimits) -> None:
        self.store = store
        self.paths = paths
        self.limits = limits
        self.recent = RecentEntries()
        self.keeps_heads = isinstance(store, Fetches)
        """On a local disk a head would cost an append more than it saves a reader."""

    # Reading

    def read(self, version: str, sequence: int) -> ReadEntry:
        """Raises NotFoundError if the entry or its body is missing, CorruptionError if one is damaged."""
        path = self.paths.entry(version, sequence)
        return self.decoded(self._document(path), path)

    def read_from(self, version: str, sequence: int) -> Iterator[ReadEntry]:
        """The entries from `sequence` on. Probe for a few; if there are more, list the rest."""
        for _ in range(self.limits.probes_before_listing):
            path = self.paths.entry(version, sequence)
            try:
                document = self._document(path)
            except NotFoundError:
                return
            yield self.decoded(document, path)  # outside the try: a missing body is not the end of the log
            sequence += 1
        yield from self.read_range(version, sequence, self.listed_tail(version, sequence, sequence))

    def read_range(self, version: str, first: int, stop: int) -> Iterator[ReadEntry]:
        """The entries [first, stop), which are known to be there."""
        sequences = range(first, stop)
        if len(sequences) <= 2:
            yield from (self.read(version, sequence) for sequence in sequences)
        else:
            with ThreadPoolExecutor(ENTRIES_AT_ONCE) as threads:
                yield from threads.map(lambda sequence: self.read(version, sequence), sequences)

    def opened(self, version: str) -> Opened | None:
        """The first entry of a version. None: it is missing."""
        try:
            entry, _ = self.read(version, 0)
        except NotFoundError:
            return None
        return entry if isinstance(entry, Opened) else None

    def sealed_successor(self, version: str, sequence: int) -> str | None:
        """The successor that an entry names. None: the entry is missing, or is not a seal."""
        try:
            entry, _ = self.read(version, sequence)
        except (InputError, CorruptionError):
            return None
        return entry.successor if isinstance(entry, Sealed) else None

    def sign_of_life(self, version: str) -> str | None:
        """The path of an entry that only an active version gets (a writer's commit, a fence, a seal). None: none."""
        if (opened := self.opened(version)) is None:
            return None
        for sequence in range(1, self.listed_tail(version)):
            try:
                entry, _ = self.read(version, sequence)
            except NotFoundError:  # a vacuum is deleting this log
                return None
            written = (
                isinstance(entry, CommittedEntry) and entry.commit.commit_id != opened.lineage
            )  # not a restatement's
            if written or isinstance(entry, Fence | Sealed):
                return self.paths.entry(version, sequence)
        return None

    def decoded(self, document: dict[str, Any], path: str) -> ReadEntry:
        """The entry in a document that is stored at `path`. Reads its body if that is an object of its own."""
        body = document.get("body")
        if body is None:
            return _entry_from(document, path), None
        check_format(document, path)
        try:
            data = self.store.get(body["path"])
        except NotFoundError:
            raise NotFoundError(f"{self.store.uri}{body['path']}, which log entry {path} names, is missing") from None
        if hashlib.sha256(data).hexdigest() != body["sha256"]:
            raise CorruptionError(f"{self.store.uri}{body['path']} is not what {path} names: its SHA-256 differs")
        return _entry_from(json_object(data, body["path"]), body["path"]), body["path"]

    def _document(self, path: str) -> dict[str, Any]:
        data = self.store.get(path)
        if self.keeps_heads and (entry := self.paths.entry_of(path)):
            self.recent.add(*entry, data)
        return json_object(data, path)

    # What is there

    def is_there(self, version: str, sequence: int) -> bool:
        try:
            self.store.get(self.paths.entry(version, sequence))
        except NotFoundError:
            return False
        return True

    def are_there(self) -> bool:
        """Whether any version has an entry."""
        return any(self.paths.entry_of(stat.path) for stat in self.store.list(self.paths.logs))

    def listed(self, version: str, first: int) -> list[ObjectStat]:
        """The objects in a version's folder, from its entry number `first` on."""
        after = self.paths.entry(version, first - 1) if first else ""
        return list(self.store.list(self.paths.version(version), after))

    def listed_tail(self, version: str, known: int = 0, first: int = 0, listed: list[ObjectStat] | None = None) -> int:
        """The sequence number after the last entry that a listing of the version shows, which begins at `first`.

        A listing is not atomic: one page may miss an entry while a later page has the next entry. So get each entry
        that the listing lacks. Raises CorruptionError if it is missing. The listing includes the last of the `known`
        entries: if that is missing, the log has lost its end.
        """
        first = max(0, min(first, known - 1))
        stats = self.listed(version, first) if listed is None else listed
        tail = first
        numbers = (self.paths.sequence(version, stat.path) for stat in stats)
        for sequence in sorted(number for number in numbers if number is not None):
            while tail < sequence:
                if not self.is_there(version, tail):
                    raise self.hole(version, tail, self.paths.entry(version, sequence))
                tail += 1
            tail = sequence + 1
        if tail < known and not self.is_there(version, known - 1):
            raise self.hole(version, known - 1, "a head that was made of it")
        return max(tail, known)

    def hole(self, version: str, missing: int, witness: str) -> CorruptionError:
        """The error for a missing entry. `witness` names something that came later and is there."""
        path = self.paths.entry(version, missing)
        return CorruptionError(
            f"log entry {self.store.uri}{path} is missing, but {witness} is there, which came later: it was removed "
            "from outside; restore it from a backup (nothing was changed)"
        )

    # Putting

    def put(
        self, version: str, sequence: int, entry: Entry, owner: str = "", effect: Effect | None = None
    ) -> ReadEntry | None:
        """Put an entry if absent; return it as everybody else will read it. None: another entry holds the slot.

        `owner` is the session that owns the body of a long entry until the seal. Raises OutcomeUnknownError if the
        outcome cannot be known.
        """
        path, body, manifest = self.paths.entry(version, sequence), dump(to_document(entry)), None
        data = body
        if len(body) > self.limits.entry_bytes_max and not isinstance(entry, Sealed):
            manifest = self.paths.fresh("manifest", ".json", owner)
            self.store.put_if_absent(manifest, body)
            stub = {"path": manifest, "sha256": hashlib.sha256(body).hexdigest()}
            data = dump({"format": FORMAT_VERSION, "kind": kind_of(entry), "body": stub})
        if not put_certainly(self.store, path, data, effect):
            return None
        if self.keeps_heads:
            self.recent.add(version, sequence, data)
        return _entry_from(json_object(body, path), path), manifest


def json_object(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in the bytes that are stored at `path`. Raises CorruptionError for anything else."""
    try:
        document = json.loads(data)
    except ValueError:
        raise CorruptionError(f"{path} is not JSON: truncated or overwritten") from None
    if not isinstance(document, dict):
        raise CorruptionError(f"{path} is not a JSON object")
    return document


def _entry_from(document: dict[str, Any], path: str) -> Entry:
    try:
        return from_document(document, path)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise CorruptionError(f"{path} is not a log entry as we write them: overwritten from outside") from None
