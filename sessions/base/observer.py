"""Who is told of a change: events and metrics observe the records from outside, and nothing waits for them."""

from __future__ import annotations

from typing import Protocol

from sessions.base.model import JobRun, JobRunSession

Record = JobRun | JobRunSession


class Observer(Protocol):
    def changed(self, before: Record | None, after: Record) -> None:
        """A record was written. `before` is None where it is new. An observer that raises is logged, no more."""


class Unobserved:
    """The observer that does nothing."""

    def changed(self, before: Record | None, after: Record) -> None:
        pass
