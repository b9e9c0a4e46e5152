"""How much of many partitions is printed: a screen of 3,000 of them, and all of eight.

8 partitions       totals, and all that is known of each
3,000 partitions   totals, a line for each of the ten worst, and how many more there are
--verbose          totals, and all that is known of each
--files            besides, a line for each file of the partitions that are printed
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deltacompact.base.wording import counted
from deltacompact.reports.words import clipped, in_columns

WORST = 10
"""So many of more partitions are printed."""
_NAME_MIN = 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Detail:
    """What a user asked for beside the totals."""

    verbose: bool = False
    files: bool = False

    def is_screenful(self, count: int) -> bool:
        """Whether each of so many has a line only."""
        return count > WORST and not (self.verbose or self.files)

    def chosen(self, things: Sequence[T], badness: Callable[[T], Any]) -> list[T]:
        """All, in their order, or the worst ones, the worst first."""
        if self.verbose or len(things) <= WORST:
            return list(things)
        return heapq.nlargest(WORST, things, key=badness)

    def rest(self, count: int, thing: str) -> list[str]:
        """What is said of those that are not printed."""
        if self.verbose or count <= WORST:
            return []
        return [f"and {counted(count - WORST, f'more {thing}')}: --verbose prints all"]


def worst_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of numbers with the name in the last column, which may be long or written from right to left."""
    numbers = in_columns([head[:-1], *(row[:-1] for row in rows)], right=len(head) - 1)
    room = max(_NAME_MIN, shutil.get_terminal_size().columns - len(numbers[0]) - 4)
    for line, name in zip(numbers, [head[-1], *(row[-1] for row in rows)], strict=True):
        yield f"  {line}  {clipped(name, room)}"
