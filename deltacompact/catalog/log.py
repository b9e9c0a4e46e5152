"""The log of one partition stream on a store: reading it, committing to it, and the switch.

    writer A reads entries 0‥6, puts 7: created              -> committed
    writer B reads entries 0‥6, puts 7: exists, not B's own  -> reads 7, puts 8
    a compactor puts `sealed(4-a1)` at 9                     -> the one put that is the switch
    writer C reads up to 9, meets the seal, goes on in 4-a1

After a put whose reply is lost the slot is read: the commit id in it tells whether it is ours, see certain_put.py.
Nothing is ever found by listing versions, only by following seals.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from deltacompact.catalog.certain_put import Effect, put_certainly
from deltacompact.catalog.entries import (
    Carried,
    Committed,
    Compacted,
    Entry,
    Fence,
    IndexReplaced,
    Opened,
    Retracted,
    Sealed,
    check_format,
    dump,
    from_document,
    kind_of,
    to_document,
)
from deltacompact.catalog.paths import GENESIS, StreamPaths
from deltacompact.catalog.state import StreamState, replay
from deltacompact.catalog.tokens import Tokens
from deltacompact.errors import CorruptionError, NotFoundError
from deltacompact.model import FORMAT_VERSION
from deltacompact.storage import ObjectStore

ENTRIES_BETWEEN_CHECKPOINTS = 100
ENTRY_BYTES_MAX = 64 << 10
_PROBES_BEFORE_LISTING = 8


_GENESIS_ENTRY = Opened(0, None, GENESIS, Tokens(), None)


def genesis_state() -> StreamState:
    """The state of a stream that was just begun."""
    return replay(GENESIS, [(_GENESIS_ENTRY, None)])


class StreamLog:
    """Reads and extends the log of one stream. Entries are immutable, so what was read once is remembered."""

    def __init__(self, store: ObjectStore, paths: StreamPaths) -> None:
        self.store = store
        self.paths = paths
        self._seen: dict[str, StreamState] = {}
        self._active = GENESIS

    # Reading

    def exists(self) -> bool:
        """Whether the stream was begun."""
        if self._seen:
            return True
        try:
            return self._read_document(self.paths.entry(GENESIS, 0)) is not None
        except NotFoundError:
            return False

    def active(self) -> StreamState:
        """The state of the version that no seal has closed. Raises NotFoundError where the stream was never begun."""
        version = self._active if self._active != GENESIS else self._hinted()
        while True:
            while (successor := self._successor(version)) is not None:
                version = successor
            state = self.state(version)
            if not state.sealed:  # it may have been sealed since
                self._active = version
                return state

    def chain(self) -> Iterator[StreamState]:
        """Every version from the genesis to the active one."""
        state = self.state(GENESIS)
        yield state
        while state.sealed:
            state = self.state(state.sealed.successor)
            yield state

    def state(self, version: str) -> StreamState:
        """Replay the dense prefix of a version's log."""
        known = self._seen.get(version) or self._checkpointed(version)
        if known and known.sealed:
            return known
        entries = list(self._entries_from(version, known.tail if known else 0))
        if not entries and known is None:
            raise NotFoundError(f"{self.store.uri}{self.paths.version(version)} holds no log")
        state = replay(version, entries, known)
        self._seen[version] = state
        return state

    def sealed_s(self, state: StreamState) -> float:
        """When a sealed version was sealed, by the store's clock, which is also that of the objects' age."""
        return self.store.stat(self.paths.entry(state.version, state.tail - 1)).modified_s

    def state_at(self, version: str, tail: int) -> StreamState:
        """What a version said when its log had `tail` entries."""
        entries = [self._read(self.paths.entry(version, sequence)) for sequence in range(tail)]
        return replay(version, entries)

    # Writing

    def begin(self) -> None:
        """Make the genesis version; every caller writes the same."""
        self._put_certainly(GENESIS, 0, _GENESIS_ENTRY)

    def put(self, version: str, sequence: int, entry: Entry) -> bool:
        """Put one entry at its sequence number. False: the slot holds another entry, read it first.

        Every entry below must have been read. Raises OutcomeUnknownError where the entry may be there or not.
        """
        won = self._put_certainly(version, sequence, entry, effect=effect_of(entry, self.paths.root))
        if won and _is_checkpoint(sequence + 1):
            with contextlib.suppress(Exception):  # a checkpoint saves time, nothing depends on it
                self._write_checkpoint(self.state(version))
        return won

    def extend(self, decide: Callable[[StreamState], Entry | None]) -> StreamState:
        """Put what `decide` makes of the active state, again after each lost put; the state that it was put upon.

        `decide` returns None where nothing is left to do, or raises.
        """
        while True:
            state = self.active()
            entry = decide(state)
            if entry is None or self.put(state.version, state.tail, entry):
                return state

    def write_version(self, number: int, entries: list[Entry], owner: str = "") -> str:
        """Write a successor in full, visible to nobody; its name is never shared between attempts."""
        version = f"{number}-{uuid.uuid4().hex}"
        for sequence, entry in enumerate(entries):
            self._put_certainly(version, sequence, entry, owner)
        return version

    def release(
        self,
        base: StreamState,
        successor: str,
        check: Callable[[StreamState], None],
        now_ms: int,
        owner: str = "",
    ) -> StreamState:
        """Seal `base` in favour of a written successor, carrying over what was committed to it meanwhile.

        `owner` is the session that the bodies of long entries belong to until the seal.

        `check` sees the base with every entry below the seal, and raises where the successor may not replace it.
        """
        carried = len(base.commits)
        told: set[int] = set()
        while True:
            state = self.state(base.version)
            if late := state.commits[carried:]:
                tail = self.state(successor).tail
                self._put_certainly(successor, tail, Carried(late), owner)  # however many came, it is one put
                carried = len(state.commits)
            since = {delta.position for commit in state.commits[len(base.commits) :] for delta in commit.deltas}
            for position in sorted(state.retracted & since - told):
                self._put_certainly(successor, self.state(successor).tail, Retracted(position), owner)
                told.add(position)
            released = self.state(successor)  # read now: once the seal is there, nothing may fail any more
            check(state)  # the last thing before the seal: files age meanwhile
            if self.put(base.version, state.tail, Sealed(successor, now_ms)):
                break
        self._active = successor
        with contextlib.suppress(Exception):  # a hint saves time, nothing depends on it
            self.store.put(self.paths.hint, dump({"version": successor}))
        return released

    # Entries on the store

    def _put_certainly(
        self, version: str, sequence: int, entry: Entry, owner: str = "", effect: Effect | None = None
    ) -> bool:
        data = self._encoded(entry, owner)
        return put_certainly(self.store, self.paths.entry(version, sequence), data, effect)

    def _encoded(self, entry: Entry, owner: str) -> bytes:
        document = to_document(entry)
        data = dump(document)
        if len(data) <= ENTRY_BYTES_MAX or isinstance(entry, Sealed):
            return data
        path = self.paths.fresh("manifest", ".json", owner)
        self.store.put_if_absent(path, data)
        body = {"path": path, "sha256": hashlib.sha256(data).hexdigest()}
        return dump({"format": document["format"], "kind": kind_of(entry), "body": body})

    def _entries_from(self, version: str, sequence: int) -> Iterator[tuple[Entry, str | None]]:
        """The dense run of entries from `sequence` on. A few are probed for; where there are many, they are listed."""
        if sequence:
            for _ in range(_PROBES_BEFORE_LISTING):
                try:
                    yield self._read(self.paths.entry(version, sequence))
                except NotFoundError:
                    return
                sequence += 1
        dense = []
        prefix = self.paths.version(version)
        after = self.paths.entry(version, sequence - 1) if sequence else ""
        for stat in self.store.list(prefix, after):
            if stat.path != self.paths.entry(version, sequence):
                break
            dense.append(stat.path)
            sequence += 1
        if len(dense) <= 2:
            yield from map(self._read, dense)
        else:
            with ThreadPoolExecutor(16) as threads:
                yield from threads.map(self._read, dense)

    def _read(self, path: str) -> tuple[Entry, str | None]:
        document = self._read_document(path)
        body = document.get("body")
        if body is None:
            return from_document(document, path), None
        check_format(document, path)
        data = self.store.get(body["path"])
        if hashlib.sha256(data).hexdigest() != body["sha256"]:
            raise CorruptionError(f"{self.store.uri}{body['path']} is not what {path} names: its SHA-256 differs")
        return from_document(_parsed(data, body["path"]), body["path"]), body["path"]

    def _read_document(self, path: str) -> dict[str, Any]:
        return _parsed(self.store.get(path), path)

    def _successor(self, version: str) -> str | None:
        """Where a version's seal leads, or None. Only the last entry is read, not what the version says."""
        known = self._seen.get(version)
        if known is None:
            sequence = 0
            for stat in self.store.list(self.paths.version(version)):
                if stat.path != self.paths.entry(version, sequence):
                    break
                sequence += 1
            if sequence == 0:
                return None
            document = self._read_document(self.paths.entry(version, sequence - 1))
            return str(document["successor"]) if document.get("kind") == "sealed" else None
        return known.sealed.successor if known.sealed else None

    def _hinted(self) -> str:
        """A version that was active once: a place in the chain from which to follow seals."""
        try:
            return str(json.loads(self.store.get(self.paths.hint))["version"])
        except (NotFoundError, ValueError, KeyError, TypeError):
            return GENESIS

    # Checkpoints

    def _write_checkpoint(self, state: StreamState) -> None:
        """Entries 0‥tail as one object: the opened and compacted entries, and all commits in one."""
        entries = [state.opened, *_summary(state)]
        document = {
            "format": FORMAT_VERSION,
            "tail": state.tail,
            "entries": [to_document(entry) for entry in entries],
            "manifests": state.manifests,
        }
        self.store.put_if_absent(self.paths.checkpoint(state.version, state.tail), dump(document))

    def _checkpointed(self, version: str) -> StreamState | None:
        newest = None
        for stat in self.store.list(self.paths.checkpoints(version)):
            newest = stat.path
        if newest is None:
            return None
        try:
            document = _parsed(self.store.get(newest), newest)
            check_format(document, newest)
            entries = [(from_document(entry, newest), None) for entry in document["entries"]]
            state = replay(version, entries)
            return replace(state, tail=document["tail"], manifests=tuple(document["manifests"]))
        except (CorruptionError, NotFoundError, KeyError):
            return None  # the log itself says the same, slower


