"""Tokens: a batch that a producer sends twice is committed only once.

append(token="nightly")     committed at position 40
append(token="nightly")     skipped: known since position 40, nothing is written
append(token=("etl", 7))    committed at position 41: batch 7 of the producer "etl"
append(token=("etl", 6))    skipped: a producer counts upwards and is at 7
append(token="etl:6")       committed: a plain name; the colon means nothing

A version begins with the tokens of all commits before it (`Tokens`, in its opened entry). `Commits` holds the version's
own commits with their tokens. It grows in place, so 10,000 appends do not make 10,000 copies.

Release 0.1 read every token of the form "etl:7" as batch 7 of producer "etl". Its commits stay known under both tokens,
the name "etl:7" and ("etl", 7), so a batch that is sent again after the upgrade is not committed twice.
"""

from __future__ import annotations

import bisect
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from deltacompact.base.deltas import Commit, Delta
from deltacompact.base.model import OperationType
from deltacompact.base.tokens import Token

TOKEN_RETENTION_S = 30 * 24 * 3600
"""How long a token without a sequence number is remembered after its commit was compacted, in seconds."""

_JOINED = re.compile(r"(?s)(?P<producer>.+):(?P<sequence>\d{1,18})")


@dataclass(frozen=True, slots=True)
class TokenCommit:
    """The commit of a known token. For a producer, the commit with the greatest sequence number.

    operations    of each delta. Empty: release 0.1 did not record them
    time_ms       when the commit of a plain name was compacted
    deltas        the deltas, as long as they are not compacted
    """

    position: int
    operations: tuple[OperationType, ...] = ()
    sequence: int | None = None
    time_ms: int = 0
    deltas: tuple[Delta, ...] = ()

    @classmethod
    def of(cls, commit: Commit, sequence: int | None = None) -> TokenCommit:
        kinds = tuple(delta.operation for delta in commit.deltas)
        return cls(commit.last_position, kinds, sequence, commit.time_ms, commit.deltas)


def meanings(token: Token) -> tuple[Token, ...]:
    """The tokens that a commit makes known: two, if release 0.1 wrote a producer and its number as one text."""
    if not token.joined:
        return (token,)
    match = _JOINED.fullmatch(token.name)
    name = Token(token.name)
    return (name, Token(match["producer"], int(match["sequence"]))) if match else (name,)


