"""Paths of marks: new ones, or those that a record of the journal names beforehand.

    attempt 1    marks rows in m1       its record names m1 and, reserved, m2, m3, …
    attempt 2    marks rows in m2       needs no other record

A record that names what an attempt adds is there before the attempt. Where it is already, the attempt need not wait.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Paths: TypeAlias = Callable[[str, str], str]
"""Gives a path that was never used, with this beginning and this end."""


def new_path(beginning: str, end: str) -> str:
    return f"{beginning}{uuid.uuid4().hex}{end}"


RESERVED = 64
"""So many paths are reserved at once, about 10 KB of a record."""


@dataclass(slots=True)
class ReservedPaths:
    """Paths of marks to come, all with the same beginning and end (`kind`): those of the last mark."""

    left: list[str] = field(default_factory=list)
    kind: tuple[str, str] | None = None

    def taken(self, beginning: str, end: str) -> str:
        if self.kind != (beginning, end):
            self.kind, self.left = (beginning, end), []
        return self.left.pop() if self.left else new_path(beginning, end)

    def reserve(self) -> frozenset[str]:
        """The paths of the next marks. None before the first mark: there may never be one."""
        if self.kind is not None:
            self.left += [new_path(*self.kind) for _ in range(RESERVED - len(self.left))]
        return frozenset(self.left)
