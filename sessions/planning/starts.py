"""Seconds that a group takes besides its sessions: its process or cluster starts, and a dispatcher sees its end.

shipped    a process 0.3 s, a cluster of Ray's launcher 240 s
learned    those of the newest 25 groups for each launcher and executor, in one small record of the state: rates/starts
expected   the median of the learned ones and the shipped one
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from sessions.planning.prices import Offer
from sessions.records.learned import LearnedRecord
from sessions.records.swapping import SwappedRecords

STARTS_KEPT = 25
_START_MAX_S = 24 * 3600.0
_FOLDER = "rates/starts"


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds of the newest starts, the newest last, by launcher and executor: "local/ray"."""

    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def learned(self, way: str, seconds: float) -> Starts:
        newest = (*self._known(way), round(max(0.0, seconds), 3))[-STARTS_KEPT:]
        return Starts({**self.seconds, way: newest})

    def expected(self, offer: Offer) -> Offer:
        """The offer, with the start that we expect on this pool."""
        return replace(offer, start_s=statistics.median([offer.start_s, *self._known(way_of(offer))]))

    def _known(self, way: str) -> tuple[float, ...]:
        """The seconds of one way that can be: a record may be damaged."""
        return tuple(seconds for seconds in self.seconds.get(way, ()) if 0 <= seconds <= _START_MAX_S)


_STARTS = TypeAdapter(Starts)


class StartStore:
    """The starts of a state. Safe to use from several threads and processes."""

    def __init__(self, records: SwappedRecords) -> None:
        self._record = LearnedRecord(records, _FOLDER, _STARTS, Starts())

    def read(self) -> Starts:
        return self._record.read()

    def learn(self, way: str, seconds: float) -> None:
        """Raises StoreError if the record cannot be replaced. Then only this start is lost."""
        self._record.update(lambda known: known.learned(way, seconds))


def way_of(offer: Offer) -> str:
    return f"{offer.launcher}/{offer.executor}"
