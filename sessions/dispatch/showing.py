"""Shows what the sessions of a job run have compacted in the table to which the destination is published.

3,000 sessions have succeeded             one commit with the files of all their partitions
some were cancelled, or have failed       the others are shown
all had nothing to do                     what an earlier try could not show is shown now
the published table does not answer       tried again for 15 minutes, by whoever holds the job run then
it hangs                                  after as long it counts as one that does not answer, others have its place
the job run is cancelled meanwhile        the job run ends, and says that it is not shown
the lake does not say if there is one     tried again for as long as a session is
it has files of others                    the job run fails and says so, its sessions have succeeded

Runners show nothing: each knows one partition at a time, may die right after it has published its version, and on a
cluster lacks the configuration of the published table's catalog.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import one_line
from deltacompact.catalog.delta_streams import open_catalog
from sessions.base.model import JobRunSession
from sessions.base.troubles import Cause, cause_of
from sessions.documents.instruction import Instruction

_LOG = logging.getLogger("sessions")
_SHOWN_WITHIN_S = 900.0
"""So long a published table that does not answer holds up the next job runs of the same stream."""
_SHOWN_AT_ONCE = 4
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class NotShown:
    """Why the published table does not show it. `cause`: the passing cause; None: another try would fail likewise."""

    text: str
    cause: Cause | None

    @classmethod
    def of(cls, target: str | None, error: Exception) -> NotShown:
        for_good = isinstance(error, InputError | CorruptionError)
        return cls.because(target, one_line(error), cause_of(error) or (None if for_good else Cause.UNREACHABLE))

    @classmethod
    def because(cls, target: str | None, why: str, cause: Cause | None) -> NotShown:
        named = target or "the published table, if there is one,"
        return cls(f"{named} does not show what was compacted: {why}", cause)


class ShowingPlaces:
    """The places of tries that go on side by side in this process: each may hold the files of a large table.

    within_s    so long a try may take. One that hangs keeps its place no longer
    """

    def __init__(self, number: int = _SHOWN_AT_ONCE, within_s: float = _SHOWN_WITHIN_S) -> None:
        self.within_s = within_s
        self._number = number
        self._taken: list[Showing] = []
        self._lock = threading.Lock()

    def take(self, showing: Showing) -> bool:
        """Whether the try has a place from now on, until its thread ends."""
        with self._lock:
            self._taken = [taken for taken in self._taken if taken.is_alive() and taken.lasted_s <= self.within_s]
            if len(self._taken) >= self._number:
                return False
            self._taken.append(showing)
            return True


class Showing(threading.Thread):
    """One try. It may take minutes, so it has a thread, which ends with the process: a try may die at any time.

    error      None: the published table shows all, or there is none
    target     the published table. None: nobody knows yet whether there is one
    """

    def __init__(self, asked: Instruction, sessions: Sequence[JobRunSession], places: ShowingPlaces) -> None:
        super().__init__(name="showing", daemon=True)
        self.error: NotShown | None = None
        self.target: str | None = None
        self._asked = asked
        self._partitions = [session.partition for session in sessions if session.state.compacted]
        self._places = places
        self._began_s: float | None = time.monotonic()
        self._left = threading.Event()

    @property
    def lasted_s(self) -> float:
        """How long the try has lasted. While it waits for a place, it has not begun."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def leave(self) -> None:
        """Nobody waits for this try any more: it takes no place."""
        self._left.set()

    def run(self) -> None:
        if self._asked.is_iceberg or not self._partitions:
            return
        try:
            self.error = self._shown()
        except Exception as error:
            self.error = NotShown.of(self.target, error)

    def _shown(self) -> NotShown | None:
        asked, catalog = self._asked, open_catalog(self._asked.catalog)
        destination = asked.destination_compacted_table_id or asked.source_table_id
        try:
            target = catalog.publication(destination)
        except NotFoundError:  # the table was dropped
            return None
        if target is None:
            return None
        self.target = target
        if not self._has_a_place():
            return None
        from deltacompact.publication.publication import show_compacted  # importing PyIceberg takes a second

        partitions = [catalog.partition(asked.source_table_id, values) for values in self._partitions]
        result = show_compacted(catalog, destination, target, partitions)
        if result.error is not None:
            return NotShown.of(target, result.error)
        _LOG.info("%s", result)
        return None

    def _has_a_place(self) -> bool:
        """Wait for a place. False: nobody waits for this try any more."""
        self._began_s = None
        while not self._places.take(self):
            if self._left.wait(_POLL_S):
                return False
        self._began_s = time.monotonic()
        return True
