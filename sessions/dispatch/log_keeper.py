"""Copies the logs of groups into the state: the disk or the cluster with a log may be gone before somebody reads it.

    a process that logs in the state    nothing to copy
    a process that logs elsewhere       the last 64 KiB of its log, every 30 s while it grows, and at the end
    a cluster                           the last 64 KiB of its log, before the cluster is terminated

If a process is killed, its dispatcher copies the log. If the machine is lost, so are at most 30 s of the log. If a log
cannot be copied, a warning names it, the file of a process stays, and the work goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.wording import one_line
from deltacompact.storage.objects import is_there
from sessions.launchers.launchers import Launchers
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
        """Copy the log of a running process, if it is time."""
        if self._is_process and self._clock() - self._kept_s >= _KEPT_EVERY_S:
            self.keep()

    def keep(self) -> bool:
        """Copy the log. Returns whether the state has it now."""
        self._kept_s = self._clock()
        try:
            if self._is_in_the_state():
                return True
            printed = self._launchers.logs(self._group_id).encode(errors="replace")[-_KEPT_BYTES:]
            if printed and printed != self._kept:
                self._state.store.put(log_path(self._group_id), printed)
                self._kept = printed
            return True
        except (DeltaCompactError, OSError) as error:
            _LOG.warning("what %s printed could not be kept: %s", self._group_id, one_line(error))
            return False

    def _is_in_the_state(self) -> bool:
        """Whether the process writes its log where copies lie: the file is there, and we did not put it."""
        if not self._is_process or self._kept or self._state.folder is None:
            return False
        return is_there(self._state.store, log_path(self._group_id))
