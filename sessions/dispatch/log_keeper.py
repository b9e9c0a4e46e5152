"""What groups print goes to the state, where the disk or the cluster that has it may end before somebody reads it.

    a process, state in a folder      it writes there itself
    a process, state on S3            its last 64 KiB, every 30 s while it prints, and at its end
    a cluster                         its last 64 KiB, at its end, before the cluster is taken away

A process that is killed has printed what it has printed: its dispatcher keeps that. Where the machine itself ends, at
most 30 s are lost. A log that cannot be kept is named, and holds nothing up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.wording import one_line
from sessions.launchers.chosen import Launchers
from sessions.planning.prices import LOCAL
from sessions.records.kept_logs import log_path
from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")
_KEPT_EVERY_S = 30.0
_KEPT_BYTES = 64 << 10


class LogKeeper:
    """Keeps the log of one launched group."""

    def __init__(
        self,
        state: StateStore,
        launchers: Launchers,
        group_id: str,
        launcher: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._launchers, self._group_id, self._clock = state, launchers, group_id, clock
        self._is_process = launcher == LOCAL
        self._kept = b""
        self._kept_s = clock()

    def look(self) -> None:
        """Keep the log of a process that runs, now and then."""
        if self._is_process and self._clock() - self._kept_s >= _KEPT_EVERY_S:
            self.keep()

    def keep(self) -> None:
        if self._is_process and self._state.folder is not None:
            return
        self._kept_s = self._clock()
        try:
            printed = self._launchers.logs(self._group_id).encode(errors="replace")[-_KEPT_BYTES:]
            if printed and printed != self._kept:
                self._state.store.put(log_path(self._group_id), printed)
                self._kept = printed
        except (DeltaCompactError, OSError) as error:
            _LOG.warning("what %s printed could not be kept: %s", self._group_id, one_line(error))
