"""Attempts at a scheduled compaction: none may commit after a later attempt has committed.

    snapshot 8 is the head         its summary says "deltacompact.attempt": "run-1/2/1"
    run-1/1/3 would commit         refused: the scheduler gave it up, and run-1/2/1 has taken over
    run-1/2/1 commits once more    fine
    run-7/1/1 commits              fine: another job run

A commit takes effect only if the head is still the one that it was built on. So if an attempt sees no later attempt on
the head, it commits before all later ones, and they see its snapshot.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from deltacompact.base.errors import ConflictError
from deltacompact.iceberg.table.metadata import Snapshot

ATTEMPT = "deltacompact.attempt"
"""The key in a snapshot's summary."""

_NUMBERED = re.compile(r"(?P<name>.+?)(?P<numbers>(?:/[0-9]+)+)")
_current: ContextVar[str | None] = ContextVar("attempt", default=None)


@contextlib.contextmanager
def under_attempt(name: str | None) -> Iterator[None]:
    """Inside this block, committers in this thread commit under the name of an attempt: "run-1/3/2"."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_attempt() -> str | None:
    return _current.get()


def is_superseded(attempt: str | None, by: str | None) -> bool:
    """Whether `by` is a later attempt at the same work than `attempt`, which was given up then."""
    (work, numbers), (of, later) = _numbered(attempt), _numbered(by)
    return attempt is not None and work == of and later > numbers


def committed_by(snapshots: Iterable[Snapshot], work: str) -> tuple[Snapshot, ...]:
    """The snapshots of all attempts at some work, the oldest first. Work "run-1": of run-1/1/1, run-1/2/1, …"""
    found = (snapshot for snapshot in snapshots if _numbered(snapshot.summary.get(ATTEMPT))[0] == work)
    return tuple(sorted(found, key=lambda snapshot: snapshot.sequence_number))


def refuse_superseded(snapshots: Iterable[Snapshot], attempt: str | None) -> None:
    """Raises ConflictError if a later attempt at the same work has committed already."""
    for snapshot in snapshots:
        if is_superseded(attempt, by=snapshot.summary.get(ATTEMPT)):
            raise ConflictError(
                f"attempt {attempt} was given up: {snapshot.summary[ATTEMPT]} has committed {snapshot.snapshot_id}"
            )


def _numbered(attempt: str | None) -> tuple[str | None, tuple[int, ...]]:
    """ "run-1/3/2" is the attempt (3, 2) at run-1."""
    found = _NUMBERED.fullmatch(attempt or "")
    if found is None:
        return attempt, ()
    return found["name"], tuple(map(int, found["numbers"].split("/")[1:]))
