"""Says in the log that something fails: once for each reason, and once when it is over. A dispatcher tries each second.

the queue    StoreError: S3 answered 503      "the queue: S3 answered 503"
the queue    the same, a second later
the queue    StoreError: access denied        "the queue: access denied"
the queue    it answers                       "the queue is well again"
"""

from __future__ import annotations

import logging

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.wording import one_line

_LOG = logging.getLogger("sessions")


class SaidOnce:
    """What the log was told last of one thing. `what` names it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._why: str | None = None

    def failed(self, error: Exception) -> None:
        """Say it, unless it was said. A trace goes with an error that nobody foresaw."""
        before, self._why = self._why, one_line(error)
        if before != self._why:
            _LOG.warning("%s: %s", self._what, self._why, exc_info=not isinstance(error, DeltaCompactError))

    def worked(self) -> None:
        if self._why is not None:
            self._why = None
            _LOG.info("%s is well again", self._what)
