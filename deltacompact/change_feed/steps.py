"""A step of a feed: a commit, or all of them, and the rows that it may have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deltacompact.change_feed.candidates import Candidates
from deltacompact.change_feed.columns import ChangeCommit


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """`candidates` are looked for when they are asked for."""

    commit: ChangeCommit
    candidates: Callable[[], list[Candidates]]
