"""Heat: how many reads ask for each column of a table. It outlives the logs that told of the reads. Pure.

    at day 0     day 30, customer 10          40 reads
    at day 7     day 15, customer 5           halved after a half-life; new reads are added
    taken        log 5c5c… up to query 812    if the log is given again, grown, only later queries count

Heat keeps only names of columns, and a hash of the name of each source of reads. A source that gave nothing for eight
half-lives is forgotten: if it is given again, each of its old reads adds at most 1/256 of a read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from deltacompact.base.notebooks import UsersWords
from deltacompact.layout.reads import HALF_LIFE_S, Read, decay, heat_of

SOURCES_MAX = 100_000
"""A document of so many sources has 4.5 MB. Beyond that the oldest are forgotten. If one of these is given again, its
reads count again."""
FORGOTTEN_AFTER_S = 8 * HALF_LIFE_S
LEAST = 0.001
"""In reads: colder columns are forgotten."""


@dataclass(frozen=True, slots=True)
class SourcedRead:
    """A read, and its number in its source. Numbers never fall within a source; several reads may have one number."""

    source: str
    number: int
    read: Read


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a source has been read: the greatest number of a read, and when it was added, in Unix seconds."""

    number: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Heat(UsersWords):
    """Reads by column, as they count at the time `at_s`. `taken`: by hash of the source."""

    _inside = ("known", "now", "taken", "with_reads")

    at_s: float = 0.0
    columns: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    taken: Mapping[str, SourceProgress] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def now(self, now_s: float) -> Heat:
        """The same at another time. If a clock was ahead once, heat decays too much, and nothing else happens."""
        left = decay(now_s - self.at_s)
        columns = {name: heat * left for name, heat in self.columns.items() if heat * left >= LEAST}
        young = {name: progress for name, progress in self.taken.items() if now_s - progress.at_s < FORGOTTEN_AFTER_S}
        newest = sorted(young, key=lambda name: (-young[name].at_s, name))[:SOURCES_MAX]
        return Heat(now_s, columns, {name: young[name] for name in newest})

    def known(self, names: Collection[str]) -> dict[str, float]:
        """The heat of columns that the table still has."""
        return {name: heat for name, heat in self.columns.items() if name in names}

    def with_reads(self, reads: Iterable[SourcedRead], now_s: float) -> Heat:
        """The heat with the reads that are not in it yet. Give all reads of a source at once, or its later ones."""
        before = self.now(now_s)
        new, taken = [], dict(before.taken)
        for sourced in reads:
            source = hashed(sourced.source)
            known = before.taken.get(source)
            if known is None or sourced.number > known.number:
                new.append(sourced.read)
                number = max(sourced.number, taken[source].number if source in taken else sourced.number)
                taken[source] = SourceProgress(number, now_s)
        columns = dict(before.columns)
        for name, heat in heat_of(new, now_s).items():
            columns[name] = columns.get(name, 0.0) + heat
        return Heat(now_s, columns, taken).now(now_s)


def hashed(source: str) -> str:
    """The hash of a source's name that is kept."""
    return hashlib.sha256(source.encode(errors="surrogateescape")).hexdigest()[:16]


def heat_document(heat: Heat) -> dict[str, Any]:
    """As JSON values."""
    taken = {name: [progress.number, progress.at_s] for name, progress in sorted(heat.taken.items())}
    return {"at_s": heat.at_s, "columns": dict(sorted(heat.columns.items())), "taken": taken}


def heat_from_document(document: Mapping[str, Any]) -> Heat:
    """Raises KeyError, TypeError or ValueError for a document of another shape."""
    columns = {str(name): float(heat) for name, heat in document["columns"].items()}
    taken = {str(name): SourceProgress(int(number), float(at_s)) for name, (number, at_s) in document["taken"].items()}
    return Heat(float(document["at_s"]), columns, taken)
