"""A process that dies at one of its operations: before it takes effect, or after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from publications import Publications

Counted = Sequence[tuple[Any, Sequence[str]]]
"""Owners, and the names of their operations that count."""


class Crash(BaseException):
    """The process dies here: nothing may catch it, and nothing that it still does has an effect."""


class Dying:
    """Counts operations, and dies at one of them: before it takes effect, or after."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, counted: Counted, at: int | None = None, after: bool = False
    ) -> None:
        self.operations: list[str] = []
        self._at, self._after = at, after
        self._dead = False
        self._lock = threading.Lock()
        for owner, names in counted:
            for name in names:
                monkeypatch.setattr(owner, name, self._around(name, getattr(owner, name)))

    def deaths(self) -> list[tuple[int, bool]]:
        """Where another run may die, and whether after that: after the last alone, or it is before the next."""
        last = len(self.operations) - 1
        return [*((at, False) for at in range(last + 1)), (last, True)]

    def _around(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **others: Any) -> Any:
            with self._lock:
                if self._dead:
                    raise Crash
                number = len(self.operations)
                self.operations.append(name)
                if number == self._at:
                    self._dead = True
            if number != self._at:
                return act(*arguments, **others)
            if self._after:
                act(*arguments, **others)
            raise Crash

        return operation


def changed(published: Publications) -> None:
    """A published table with a delta to fold: some rows die, some come."""
    published.append([{"id": number, "v": 0} for number in range(20)])
    published.compact()
    published.publish()
    published.append([{"id": 1, "v": 1}, {"id": 30, "v": 1}])
    published.append([{"id": 2}], "delete")
