"""What plan and compact print of every mode: what stays and why, what was given up, notes.

nothing to do: 3 files: the right size, few deletes
12 files -> 1 file, …                                        a mode's own lines
1 group written by an earlier run
not rewritten: 2 files of partition day=2026-11-22: other commits touched them
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from deltacompact.base.wording import counted
from deltacompact.iceberg_modes.plan import ScanTaskGroup
from deltacompact.iceberg_modes.result import ModeResult

Group = TypeVar("Group", bound=ScanTaskGroup[Any])
Reason = TypeVar("Reason", bound=enum.StrEnum)


def whole_result(result: ModeResult, own: Sequence[str], refused: str) -> list[str]:
    """The lines of a result. `refused`: how those begin that say what was given up."""
    if result.nothing_to_do:
        return [f"nothing to do: {result.nothing_to_do}", *result.notes]
    earlier = [f"{counted(result.resumed, 'group')} written by an earlier run"] if result.resumed else []
    return [*own, *earlier, *(f"{refused}: {line}" for line in result.refused), *result.notes]


def snapshots_of(result: ModeResult) -> str:
    return ", ".join(map(str, result.snapshots)) or "none"


def group_lines(groups: Sequence[Group], line: Callable[[Group], str], groups_max: int | None) -> list[str]:
    """A line for each group, or for the largest ones."""
    if groups_max is None or len(groups) <= groups_max:
        return list(map(line, groups))
    largest = heapq.nlargest(groups_max, groups, key=lambda group: group.bytes)
    return [*map(line, largest), f"and {counted(len(groups) - groups_max, 'more group')}: --verbose prints all"]


def stays_in_words(stays: Iterable[tuple[Reason, int]], noun: str, words: Mapping[Reason, str]) -> list[str]:
    """How many files stay, and why: "3 files: the right size, few deletes"."""
    return [f"{counted(count, noun)}: {words[reason]}" for reason, count in stays]
