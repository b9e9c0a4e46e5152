"""A step of a feed: a commit, or all of them, and the rows that it may have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deltacompact.change_feed.candidates import Candidates
from deltacompact.change_feed.columns import ChangeCommit


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A commit, or the whole range. `candidates` are found only when they are iterated."""

    commit: ChangeCommit
    candidates: Callable[[], list[Candidates]]
