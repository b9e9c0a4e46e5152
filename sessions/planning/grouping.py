"""Which sessions share a process or cluster: sessions that are too small for a start of their own. Pure.

    1,000 partitions of 10 small deltas, 0.08 s each, a process takes 0.3 s to start
    one each      1,000 starts, 300 s for 80 s of work
    grouped       27 groups of 37, 3 s of work each: starting takes a tenth of the work

The sessions of a group run one after another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

WORK_OVER_START = 10.0
"""A group's work, as a multiple of its start, if there is enough work: so starting costs a tenth."""


@dataclass(frozen=True, slots=True)
class Groupable:
    """One session's expected and promised seconds, and those of its start. Sessions of one `kind` may share a start."""

    kind: Hashable
    seconds: float
    start_s: float
    promise_s: float = 0.0


@dataclass(slots=True)
class _Filled:
    """A group: the places of its sessions, and their seconds together."""

    members: list[int] = field(default_factory=list)
    seconds: float = 0.0
    promise_s: float = 0.0

    def takes(self, item: Groupable, within_s: float | None) -> bool:
        """Whether the item fits: the work is at most ten times the start, and all of it is promised within the time."""
        if self.seconds + item.seconds > WORK_OVER_START * item.start_s:
            return False
        return within_s is None or item.start_s + self.promise_s + item.promise_s <= within_s

    def add(self, place: int, item: Groupable) -> None:
        self.members.append(place)
        self.seconds += item.seconds
        self.promise_s += item.promise_s


def grouped(items: Sequence[Groupable], within_s: float | None = None) -> list[list[int]]:
    """Groups of places in `items`, in order. `within_s`: a group starts and ends within this time, if possible."""
    groups: list[_Filled] = []
    open_groups: dict[Hashable, _Filled] = {}
    for place, item in enumerate(items):
        group = open_groups.get(item.kind)
        if group is None or not group.takes(item, within_s):
            before, group = group, _Filled()
            groups.append(group)
            if before is None or _Filled().takes(item, within_s):  # an item that fills a group keeps the other open
                open_groups[item.kind] = group
        group.add(place, item)
    return [group.members for group in groups]