def _is_checkpoint(tail: int) -> bool:
    """Whether a log of this length gets a checkpoint: every 100 entries, then every 200, 400, … of a log that goes on.

    A checkpoint repeats all entries: at equal distances 10,000 appends would write half a million of them.
    """
    doublings = (tail // (32 * ENTRIES_BETWEEN_CHECKPOINTS)).bit_length()
    return tail % (ENTRIES_BETWEEN_CHECKPOINTS << doublings) == 0


def effect_of(entry: Entry, stream: str) -> Effect | None:
    """What an entry in the active version does, in words; a fence does nothing that a user waits for."""
    match entry:
        case Committed(commit):
            advice = "repeat it with the same token, which is committed once"
            if commit.token is None:
                advice = "it has no token, so see with `show` whether it is there before you repeat it"
            return Effect(f"the delta at position {commit.last_position} of {stream}", "committed", advice)
        case Sealed(successor):
            advice = "`show --versions` says which version is active; the same command goes on from there"
            return Effect(f"version {successor} of {stream}", "published", advice)
        case IndexReplaced():
            return Effect(f"the new index of {stream}", "in force", "repeat the command")
        case Retracted(position):
            return Effect(f"the delta at position {position} of {stream}", "retracted", "repeat the command")
        case _:
            return None


def _summary(state: StreamState) -> list[Entry]:
    entries: list[Entry] = []
    if state.compacted:
        entries.append(Compacted(state.compacted))
        entries += [IndexReplaced(index) for index in state.indices[1:]]
    entries += [Fence(session_id) for session_id in sorted(state.fences)]
    if state.commits:
        entries.append(Carried(state.commits))
    entries += [Retracted(position) for position in sorted(state.retracted)]
    if state.sealed:
        entries.append(state.sealed)
    return entries


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        raise CorruptionError(f"{path} is not JSON: truncated or overwritten") from None
    if not isinstance(document, dict):
        raise CorruptionError(f"{path} is not a JSON object")
    return document
