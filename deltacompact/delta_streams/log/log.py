"""The log of one partition stream: reading its versions, committing to the active one, and the switch to the next.

    writer A reads entries 0‥6, puts 7: created              -> committed
    writer B reads entries 0‥6, puts 7: exists, not B's own  -> reads 7, puts 8
    a compactor puts `sealed(4-a1)` at 9                     -> the one put that is the switch
    writer C reads up to 9, meets the seal, goes on in 4-a1

Versions are found by following seals, never by listing. A process begins at the version that the head names
(stored_head.py), or at the genesis, and lists a version when it first reads it. After that it probes for the next
entries. A writer does not even probe: it puts its entry after the last one that it knows, and reads on only if that
slot is taken.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count

from deltacompact.base.backoff import wait_s
from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.delta_streams.log import checkpoints
from deltacompact.delta_streams.log.effects import effect_of
from deltacompact.delta_streams.log.entries import Carried, Entry, Fence, Opened, Retracted, Sealed, TakenOut
from deltacompact.delta_streams.log.heads import StreamHead, only
from deltacompact.delta_streams.log.objects import LOG_LIMITS, LogLimits, LogObjects, ReadEntry
from deltacompact.delta_streams.log.state import StreamState, replay
from deltacompact.delta_streams.log.stored_head import StoredHead
from deltacompact.delta_streams.log.tokens import Tokens
from deltacompact.delta_streams.paths import GENESIS, StreamPaths
from deltacompact.storage.certain_put import Effect
from deltacompact.storage.objects import ObjectStat, ObjectStore

_PAUSE_S, _LONGEST_PAUSE_S = 0.025, 2.0

_GENESIS_ENTRY = Opened(0, None, GENESIS, Tokens(), None)


def genesis_state() -> StreamState:
    """The state of a stream that was just begun."""
    return replay(GENESIS, [(_GENESIS_ENTRY, None)])


def pause_s(lost: int) -> float:
    """Seconds to wait after `lost` lost slots in a row. After the first, none: only two writers met."""
    return wait_s(lost, _PAUSE_S, _LONGEST_PAUSE_S) if lost > 1 else 0.0


class StreamLog:
    """Reads and extends the log of one stream. Entries never change, so the log remembers those it has read."""

    def __init__(
        self,
        store: ObjectStore,
        paths: StreamPaths,
        limits: LogLimits = LOG_LIMITS,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self._wait = wait
        self.paths = paths
        self.objects = LogObjects(store, paths, limits)
        self._limits = limits
        self._head = StoredHead(self.objects)
        self._seen: dict[str, StreamState] = {}
        self._active = GENESIS
        self._begun = False
        self.was_absent = False
        """`exists` has found no stream. Beginning it is harmless if another process has begun it since."""
        self._known_head: StreamHead | None = None
        """The head as `exists` has read it, for the first look at the log."""
        self._written: tuple[tuple[str, int], float] | None = None
        self._unlisted: dict[str, int] = {}
        """For each version that came from a head: the first entry that no listing has checked for holes yet."""

    # Reading

    def exists(self) -> bool:
        """Whether the stream was begun, even if its first entry is damaged or missing: reading the log reports that."""
        if not self._begun:
            self._known_head = self._head.read()
            has_log = self._known_head is not None and self._known_head.tail > 0
            self._begun = has_log or self.objects.is_there(GENESIS, 0) or self.objects.are_there()
            self.was_absent = not self._begun
        return self._begun

    @property
    def remembered(self) -> StreamState | None:
        """The active version as this process last saw it, without a request. None: it has not read the log."""
        state = self._seen.get(self._active)
        return None if state is None or state.sealed else state

    def recent(self) -> StreamState:
        """The active version as this process or the head last saw it: entries may have come since."""
        if self._active not in self._seen:
            self._active, _ = self._hinted()
        state = self._seen.get(self._active)
        if state is None:
            self._known_head = StreamHead(GENESIS)  # there is nothing more to learn from it
        if state is None or state.sealed:
            return self.active()
        self._begun = True
        return state

    def active(self, strictly: bool = False) -> StreamState:
        """The state of the active version, which has no seal. Raises NotFoundError if the stream was never begun.

        `strictly` lists the rest of the log instead of probing. A listing finds entries after a missing one.
        """
        version, listed = self._active, None
        genesis = self._seen.get(GENESIS)
        if version == GENESIS and (genesis is None or genesis.sealed):
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
                    self._begun = True
                    self._move_to(version)
                    return state
                successor, tail = state.sealed.successor, state.tail
            self._head.led(version, tail - 1, successor)
            version, listed = successor, None

    def chain(self) -> Iterator[StreamState]:
        """Every version from the genesis to the active one. It remembers none: each has a list of all its files."""
        state = self.state(GENESIS)
        yield state
        while state.sealed:
            state = self.state(state.sealed.successor)
            self._keep(self._active, state.version)
            yield state

    def since(self, is_begin: Callable[[StreamState], bool], strictly: bool = False) -> list[StreamState]:
        """The versions from the newest for which `is_begin` holds to the active one; if it holds for none, all.

        They are read from the active one back, so the cost does not grow with the history. `strictly`: see `active`.
        """
        newest_first = [self.active(strictly)]
        while newest_first[-1].version != GENESIS and not is_begin(newest_first[-1]):
            parent = newest_first[-1].opened.parent
            state = None if parent is None else self.state(parent)
            if state is None or state.sealed is None or state.sealed.successor != newest_first[-1].version:
                return list(self.chain())
            newest_first.append(state)
        return newest_first[::-1]

    def state(self, version: str, strictly: bool = False, listed: list[ObjectStat] | None = None) -> StreamState:
        """Replay a version's log. Raises CorruptionError if an entry is missing before others.

        `listed` is a listing of the rest of the log that was made a moment ago.
        """
        known = self._seen.get(version)
        if known is None:
            state = self._replayed(version, *self._first_look(version))
        elif known.sealed:
            return known
        elif strictly:
            first = self._unlisted.pop(version, known.tail)
            tail = self.objects.listed_tail(version, known.tail, first, listed)
            state = replay(version, self.objects.read_range(version, known.tail, tail), known)
        else:
            state = replay(version, list(self.objects.read_from(version, known.tail)), known)
        self._seen[version] = state
        return state

    def sealed_s(self, state: StreamState) -> float:
        """When a version was sealed, by the store's clock, which also dates the objects."""
        return self.store.stat(self.paths.entry(state.version, state.tail - 1)).modified_s

    def written_s(self, state: StreamState) -> float:
        """When the last entry was put that is not a fence, by the store's clock. Entries stay as they are: it is asked
        once for each tail."""
        if self._written is None or self._written[0] != (state.version, state.tail):
            self._written = (state.version, state.tail), self.store.stat(self.last_written(state)).modified_s
        return self._written[1]

    def opened_after(
        self,
        base: StreamState,
        now_ms: int,
        position: int | None,
        lineage: str | None = None,
        taken_out: TakenOut | None = None,
    ) -> Opened:
        """The first entry of a successor. `lineage` None: a new one, because the contents differ.

        position    the greatest one so far. Commits that come while the successor is written have greater ones
        """
        tokens = self._tokens_inherited(base, now_ms)
        number, lineage = base.opened.number + 1, lineage or uuid.uuid4().hex
        return Opened(number, base.version, lineage, tokens, position, now_ms, taken_out)

    def _tokens_inherited(self, base: StreamState, now_ms: int) -> Tokens:
        """The tokens that a successor of `base` begins with. The store's clock, which dates its last entry, counts."""
        if not base.has_named_tokens:
            return base.tokens_inherited(now_ms)
        last = self.store.stat(self.paths.entry(base.version, base.tail - 1))
        return base.tokens_inherited(now_ms, int(last.modified_s * 1000))

    def last_written(self, state: StreamState) -> str:
        """The path of the last entry that is not a fence."""
        sequence = state.tail - 1
        while sequence and state.fences and isinstance(self.objects.read(state.version, sequence)[0], Fence):
            sequence -= 1
        return self.paths.entry(state.version, sequence)

    def state_at(self, version: str, tail: int) -> StreamState:
        """The state of a version when its log had `tail` entries, as somebody saw it: so no seal is looked for."""
        known = self._seen.get(version)
        if known is None:
            head = self._known_head or self._head.read()
            known = None if head is None else self._head.state_at(head, version, tail)
            if head is not None and known is not None and head.tail == tail:
                self._seen[version], self._unlisted[version] = known, head.first
        if known is not None and known.tail == tail:
            return known
        return self._replayed(version, tail, self.objects.read(version, tail - 1))

    # Writing

    def begin(self) -> None:
        """Put the first entry of the genesis version; every caller writes the same bytes."""
        self._put(GENESIS, 0, _GENESIS_ENTRY)
        self._begun, self.was_absent = True, False

    def put(self, version: str, sequence: int, entry: Entry) -> bool:
        """Put one entry at its sequence number. False: another entry holds the slot; read it before the next try.

        The caller must have read every entry below. Raises OutcomeUnknownError if the outcome cannot be known.
        """
        won = self._put(version, sequence, entry, effect=effect_of(entry, self.paths.root))
        if won:
            with contextlib.suppress(Exception):  # checkpoint and head only save time
                self._advise(version, sequence + 1)
        return won

    def extend(self, decide: Callable[[StreamState], Entry | None]) -> StreamState:
        """Put the entry that `decide` returns for the active state; decide again after each lost slot.

        Returns the state below the entry. `decide` returns None if nothing is left to do, or raises. It first gets the
        recent state: if the put succeeds, that was the active state. A writer that loses slot after slot waits longer
        and longer, so that a hundred writers do not all put at once. A seal does not wait: it uses the gaps that the
        writers leave.
        """
        entry: Entry | None = None
        with contextlib.suppress(DeltaCompactError):  # what is refused now may be right after later entries
            state = self.recent()
            entry = decide(state)
        if entry is not None and self.put(state.version, state.tail, entry):
            return state
        for lost in count(1):
            self._wait(pause_s(lost))
            state = self.active(strictly=lost > 1)  # many entries came: a listing is faster than probes
            entry = decide(state)
            if entry is None or self.put(state.version, state.tail, entry):
                return state
        raise AssertionError("unreachable")

    def write_version(self, number: int, entries: list[Entry], owner: str = "") -> str:
        """Write a successor in full, visible to nobody. Every attempt gets its own name."""
        version = f"{number}-{uuid.uuid4().hex}"
        for sequence, entry in enumerate(entries):
            self._put(version, sequence, entry, owner)
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
        entry below the seal, right before each try to put it, and raises if the successor must not replace it.
        """
        carried = len(base.commits)
        retracted: set[int] = set()
        state = self._seen.get(base.version) or self.state(base.version)  # if entries came since, the seal is refused
        while True:
            check(state)
            if late := state.commits[carried:]:
                self._put(successor, self._own(successor).tail, Carried(late), owner)  # one put for all
                carried = len(state.commits)
            since = {delta.position for commit in state.commits[len(base.commits) :] for delta in commit.deltas}
            for position in sorted(state.retracted & since - retracted):
                self._put(successor, self._own(successor).tail, Retracted(position), owner)
                retracted.add(position)
            released = self._own(successor)  # before the seal: after it, nothing may fail
            check(state)  # directly before the seal, because files age
            if self.put(base.version, state.tail, Sealed(successor, now_ms)):
                break
            state = self.state(base.version)
        self._move_to(successor)
        self._head.led(base.version, state.tail, successor)
        with contextlib.suppress(Exception):  # a head only saves time
            self._head.put(successor, released.tail)
        return released

    def _own(self, successor: str) -> StreamState:
        """The state of a version that this process is writing."""
        return self._seen.get(successor) or self.state(successor)

    # Inside

    def _move_to(self, version: str) -> None:
        """The active version is this one. Forget those before the last one: who follows a stream for months would
        remember the files of all its versions."""
        if version != (former := self._active):
            self._keep(former, version)
            self._active = version

    def _keep(self, *versions: str) -> None:
        """Forget all other versions."""
        self._seen = only(self._seen, versions)
        self._unlisted = only(self._unlisted, versions)
        self._head.keep(versions)

    def _hinted(self, strictly: bool = False) -> tuple[str, list[ObjectStat] | None]:
        """The version from which to follow seals: the head's version, or the genesis.

        A head counts only if the seal that led to its version is there. Its entries need not be read again.
        `strictly`: at the same time, list the log from the head's first entry on.
        """
        head, self._known_head = self._known_head or self._head.read(), None
        if head is None:
            return GENESIS, None
        counts, listed = self._head.checked(head, with_listing=strictly)
        if not counts:
            return GENESIS, None
        if head.tail and head.version not in self._seen:
            try:
                self._seen[head.version] = self._head.replayed(head)
                self._unlisted[head.version] = head.first
            except DeltaCompactError:  # the log itself is read, and says what is wrong
                listed = None
        return head.version, listed

    def _first_look(self, version: str) -> tuple[int, ReadEntry]:
        """The tail and the last entry of a version that this process has not read before."""
        tail = self.objects.listed_tail(version)
        if tail == 0 and self.objects.is_there(version, 0):
            tail = 1  # begun after the listing
        if tail:
            return tail, self.objects.read(version, tail - 1)
        if version == GENESIS and not self.objects.are_there():
            raise NotFoundError(f"{self.store.uri}{self.paths.version(version)} holds no log")
        raise self.objects.hole(
            version, 0, "a later version" if version == GENESIS else "the seal that names its version"
        )

    def _replayed(self, version: str, tail: int, last: ReadEntry) -> StreamState:
        """A version from its checkpoint and the entries after it. The last entry was read already."""
        has_checkpoints = tail >= self._limits.entries_between_checkpoints
        known = checkpoints.newest(self.objects, version, tail) if has_checkpoints else None
        first = known.tail if known else 0
        if first >= tail:
            assert known is not None
            return known
        return replay(version, [*self.objects.read_range(version, first, tail - 1), last], known)

    def _put(self, version: str, sequence: int, entry: Entry, owner: str = "", effect: Effect | None = None) -> bool:
        """Put an entry, and add it to the state that we remember."""
        stored = self.objects.put(version, sequence, entry, owner, effect)
        if stored is None:
            return False
        known = self._seen.get(version)
        if sequence == 0 or (known is not None and known.tail == sequence and not known.sealed):
            self._seen[version] = replay(version, [stored], known if sequence else None)
        return True

    def _advise(self, version: str, tail: int) -> None:
        """After the last put of an entry: write a checkpoint if one is due, and the head."""
        known = self._seen.get(version)
        if checkpoints.is_due(tail, self._limits.entries_between_checkpoints):
            checkpoints.write(self.objects, known if known and known.tail >= tail else self.state(version))
        if self.objects.keeps_heads and known and known.tail == tail and not known.sealed:
            self._head.put(version, tail)
