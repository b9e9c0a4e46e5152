"""The mark that a vacuum leaves in a stream: it saves the next vacuum from reading all of it again. Pure.

    orders/vacuum.json     a digest of the objects that it left          the same now: nothing came, nothing went
                           when the first of them may be old enough      not yet: there is nothing to delete
                           the chain: 0, 1-50a3…, 2-77b1…                sealed logs never change: they stay unread

    GET the mark · LIST the partition · LIST the unfinished uploads      an idle partition, of up to 1,000 objects

A mark never causes a deletion: a vacuum deletes only objects that the log, which it has read itself, does not reach. A
mark only says what to keep and what to leave unread. So a missing or damaged mark means more work, and a wrong one
means that garbage stays until the next full vacuum, 30 days later at most.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deltacompact.base.model import FORMAT_VERSION
from deltacompact.storage.objects import ObjectStat

FULL_VACUUM_S = 30 * 24 * 3600
"""A vacuum reads the whole history again if the last full vacuum was longer ago than this (seconds)."""


@dataclass(frozen=True, slots=True)
class SealedVersion:
    """A sealed version of the chain.

    tail          the length of its log
    manifests     the objects that hold bodies of its entries
    referenced    names of files that users appended by reference and that look like names of ours
    """

    tail: int
    manifests: tuple[str, ...] = ()
    referenced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VacuumMark:
    """What one vacuum knew when it ended.

    objects      the digest of the objects that it left
    first_s      the earliest time from which the age of a later candidate counts; None: there is no candidate
    full_s       when the whole history was last read
    waiting, doubtful, retracted, dead_rows    as in the vacuum's result
    chain        the sealed versions
    records      the session records that name a version
    """

    objects: str
    first_s: float | None
    full_s: float
    waiting: tuple[str, ...]
    doubtful: tuple[str, ...]
    retracted: tuple[str, ...]
    dead_rows: int
    chain: Mapping[str, SealedVersion]
    records: tuple[str, ...]

    def is_current(self, listed: Iterable[ObjectStat], old_s: float) -> bool:
        """Whether the same objects are there, and none has become old enough (put at `old_s` or before) to delete."""
        return (self.first_s is None or self.first_s > old_s) and self.objects == digest(listed)

    def encoded(self, stream: str) -> bytes:
        fields = asdict(self)
        return json.dumps({"format": FORMAT_VERSION, **fields, "sha256": _checksum(stream, fields)}).encode()


def parsed(stream: str, data: bytes, now_s: float) -> VacuumMark | None:
    """The mark in these bytes; None: it is damaged, of another stream, or too old."""
    try:
        fields = json.loads(data)
        if fields.pop("format") != FORMAT_VERSION or fields.pop("sha256") != _checksum(stream, fields):
            return None
        chain = {
            version: SealedVersion(known["tail"], tuple(known["manifests"]), tuple(known["referenced"]))
            for version, known in fields.pop("chain").items()
        }
        for name in ("waiting", "doubtful", "retracted", "records"):
            fields[name] = tuple(fields[name])
        mark = VacuumMark(chain=chain, **fields)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return mark if 0 <= now_s - mark.full_s < FULL_VACUUM_S else None


def digest(listed: Iterable[ObjectStat]) -> str:
    """One text for a set of objects: paths, sizes and times."""
    lines = sorted(f"{stat.path} {stat.bytes} {stat.modified_s!r}\n" for stat in listed)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _checksum(stream: str, fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([stream, fields], sort_keys=True).encode()).hexdigest()
