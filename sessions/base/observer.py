"""Observers of changed records: events and metrics observe from outside, and no change waits for them."""

from __future__ import annotations

from typing import Protocol

from sessions.base.model import JobRun, JobRunSession

Record = JobRun | JobRunSession


class Observer(Protocol):
    def changed(self, before: Record | None, after: Record) -> None:
        """A record was written. `before` is None if it is new. An observer's error is logged and otherwise ignored."""


class Unobserved:
    """The observer that does nothing."""

    def changed(self, before: Record | None, after: Record) -> None:
        pass
