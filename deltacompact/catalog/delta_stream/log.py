"""The log of one partition stream on a store: reading it, committing to it, and the switch.

    writer A reads entries 0‥6, puts 7: created              -> committed
    writer B reads entries 0‥6, puts 7: exists, not B's own  -> reads 7, puts 8
    a compactor puts `sealed(4-a1)` at 9                     -> the one put that is the switch
    writer C reads up to 9, meets the seal, goes on in 4-a1

If the reply to a put is lost, read the slot: the commit id in it shows who won (certain_put.py). Versions are found by
following seals, never by listing.

    entries 0 1 2 4      somebody removed entry 3 from outside: every process that lists this log refuses to go on
    hint.json            the head: a version that a seal led to, and on S3 its last entries (heads.py)

A process that finds no head lists a version when it first reads it. After that it probes for the next entries. A writer
does not even probe: it puts its entry after the last one that it knows, and reads on only if that slot is taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.model import FORMAT_VERSION
from deltacompact.base.partitions import READ_AT_ONCE, both
from deltacompact.catalog.delta_stream import heads
from deltacompact.catalog.delta_stream.certain_put import Effect, put_certainly
from deltacompact.catalog.delta_stream.heads import Head, RecentEntries
from deltacompact.catalog.delta_stream.log_entries import (
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
from deltacompact.catalog.delta_stream.paths import GENESIS, StreamPaths
from deltacompact.catalog.delta_stream.state import StreamState, replay
from deltacompact.catalog.delta_stream.tokens import Tokens
from deltacompact.storage.objects import Fetches, ObjectStat, ObjectStore


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How a log is divided into objects; tests pass lower limits.

    entry_bytes_max                a longer entry stores its body as a separate object and names it
    entries_between_checkpoints    in a short log; a long log has checkpoints less often
    probes_before_listing          entries to probe for one by one before listing the rest of the log
    streams_listed_min             of a table with fewer streams, none is written into a listing (listing.py)
    keys_in_a_page                 how many keys S3 returns in one answer to a LIST request
    """

    entry_bytes_max: int = 64 << 10
    entries_between_checkpoints: int = 100
    probes_before_listing: int = 8
    streams_listed_min: int = 8
    keys_in_a_page: int = 1000


LOG_LIMITS = LogLimits()

_GENESIS_ENTRY = Opened(0, None, GENESIS, Tokens(), None)


def genesis_state() -> StreamState:
    """The state of a stream that was just begun."""
    return replay(GENESIS, [(_GENESIS_ENTRY, None)])


