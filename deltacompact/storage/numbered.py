"""Numbered objects: a folder of names with 20 digits, put if absent. Whoever puts the next number was first.

    watch/5c5c…/00000000000000000003.json              a log: every number counts
    job-runs/run-1/run/00000000000000000008.json       versions of a record: the greatest number counts
    deltacompact-index/5c…/00000000000000000007.json   generations of an index: the same

All names have as many digits, so a listing has them in the order of numbers. Other objects may lie in the folder: what
has another name is skipped. A version may be removed while somebody is about to read it: then a newer one is read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.base.errors import NotFoundError, StoreError
from deltacompact.storage.objects import ObjectStat, ObjectStore

_NUMBERED = re.compile(r"(?P<folder>.*/)(?P<number>[0-9]{20})\.json", re.DOTALL)
_READS_MAX = 100
"""An object that is replaced under a reader's eyes is looked for again, so often."""


@dataclass(frozen=True, slots=True)
class NumberedObject:
    """One listed object of a folder, whose path ends in a slash."""

    folder: str
    number: int
    stat: ObjectStat

    @classmethod
    def of(cls, stat: ObjectStat) -> NumberedObject | None:
        """None: the object has another name."""
        match = _NUMBERED.fullmatch(stat.path)
        return match and cls(match["folder"], int(match["number"]), stat)


def numbered_path(folder: str, number: int) -> str:
    return f"{folder}{number:020d}.json"


def number_in(folder: str, path: str) -> int | None:
    """The number in the path of an object of this folder; None where it has another name, or lies elsewhere."""
    match = _NUMBERED.fullmatch(path)
    return int(match["number"]) if match and match["folder"] == folder else None


def listed(store: ObjectStore, folder: str, after: int | None = None) -> dict[int, ObjectStat]:
    """The objects of a folder by number, in that order: those above `after`, or all."""
    start_after = "" if after is None else numbered_path(folder, after)
    found = ((number_in(folder, stat.path), stat) for stat in store.list(folder, start_after))
    return {number: stat for number, stat in found if number is not None}


def newest_of_each(stats: Iterable[ObjectStat]) -> dict[str, NumberedObject]:
    """The object of the greatest number in each folder of a listing."""
    found = (NumberedObject.of(stat) for stat in stats)
    return {one.folder: one for one in found if one is not None}


def read_newest(store: ObjectStore, folder: str, looks: int = 1) -> tuple[NumberedObject, bytes] | None:
    """The object of the greatest number, with its bytes. None: the folder has none, in so many looks.

    A disk is no snapshot while it is listed, so a second look may find what a first one has missed.
    """
    for look in range(1, _READS_MAX + 1):
        found = newest_of_each(store.list(folder)).get(folder)
        if found is not None:
            with contextlib.suppress(NotFoundError):
                return found, store.get(found.stat.path)
        elif look >= looks:
            return None
    raise StoreError(f"{store.uri}{folder} is replaced faster than it can be read")
