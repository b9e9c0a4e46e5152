"""Objects among the records that cannot be read: each is named once in the log, counted, and left as it is.

job-runs/run-7/run     is damaged                                  named
job-runs/run-7/run     still damaged, a second later               counted
job-runs/run-9/run     format 9: a newer release wrote it          named; this release neither closes nor replaces it
job-runs/run-7/run     is repaired, or gone                        forgotten
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Mapping

from deltacompact.base.wording import one_line

_LOG = logging.getLogger("sessions")


class Unreadable:
    """Paths, and why they cannot be read. Safe to use from several threads."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, path: str, error: Exception) -> None:
        why = one_line(error)
        with self._lock:
            known, self._why[path] = self._why.get(path), why
        if known != why:
            _LOG.warning("%s is left out: %s", path, why)

    def forget(self, path: str) -> None:
        """Forget a path: it can be read again, or is gone."""
        if path in self._why:
            with self._lock:
                self._why.pop(path, None)

    def replace(self, prefix: str, found: Mapping[str, Exception]) -> None:
        """Note all unreadable paths below a prefix, and forget others that were noted there: repaired or gone."""
        for path in [path for path in self._why if path.startswith(prefix) and path not in found]:
            self.forget(path)
        for path, error in found.items():
            self.note(path, error)

    def keep(self, prefix: str, name: str, listed: Container[str]) -> None:
        """Forget noted paths below a prefix that end in `name` and are not in `listed`: they are gone."""
        for path in [path for path in self._why if path.startswith(prefix) and path.endswith(name)]:
            if path not in listed:
                self.forget(path)

    def __len__(self) -> int:
        return len(self._why)

    @property
    def why(self) -> dict[str, str]:
        """Each path with the reason."""
        with self._lock:
            return dict(self._why)