class StreamLog:
    """Reads and extends the log of one stream. Entries never change, so the log remembers those it has read."""

    def __init__(self, store: ObjectStore, paths: StreamPaths, limits: LogLimits = LOG_LIMITS) -> None:
        self.store = store
        self.paths = paths
        self.limits = limits
        self._seen: dict[str, StreamState] = {}
        self._active = GENESIS
        self._begun = False
        self.was_absent = False
        """`exists` has found no stream. To begin it does no harm if somebody else has done so since."""
        self._head: Head | None = None
        self._recent = RecentEntries()
        self._unlisted: dict[str, int] = {}
        """Versions that a head has shown: the entry from which on a listing has yet to look for holes."""
        self._led_by: dict[str, tuple[str, int]] = {}
        """The seals that led to versions: version and number of each seal."""
        self._keeps_heads = isinstance(store, Fetches)
        """On a local disk a head would cost an append more than it saves a reader."""
        self._at_once = READ_AT_ONCE if self._keeps_heads else 1

    # Reading

    def exists(self) -> bool:
        """Whether the stream was begun, even if its first entry is damaged or missing: reading the log reports that."""
        if not self._begun:
            self._head = self._read_head()
            has_log = self._head is not None and self._head.tail > 0
            self._begun = has_log or self._is_there(GENESIS, 0) or self._has_entries()
            self.was_absent = not self._begun
        return self._begun

    @property
    def remembered(self) -> StreamState | None:
        """The active version as this process last saw it, without a request; None: it has not read the log."""
        state = self._seen.get(self._active)
        return None if state is None or state.sealed else state

    def recent(self) -> StreamState:
        """The active version as this process or the head last saw it: entries may have come since."""
        if self._active not in self._seen:
            self._active, _ = self._hinted()
        state = self._seen.get(self._active)
        if state is None:
            self._head = Head(GENESIS)  # there is nothing more to learn from it
        if state is None or state.sealed:
            return self.active()
        self._begun = True
        return state

    def active(self, strictly: bool = False) -> StreamState:
        """The state of the active version, which has no seal. Raises NotFoundError where the stream was never begun.

        `strictly` lists the rest of the log instead of probing, which finds entries beyond a missing one.
        """
        version, listed = self._active, None
        if version == GENESIS and (GENESIS not in self._seen or self._seen[GENESIS].sealed):
            version, listed = self._hinted(strictly)
        while True:
            state, tail = self._seen.get(version), 0
            if state is None:
                tail, last = self._first_look(version)
                if not isinstance(last[0], Sealed):  # of a sealed version, its seal is enough
                    state = self._seen[version] = self._replayed(version, tail, last)
                else:
                    successor = last[0].successor
            elif not state.sealed:
                state = self.state(version, strictly, listed)
            if state is not None:
                if not state.sealed:
                    self._active, self._begun = version, True
                    return state
                successor, tail = state.sealed.successor, state.tail
            self._led_by[successor] = (version, tail - 1)
            version, listed = successor, None

    def chain(self) -> Iterator[StreamState]:
        """Every version from the genesis to the active one."""
        state = self.state(GENESIS)
        yield state
        while state.sealed:
            state = self.state(state.sealed.successor)
            yield state

    def state(self, version: str, strictly: bool = False, listed: list[ObjectStat] | None = None) -> StreamState:
        """Replay a version's log. Raises CorruptionError where an entry is missing before others.

        `listed` is a listing of the rest of the log that was made a moment ago.
        """
        known = self._seen.get(version)
        if known is None:
            state = self._replayed(version, *self._first_look(version))
        elif known.sealed:
            return known
        elif strictly:
            tail = self._listed_tail(version, known.tail, self._unlisted.pop(version, known.tail), listed)
            state = replay(version, self._entries(version, known.tail, tail), known)
        else:
            state = replay(version, list(self._entries_from(version, known.tail)), known)
        self._seen[version] = state
        return state

    def sealed_s(self, state: StreamState) -> float:
        """When a version was sealed, by the store's clock, which also dates the objects."""
        return self.store.stat(self.paths.entry(state.version, state.tail - 1)).modified_s

    def written_s(self, state: StreamState) -> float:
        """When the last entry was put that is not a fence, by the store's clock."""
        return self.store.stat(self.last_written(state)).modified_s

    def last_written(self, state: StreamState) -> str:
        """The path of the last entry that is not a fence."""
        sequence = state.tail - 1
        while sequence and state.fences and isinstance(self._entry(state.version, sequence), Fence):
            sequence -= 1
        return self.paths.entry(state.version, sequence)

    def _entry(self, version: str, sequence: int) -> Entry:
        return self._read(self.paths.entry(version, sequence))[0]

    def state_at(self, version: str, tail: int) -> StreamState:
        """The state of a version when its log had `tail` entries."""
        entries = [self._read(self.paths.entry(version, sequence)) for sequence in range(tail)]
        return replay(version, entries)

    # Writing

    def begin(self) -> None:
        """Put the first entry of the genesis version; every caller writes the same bytes."""
        self._put_certainly(GENESIS, 0, _GENESIS_ENTRY)
        self._begun, self.was_absent = True, False

    def put(self, version: str, sequence: int, entry: Entry) -> bool:
        """Put one entry at its sequence number. False: another entry holds the slot; read it before the next try.

        The caller must have read every entry below. Raises OutcomeUnknownError where the outcome cannot be known.
        """
        won = self._put_certainly(version, sequence, entry, effect=effect_of(entry, self.paths.root))
        if won:
            with contextlib.suppress(Exception):  # checkpoint and head only save time
                self._advise(version, sequence + 1)
        return won

    def extend(self, decide: Callable[[StreamState], Entry | None]) -> StreamState:
        """Put the entry that `decide` returns for the active state; decide again after each lost slot.

        Returns the state below the entry. `decide` returns None where nothing is left to do, or raises. It is asked
        about the recent state first: if the put succeeds, that was the active one.
        """
        entry: Entry | None = None
        with contextlib.suppress(DeltaCompactError):  # what is refused now may be right after later entries
            state = self.recent()
            entry = decide(state)
        if entry is not None and self.put(state.version, state.tail, entry):
            return state
        while True:
            state = self.active()
            entry = decide(state)
            if entry is None or self.put(state.version, state.tail, entry):
                return state

    def write_version(self, number: int, entries: list[Entry], owner: str = "") -> str:
        """Write a successor in full, visible to nobody. Every attempt gets its own name."""
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
        """Seal `base` in favour of a written successor, and carry over the commits that came meanwhile.

        `owner` is the session that owns the bodies of long entries until the seal. `check` gets the base with every
        entry below the seal, right before each try to put it, and raises where the successor must not replace it.
        """
        carried = len(base.commits)
        retracted: set[int] = set()
        state = self._seen.get(base.version) or self.state(base.version)  # if entries came since, the seal is refused
        while True:
            check(state)
            if late := state.commits[carried:]:
                self._put_certainly(successor, self._own(successor).tail, Carried(late), owner)  # one put for all
                carried = len(state.commits)
            since = {delta.position for commit in state.commits[len(base.commits) :] for delta in commit.deltas}
            for position in sorted(state.retracted & since - retracted):
                self._put_certainly(successor, self._own(successor).tail, Retracted(position), owner)
                retracted.add(position)
            released = self._own(successor)  # before the seal: after it, nothing may fail
            check(state)  # directly before the seal, because files age
            if self.put(base.version, state.tail, Sealed(successor, now_ms)):
                break
            state = self.state(base.version)
        self._active = successor
        self._led_by[successor] = (base.version, state.tail)
        with contextlib.suppress(Exception):  # a head only saves time
            self._put_head(successor, released.tail)
        return released

    def _own(self, successor: str) -> StreamState:
        """The state of a version that this process is writing."""
        return self._seen.get(successor) or self.state(successor)

    # Entries on the store

    def _put_certainly(
        self, version: str, sequence: int, entry: Entry, owner: str = "", effect: Effect | None = None
    ) -> bool:
        path, body, manifest = self.paths.entry(version, sequence), dump(to_document(entry)), None
        data = body
        if len(body) > self.limits.entry_bytes_max and not isinstance(entry, Sealed):
            manifest = self.paths.fresh("manifest", ".json", owner)
            self.store.put_if_absent(manifest, body)
            stub = {"path": manifest, "sha256": hashlib.sha256(body).hexdigest()}
            data = dump({"format": FORMAT_VERSION, "kind": kind_of(entry), "body": stub})
        won = put_certainly(self.store, path, data, effect)
        if won:
            self._remember(version, sequence, data, (_entry_from(_parsed(body, path), path), manifest))
        return won

    def _remember(self, version: str, sequence: int, data: bytes, entry: tuple[Entry, str | None]) -> None:
        """Add an entry of our own to what we know of the log, as everybody else will read it."""
        if self._keeps_heads:
            self._recent.add(version, sequence, data)
        known = self._seen.get(version)
        if sequence == 0 or (known is not None and known.tail == sequence and not known.sealed):
            self._seen[version] = replay(version, [entry], known if sequence else None)

    def _entries_from(self, version: str, sequence: int) -> Iterator[tuple[Entry, str | None]]:
        """The entries from `sequence` on. Probe for a few; if there are more, list the rest."""
        for _ in range(self.limits.probes_before_listing):
            path = self.paths.entry(version, sequence)
            try:
                document = self._read_document(path)
            except NotFoundError:
                return
            yield self._decoded(document, path)  # outside the try: a missing body is not the end of the log
            sequence += 1
        yield from self._entries(version, sequence, self._listed_tail(version, sequence, sequence))

    def _entries(self, version: str, first: int, stop: int) -> Iterator[tuple[Entry, str | None]]:
        """Entries that are known to be there."""
        paths = [self.paths.entry(version, sequence) for sequence in range(first, stop)]
        if len(paths) <= 2:
            yield from map(self._read, paths)
        else:
            with ThreadPoolExecutor(16) as threads:
                yield from threads.map(self._read, paths)

    def _listed_tail(self, version: str, known: int = 0, first: int = 0, listed: list[ObjectStat] | None = None) -> int:
        """The sequence number after the last entry that a listing of the version shows, which begins at `first`.

        A listing is not atomic: one page may miss an entry while a later page has the next one. So get each entry that
        the listing lacks. Raises CorruptionError where it is missing. If the last of `known` entries is missing, the
        log has lost its end; so it is listed as well.
        """
        first = max(0, min(first, known - 1))
        stats = self._list(version, first) if listed is None else listed
        tail = first
        for sequence in sorted(n for stat in stats if (n := self.paths.sequence(version, stat.path)) is not None):
            while tail < sequence:
                if not self._is_there(version, tail):
                    raise self._hole(version, tail, self.paths.entry(version, sequence))
                tail += 1
            tail = sequence + 1
        if tail < known and not self._is_there(version, known - 1):
            raise self._hole(version, known - 1, "a head that was made of it")
        return max(tail, known)

    def _list(self, version: str, first: int) -> list[ObjectStat]:
        """The objects in a version's folder, from its entry number `first` on."""
        after = self.paths.entry(version, first - 1) if first else ""
        return list(self.store.list(self.paths.version(version), after))

    def _is_there(self, version: str, sequence: int) -> bool:
        try:
            self.store.get(self.paths.entry(version, sequence))
        except NotFoundError:
            return False
        return True

    def _has_entries(self) -> bool:
        return any(self.paths.entry_of(stat.path) for stat in self.store.list(self.paths.logs))

    def _hole(self, version: str, missing: int, witness: str) -> CorruptionError:
        path = self.paths.entry(version, missing)
        return CorruptionError(
            f"log entry {self.store.uri}{path} is missing, but {witness} is there, which came later: it was removed "
            "from outside; restore it from a backup (nothing was changed)"
        )

    def _first_look(self, version: str) -> tuple[int, tuple[Entry, str | None]]:
        """The tail and the last entry of a version that this process has not read before."""
        tail = self._listed_tail(version)
        if tail == 0 and self._is_there(version, 0):
            tail = 1  # begun after the listing
        if tail:
            return tail, self._read(self.paths.entry(version, tail - 1))
        if version == GENESIS and not self._has_entries():
            raise NotFoundError(f"{self.store.uri}{self.paths.version(version)} holds no log")
        raise self._hole(version, 0, "a later version" if version == GENESIS else "the seal that names its version")

    def _replayed(self, version: str, tail: int, last: tuple[Entry, str | None]) -> StreamState:
        """A version from its checkpoint and the entries after it. The last entry was read already."""
        known = self._checkpointed(version, tail) if tail >= self.limits.entries_between_checkpoints else None
        first = known.tail if known else 0
        if first >= tail:
            assert known is not None
            return known
        return replay(version, [*self._entries(version, first, tail - 1), last], known)

    def _read(self, path: str) -> tuple[Entry, str | None]:
        return self._decoded(self._read_document(path), path)

    def _decoded(self, document: dict[str, Any], path: str) -> tuple[Entry, str | None]:
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
        return _entry_from(_parsed(data, body["path"]), body["path"]), body["path"]

    def _read_document(self, path: str) -> dict[str, Any]:
        data = self.store.get(path)
        if self._keeps_heads and (entry := self.paths.entry_of(path)):
            self._recent.add(*entry, data)
        return _parsed(data, path)

    # The head

    def _hinted(self, strictly: bool = False) -> tuple[str, list[ObjectStat] | None]:
        """The version to follow seals from: the one that the head names, or the genesis.

        A head counts only if the seal that led to its version is there. Its entries need not be read again.
        `strictly`: the log is to be listed from the head's first entry on; meanwhile, that is done.
        """
        head, self._head = self._head or self._read_head(), None
        if head is None:
            return GENESIS, None
        released, listed = both(
            lambda: head.version == GENESIS or self._is_released(head),
            lambda: self._list(head.version, head.first) if strictly and head.entries else None,
            self._at_once,
        )
        if not released:
            return GENESIS, None
        if head.tail and head.version not in self._seen:
            try:
                self._seen[head.version] = self._replayed_head(head)
            except DeltaCompactError:  # the log itself is read, and says what is wrong
                listed = None
        return head.version, listed

    def _read_head(self) -> Head | None:
        try:
            return heads.parsed(self.paths.root, self.store.get(self.paths.hint))
        except NotFoundError:
            return None

    def _is_released(self, head: Head) -> bool:
        """Whether a seal leads to the head's version."""
        if head.parent is None or head.seal is None:
            return self._follows_a_seal(head.version)
        if self._sealed_successor(head.parent, head.seal) != head.version:
            return self._follows_a_seal(head.version)
        self._led_by[head.version] = (head.parent, head.seal)
        return True

    def _replayed_head(self, head: Head) -> StreamState:
        known = self._read_checkpoint(head.version, head.first) if head.first else None
        if known is None and head.first:
            raise NotFoundError("a vacuum deleted the checkpoint, because there is a newer one")
        entries = []
        for sequence, document in enumerate(head.entries, head.first):
            self._recent.add(head.version, sequence, dump(document))
            entries.append(self._decoded(document, self.paths.entry(head.version, sequence)))
        self._recent.written[head.version] = head.tail
        self._unlisted[head.version] = head.first
        return replay(head.version, entries, known)

    def _put_head(self, version: str, tail: int) -> None:
        """Overwrite the head. A long log gets a new one at every hundredth part only, because it is written whole."""
        parent, seal = self._led_by.get(version, (None, None))
        log = self._recent.since_checkpoint(version, tail) if self._keeps_heads else []
        if tail - self._recent.written.get(version, 0) > len(log) // 100:
            first = tail - len(log)
            self.store.put(self.paths.hint, heads.encoded(self.paths.root, version, parent, seal, first, log))
            self._recent.written[version] = tail

    def _sealed_successor(self, version: str, sequence: int) -> str | None:
        """The successor that an entry names; None where the entry is missing or is not a seal."""
        try:
            entry, _ = self._read(self.paths.entry(version, sequence))
        except (InputError, CorruptionError):
            return None
        return entry.successor if isinstance(entry, Sealed) else None

    def _follows_a_seal(self, version: str) -> bool:
        """Whether the last entry of a version's parent is a seal that names it. (Old hints do not name that entry.)

        Raises CorruptionError where the version was active once but its parent's seal is missing.
        """
        opened = self.opened(version)
        if opened is None or opened.parent is None:
            return False
        tail = self._listed_tail(opened.parent)
        successor = self._sealed_successor(opened.parent, tail - 1) if tail else None
        if successor is None and (witness := self.sign_of_life(version)):
            raise self._hole(opened.parent, tail, witness)
        return successor == version

    def opened(self, version: str) -> Opened | None:
        """The first entry of a version; None where it is missing."""
        try:
            entry, _ = self._read(self.paths.entry(version, 0))
        except NotFoundError:
            return None
        return entry if isinstance(entry, Opened) else None

    def sign_of_life(self, version: str) -> str | None:
        """The path of an entry that only an active version gets (a writer's commit, a fence, a seal); None: none."""
        if (opened := self.opened(version)) is None:
            return None
        for sequence in range(1, self._listed_tail(version)):
            path = self.paths.entry(version, sequence)
            try:
                entry, _ = self._read(path)
            except NotFoundError:  # a vacuum is deleting this log
                return None
            written = isinstance(entry, Committed) and entry.commit.commit_id != opened.lineage  # not a restatement's
            if written or isinstance(entry, Fence | Sealed):
                return path
        return None

    # Checkpoints

    def _advise(self, version: str, tail: int) -> None:
        """After the last put of an entry: write a checkpoint where one is due, and the head."""
        known = self._seen.get(version)
        if _is_checkpointed(tail, self.limits.entries_between_checkpoints):
            self._write_checkpoint(known if known and known.tail >= tail else self.state(version))
        if self._keeps_heads and known and known.tail == tail and not known.sealed:
            self._put_head(version, tail)

    def _write_checkpoint(self, state: StreamState) -> None:
        """Put entries 0‥tail as one object: the opened and compacted entries, and all commits in one entry."""
        entries = [state.opened, *_summary(state)]
        document = {
            "format": FORMAT_VERSION,
            "tail": state.tail,
            "entries": [to_document(entry) for entry in entries],
            "manifests": state.manifests,
        }
        self.store.put_if_absent(self.paths.checkpoint(state.version, state.tail), dump(document))
        self._recent.begin_at(state.version, state.tail)

    def _checkpointed(self, version: str, tail: int) -> StreamState | None:
        """The newest checkpoint of a log with `tail` entries. None: read the log itself, which is slower."""
        stats = self.store.list(self.paths.checkpoints(version))
        tails = [found[1] for stat in stats if (found := self.paths.checkpoint_of(stat.path))]
        if not tails:
            return None
        if max(tails) > tail and not self._is_there(version, max(tails) - 1):  # if it is there, the log has grown
            raise self._hole(
                version, max(tails) - 1, "a checkpoint of it, " + self.paths.checkpoint(version, max(tails))
            )
        usable = [checkpoint_tail for checkpoint_tail in tails if checkpoint_tail <= tail]
        return self._read_checkpoint(version, max(usable)) if usable else None

    def _read_checkpoint(self, version: str, tail: int) -> StreamState | None:
        path = self.paths.checkpoint(version, tail)
        try:
            document = self._read_document(path)
            check_format(document, path)
            state = replay(version, [(from_document(entry, path), None) for entry in document["entries"]])
            manifests = tuple(map(str, document["manifests"]))
        except (DeltaCompactError, LookupError, TypeError, ValueError, AttributeError):
            return None  # a vacuum deleted it, or it is not ours
        if document.get("tail") != tail:
            return None
        self._recent.begin_at(version, tail)
        return replace(state, tail=tail, manifests=manifests)


def _is_checkpointed(tail: int, every: int) -> bool:
    """Whether a log of `tail` entries gets a checkpoint: at 100, 200, … 800, then 1,000, 1,200, … 1,600, 2,000, …

    Each checkpoint holds the whole log. With equal distances their total size would grow with the square of the log,
    so the distance grows up to a quarter of the log.
    """
    number, rest = divmod(tail, every)
    step = 1 << max(0, number.bit_length() - 3)
    return rest == 0 and number % step == 0


def _entry_from(document: dict[str, Any], path: str) -> Entry:
    try:
        return from_document(document, path)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise CorruptionError(f"{path} is not a log entry as we write them: overwritten from outside") from None


def effect_of(entry: Entry, stream: str) -> Effect | None:
    """What an entry in the active version does, in words; None for a fence, because no user waits for it."""
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