def _as_joined(token: Token) -> Token | None:
    """The producer and number that release 0.1 would have read from a name; None: it would read just a name."""
    match = _JOINED.fullmatch(token.name) if token.sequence is None else None
    return Token(match["producer"], int(match["sequence"])) if match else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of all commits before a version: names, and the greatest sequence number of each producer.

    `joined` has the producers that release 0.1 committed, with sequence number and position.
    """

    producers: dict[str, TokenCommit] = field(default_factory=dict)
    others: dict[str, TokenCommit] = field(default_factory=dict)
    joined: dict[str, tuple[int, int]] = field(default_factory=dict)

    def known(self, token: Token) -> TokenCommit | None:
        if token.sequence is not None:
            known = self.producers.get(token.name)
            return known if known and known.sequence is not None and token.sequence <= known.sequence else None
        if token.name in self.others:
            return self.others[token.name]
        counted = _as_joined(token)
        if counted and counted.sequence is not None:
            sequence, position = self.joined.get(counted.name, (-1, 0))
            return TokenCommit(position) if counted.sequence <= sequence else None
        return None

    def including(self, commits: Iterable[Commit], now_ms: int) -> Tokens:
        """These tokens and the tokens of the commits, which are compacted at `now_ms`."""
        producers, others, joined = dict(self.producers), dict(self.others), dict(self.joined)
        for commit in commits:
            for token in meanings(commit.token) if commit.token else ():
                if token.sequence is None:
                    if not (commit.token and commit.token.joined and _as_joined(token)):
                        others[token.name] = replace(TokenCommit.of(commit), time_ms=now_ms, deltas=())
                    continue
                known = producers.get(token.name)
                if known is None or known.sequence is None or token.sequence > known.sequence:
                    producers[token.name] = replace(TokenCommit.of(commit, token.sequence), deltas=())
                if commit.token and commit.token.joined:
                    counted = (token.sequence, commit.last_position)
                    joined[token.name] = max(joined.get(token.name, counted), counted)
        return Tokens(producers, others, joined)

    def unexpired(self, now_ms: int) -> Tokens:
        """The tokens without the names whose commits were compacted too long ago."""
        oldest_ms = now_ms - TOKEN_RETENTION_S * 1000
        others = {name: known for name, known in self.others.items() if known.time_ms >= oldest_ms}
        return Tokens(self.producers, others, self.joined)

    def to_json(self) -> dict[str, Any]:
        return {
            "producers": {
                name: [known.sequence, known.position, known.operations] for name, known in self.producers.items()
            },
            "others": {name: [known.position, known.time_ms, known.operations] for name, known in self.others.items()},
            "joined": self.joined,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tokens:
        producers = {
            name: TokenCommit(position, _operations(rest), sequence)
            for name, (sequence, position, *rest) in value["producers"].items()
        }
        others = {
            name: TokenCommit(position, _operations(rest), None, time_ms)
            for name, (position, time_ms, *rest) in value["others"].items()
        }
        # Release 0.1 wrote no "joined": all its producers are joined.
        joined = {name: (pair[0], pair[1]) for name, pair in value.get("joined", value["producers"]).items()}
        return cls(producers, others, joined)


def _operations(rest: Sequence[Sequence[str]]) -> tuple[OperationType, ...]:
    return tuple(OperationType(kind) for kind in rest[0]) if rest else ()


class _Ledger:
    """Commits in order, and the number of each token's commit. It only grows; each view has its own length."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.number_of: dict[Token, int] = {}
        self.counted: dict[tuple[str, bool], list[tuple[int, int]]] = {}
        self.lock = threading.Lock()

    def add(self, commit: Commit) -> None:
        number = len(self.commits)
        for token in meanings(commit.token) if commit.token else ():
            self.number_of.setdefault(token, number)
            if token.sequence is not None:
                self._count(token.name, False, number, token.sequence)
                if commit.token and commit.token.joined:
                    self._count(token.name, True, number, token.sequence)
        self.commits.append(commit)

    def _count(self, producer: str, joined: bool, number: int, sequence: int) -> None:
        greatest = self.counted.setdefault((producer, joined), [])
        if not greatest or sequence > greatest[-1][1]:
            greatest.append((number, sequence))

    def greatest(self, producer: str, joined: bool, length: int) -> tuple[int, int] | None:
        """A producer's greatest sequence number among the first `length` commits: (number of the commit, sequence)."""
        counted = self.counted.get((producer, joined), [])
        before = bisect.bisect_left(counted, (length,))
        return counted[before - 1] if before else None


class Commits(Sequence[Commit]):
    """The commits of a version so far: an immutable view of a ledger that grows.

    two = Commits([a, b])        a ledger of a, b
    three = two.plus([c])        the same ledger a, b, c; `two` still sees two
    other = two.plus([d])        c has the third slot already: a new ledger a, b, d
    """

    __slots__ = ("_ledger", "_length")

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._ledger = _Ledger()
        for commit in commits:
            self._ledger.add(commit)
        self._length = len(self._ledger.commits)

    def plus(self, late: Sequence[Commit]) -> Commits:
        """These commits and the late ones."""
        if not late:
            return self
        with self._ledger.lock:
            if len(self._ledger.commits) != self._length:
                return Commits([*self, *late])
            for commit in late:
                self._ledger.add(commit)
        view = Commits.__new__(Commits)
        view._ledger, view._length = self._ledger, self._length + len(late)
        return view

    def known(self, token: Token) -> TokenCommit | None:
        """The commit of this token among these commits, or one of its producer with a greater number."""
        ledger = self._ledger
        number = ledger.number_of.get(token)
        if number is not None and number < self._length:
            return TokenCommit.of(ledger.commits[number], token.sequence)
        counted = token if token.sequence is not None else _as_joined(token)
        if counted is None or counted.sequence is None:
            return None
        greatest = ledger.greatest(counted.name, token.sequence is None, self._length)
        if greatest is None or counted.sequence > greatest[1]:
            return None
        known = TokenCommit.of(ledger.commits[greatest[0]], greatest[1])
        return known if token.sequence is not None else TokenCommit(known.position)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> Commit: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Commit, ...]: ...
    def __getitem__(self, number: int | slice) -> Commit | tuple[Commit, ...]:
        if isinstance(number, slice):
            return tuple(self._ledger.commits[commit] for commit in range(*number.indices(self._length)))
        if not -self._length <= number < self._length:
            raise IndexError(number)
        return self._ledger.commits[number % self._length]

    def __iter__(self) -> Iterator[Commit]:
        return (self._ledger.commits[number] for number in range(self._length))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Commits | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Commits({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Commits, (tuple(self),)
