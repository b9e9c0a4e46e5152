"""The state of a version: the result of replaying its log. There is no other source of truth.

opened(3) · compacted(A, watermark 70) · carried(80) · committed(90) · sealed(4-a1)
    -> live rows of A, then deltas 80 and 90 to fold; tail 5; deprecated in favour of 4-a1
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from deltacompact.base.deltas import Commit, CompactedDelta, Delta, ObjectRef
from deltacompact.base.errors import CorruptionError
from deltacompact.base.model import LifecycleState
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.tokens import Token
from deltacompact.base.wording import counted
from deltacompact.delta_streams.log.entries import (
    Carried,
    CommittedEntry,
    Compacted,
    Entry,
    Fence,
    IndexReplaced,
    Opened,
    Retracted,
    Sealed,
)
from deltacompact.delta_streams.log.tokens import Commits, TokenCommit, Tokens


def is_attempt(fenced: str) -> bool:
    """Whether a fence names an attempt of a job run ("run-1/3/1"). The names of sessions have no slash."""
    return "/" in fenced


@dataclass(frozen=True, slots=True, repr=False)
class StreamState(UsersWords):
    """One version, as of the entries below `tail` (the sequence number that a writer would put next).

    `commits` include retracted deltas; deltas at positions in `retracted` no longer count. `manifests` are the paths of
    bodies that entries of this log name. `index` is the last of `indices`: that of the compacted delta, or of a rehash.
    """

    _inside = (
        *("commits", "committed", "fenced_sessions", "fences", "has_named_tokens", "indices", "is_restated", "known"),
        *("manifests", "number", "opened", "retracted", "retracted_by", "retracted_here", "sealed", "tail"),
        "tokens_inherited",
    )

    version: str
    tail: int
    opened: Opened
    compacted: CompactedDelta | None = None
    index: ObjectRef | None = None
    commits: Commits = field(default_factory=Commits)
    fences: frozenset[str] = frozenset()
    sealed: Sealed | None = None
    manifests: tuple[str, ...] = ()
    indices: tuple[ObjectRef, ...] = ()
    retracted: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        rows = counted(self.compacted.rows if self.compacted else 0, "compacted row")
        return f"version {self.version}: {rows}, {counted(len(self.deltas), 'delta')} since"

    @property
    def fenced_sessions(self) -> frozenset[str]:
        """The sessions that a vacuum fenced. The other fences name attempts, see `is_attempt`."""
        return frozenset(name for name in self.fences if not is_attempt(name))

    @property
    def deltas(self) -> tuple[Delta, ...]:
        """Deltas that are not compacted yet, in stream order."""
        return tuple(delta for delta in self.committed if delta.position not in self.retracted)

    @property
    def number(self) -> int:
        """Of the version: 0 for the first."""
        return int(self.version.partition("-")[0])

    @property
    def is_restated(self) -> bool:
        """Whether its rows are not compacted, and those of the version before it may be shown."""
        return self.number > 0 and self.compacted is None and bool(self.deltas)

    @property
    def committed(self) -> tuple[Delta, ...]:
        """Deltas that are not compacted yet, with the retracted ones."""
        return tuple(delta for commit in self.commits for delta in commit.deltas)

    @property
    def retracted_here(self) -> frozenset[int]:
        """The retracted positions of deltas that the version has. Some rollbacks to a moment wrote others, too."""
        return self.retracted & {delta.position for delta in self.committed}

    def known(self, token: Token) -> TokenCommit | None:
        """The commit of a token, or a commit of its producer with a greater number. None: the token is new."""
        return self.commits.known(token) or self.opened.tokens.known(token)

    @property
    def has_named_tokens(self) -> bool:
        """Whether the version knows tokens that expire: those without a number."""
        names = (commit.token is not None and commit.token.sequence is None for commit in self.commits)
        return bool(self.opened.tokens.others) or any(names)

    def tokens_inherited(self, now_ms: int, reached_ms: int | None = None) -> Tokens:
        """The tokens that a successor begins with. A token's age counts from the compaction of its commit.

        `reached_ms` is a time that has surely passed. With it, a clock that is ahead makes us forget no token early,
        and a clock that is behind makes no token look older than it is.
        """
        reached_ms = now_ms if reached_ms is None else reached_ms
        return self.opened.tokens.unexpired(min(now_ms, reached_ms)).including(self.commits, max(now_ms, reached_ms))

    @property
    def last_position(self) -> int | None:
        """The greatest stream position ever committed, across versions."""
        known = [self.opened.last_position, self.commits[-1].last_position if self.commits else None]
        return max((position for position in known if position is not None), default=None)

    @property
    def lineage(self) -> str:
        """Destinations compare it. A retraction changes it, because they may have folded the retracted delta."""
        return _lineage(self.opened.lineage, sorted(self.retracted))

    def retracted_by(self, lineage: str) -> frozenset[int] | None:
        """The positions that were retracted when a compaction took over this lineage of the version. None: it had none
        such.

        Only deltas that came later can have been retracted since, because a compaction conflicts with the retraction
        of a delta that it folds. Their positions are greater.
        """
        positions = sorted(self.retracted)
        known = (positions[:count] for count in range(len(positions), -1, -1))
        found = (early for early in known if _lineage(self.opened.lineage, early) == lineage)
        return next(map(frozenset, found), None)

    @property
    def lifecycle(self) -> LifecycleState:
        """Active or deprecated; valid for a version that was reached by following seals."""
        return LifecycleState.DEPRECATED if self.sealed else LifecycleState.ACTIVE


def replay(version: str, entries: Iterable[tuple[Entry, str | None]], state: StreamState | None = None) -> StreamState:
    """The state after these entries (each with the path of its body, or None), from `state` or from nothing.

    Raises CorruptionError for an order of entries that no writer of ours makes.
    """
    tail = state.tail if state else 0
    commits: list[Commit] = []
    manifests: list[str] = []
    for entry, manifest in entries:
        if (tail == 0) != isinstance(entry, Opened):
            raise CorruptionError(f"version {version}: entry {tail} is {type(entry).__name__}, out of place")
        if state is not None and state.sealed:
            raise CorruptionError(f"version {version}: entry {tail} follows the seal")
        match entry:
            case Opened():
                state = StreamState(version, 0, entry)
            case Compacted(delta):
                state = _known(state, compacted=delta, index=delta.index, indices=(delta.index,))
            case CommittedEntry(commit):
                commits.append(commit)
            case Carried(carried):
                commits += carried
            case Fence(session_id):
                state = _known(state, fences=_known(state).fences | {session_id})
            case IndexReplaced(index):
                state = _known(state, index=index, indices=(*_known(state).indices, index))
            case Retracted(position):
                state = _known(state, retracted=_known(state).retracted | {position})
            case Sealed():
                state = _known(state, sealed=entry)
        if manifest:
            manifests.append(manifest)
        tail += 1
    state = _known(state)
    # The log grows entry by entry, so add to the known commits and do not copy them.
    return replace(
        state,
        tail=tail,
        commits=state.commits.plus(commits),
        manifests=(*state.manifests, *manifests) if manifests else state.manifests,
    )


def _lineage(opened: str, retracted: Sequence[int]) -> str:
    if not retracted:
        return opened
    return hashlib.sha256(" ".join([opened, *map(str, retracted)]).encode()).hexdigest()[:32]


def _known(state: StreamState | None, **changes: object) -> StreamState:
    if state is None:
        raise CorruptionError("the log is empty")
    return replace(state, **changes) if changes else state  # type: ignore[arg-type]
