"""What a group of sessions takes besides its sessions: a process or a cluster comes up, and its end is noticed.

shipped    a process 0.3 s, a cluster of Ray's launcher 240 s
learned    the newest 25 groups of each way to start, in one small record of the state: rates/starts
expected   their median; the shipped one counts as one of them
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from sessions.planning.prices import Offer
from sessions.records.learned import LearnedRecord
from sessions.records.swapping import SwappedRecords

KEPT = 25
_FOLDER = "rates/starts"


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds of the newest starts, the newest last, by launcher and executor: "local/ray"."""

    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def learned(self, way: str, seconds: float) -> Starts:
        newest = (*self.seconds.get(way, ()), round(max(0.0, seconds), 3))[-KEPT:]
        return Starts({**self.seconds, way: newest})

    def expected(self, offer: Offer) -> Offer:
        """The offer, with the start that it takes here."""
        return replace(offer, start_s=statistics.median([offer.start_s, *self.seconds.get(way_of(offer), ())]))


_STARTS = TypeAdapter(Starts)


class StartStore:
    """The starts of a state. Safe to use from several threads and processes."""

    def __init__(self, records: SwappedRecords) -> None:
        self._record = LearnedRecord(records, _FOLDER, _STARTS, Starts())

    def read(self) -> Starts:
        return self._record.read()

    def learn(self, way: str, seconds: float) -> None:
        """Raises StoreError where the record cannot be replaced; nothing is lost but that."""
        self._record.update(lambda known: known.learned(way, seconds))


def way_of(offer: Offer) -> str:
    return f"{offer.launcher}/{offer.executor}"
