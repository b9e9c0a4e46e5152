"""Kills a process at one of its operations: before the operation takes effect, or after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from publications import Publications

Counted = Sequence[tuple[Any, Sequence[str]]]
"""Pairs (class or module, names of its functions): calls of these functions are counted."""


class Crash(BaseException):
    """The process dies here. No code may catch this error, and later operations have no effect."""


class Dying:
    """Counts operations and raises Crash at operation number `at`: before it takes effect, or after."""

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
        """All (at, after) for later runs. Death after an operation equals death before the next, but for the last."""
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
    """Publish a table and append deltas that replace, add and delete rows."""
    published.append([{"id": number, "v": 0} for number in range(20)])
    published.compact()
    published.publish()
    published.append([{"id": 1, "v": 1}, {"id": 30, "v": 1}])
    published.append([{"id": 2}], "delete")
