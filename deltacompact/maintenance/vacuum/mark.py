"""The mark that a vacuum leaves in a stream: what the next one need not read again. Pure.

    orders/vacuum.json     the objects that it listed, as a digest       the same now: nothing came, nothing went
                           when the first of them may be old enough      not yet: there is nothing to delete
                           the chain: 0, 1-50a3…, 2-77b1…                their logs never change: they stay unread

    GET the mark · LIST the partition · LIST the unfinished uploads      an idle partition, of up to 1,000 objects

No deletion depends on a mark. It says what to keep and what to leave unread: a vacuum deletes only what the log itself,
read by this vacuum, does not reach. So a missing or damaged mark means more work, and a wrong one means that garbage
stays until the next full vacuum, 30 days later at most.
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
"""A vacuum reads the whole history again if the last one that did is older than this (seconds)."""


@dataclass(frozen=True, slots=True)
class SealedVersion:
    """A version of the chain that has its seal: the length of its log, the bodies that its entries name, and the names
    of files that users appended by reference, where they look like names of ours."""

    tail: int
    manifests: tuple[str, ...] = ()
    referenced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VacuumMark:
    """What one vacuum knew when it ended.

    `objects` is the digest of what it left. `first_s` is the time from which the first object's age counts that may be
    deleted later (None: none may). `full_s` is when the history was read as a whole. `waiting`, `doubtful` and
    `dead_rows` are what it reported. `chain` has the sealed versions, `records` the records of sessions that name one.
    """

    objects: str
    first_s: float | None
    full_s: float
    waiting: tuple[str, ...]
    doubtful: tuple[str, ...]
    dead_rows: int
    chain: Mapping[str, SealedVersion]
    records: tuple[str, ...]

    def is_current(self, listed: Iterable[ObjectStat], old_s: float) -> bool:
        """Whether the same objects are there, and none has become old enough to delete: modified before `old_s`."""
        return (self.first_s is None or self.first_s >= old_s) and self.objects == digest(listed)

    def encoded(self, stream: str) -> bytes:
        fields = asdict(self)
        return json.dumps({"format": FORMAT_VERSION, **fields, "sha256": _checksum(stream, fields)}).encode()


def parsed(stream: str, data: bytes, now_s: float) -> VacuumMark | None:
    """The mark in an object; None where it is damaged, of another stream, or too old."""
    try:
        fields = json.loads(data)
        if fields.pop("format") != FORMAT_VERSION or fields.pop("sha256") != _checksum(stream, fields):
            return None
        chain = {
            version: SealedVersion(known["tail"], tuple(known["manifests"]), tuple(known["referenced"]))
            for version, known in fields.pop("chain").items()
        }
        for name in ("waiting", "doubtful", "records"):
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
