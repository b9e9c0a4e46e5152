"""Shows what the sessions of a job run have compacted in the table to which the destination is published.

3,000 sessions have succeeded             one commit with the files of all their partitions
some were cancelled, or have failed       the others are shown
all had nothing to do                     what an earlier try could not show is shown now
the published table does not answer       tried again for 15 minutes, by whoever holds the job run then
it has files of others                    the job run fails and says so, its sessions have succeeded

Runners show nothing: each knows one partition at a time, may die right after it has published its version, and on a
cluster lacks the configuration of the published table's catalog.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import one_line
from deltacompact.catalog.delta_streams import open_catalog
from sessions.base.model import JobRunSession, SessionState
from sessions.base.troubles import Cause, cause_of
from sessions.documents.instruction import Instruction

_LOG = logging.getLogger("sessions")
_COMPACTED = (SessionState.SUCCEEDED, SessionState.NOTHING_TO_DO)


@dataclass(frozen=True, slots=True)
class NotShown:
    """Why the published table does not show it. `cause`: the passing cause; None: another try would fail likewise."""

    text: str
    cause: Cause | None

    @classmethod
    def of(cls, target: str, error: Exception) -> NotShown:
        for_good = isinstance(error, InputError | CorruptionError)
        cause = cause_of(error) or (None if for_good else Cause.UNREACHABLE)
        return cls(f"{target} does not show what was compacted: {one_line(error)}", cause)


class Showing(threading.Thread):
    """One try. It may take minutes, so it has a thread, which ends with the process: a try may die at any time.

    places     limits how many tries go on side by side in this process
    error      None: the published table shows all, or there is none
    """

    def __init__(self, asked: Instruction, sessions: Sequence[JobRunSession], places: threading.Semaphore) -> None:
        super().__init__(name="showing", daemon=True)
        self.error: NotShown | None = None
        self._asked = asked
        self._partitions = [session.partition for session in sessions if session.state in _COMPACTED]
        self._places = places

    def run(self) -> None:
        if self._asked.is_iceberg or not self._partitions:
            return
        try:
            with self._places:
                self.error = self._shown()
        except Exception as error:
            self.error = NotShown.of("the published table, if there is one,", error)

    def _shown(self) -> NotShown | None:
        asked, catalog = self._asked, open_catalog(self._asked.catalog)
        destination = asked.destination_compacted_table_id or asked.source_table_id
        try:
            target = catalog.publication(destination)
        except NotFoundError:  # the table was dropped
            return None
        if target is None:
            return None
        from deltacompact.publication.publication import show_compacted  # importing PyIceberg takes a second

        partitions = [catalog.partition(asked.source_table_id, values) for values in self._partitions]
        result = show_compacted(catalog, destination, target, partitions)
        if result.error is not None:
            return NotShown.of(target, result.error)
        _LOG.info("%s", result)
        return None
