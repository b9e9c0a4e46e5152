"""Numbered objects: a folder of names with 20 digits, put if absent. The first writer of the next number wins it.

    watch/5c5c…/00000000000000000003.json              a log: every number counts
    job-runs/run-1/run/00000000000000000008.json       versions of a record: the greatest number counts
    deltacompact-index/5c…/00000000000000000007.json   generations of an index: the greatest number counts

All names have equally many digits, so a listing has the order of the numbers. Objects with other names are skipped. A
version may be removed between listing and reading: the reader then takes a newer one.
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
"""How often a reader looks again when the newest object was removed before it could read it."""


@dataclass(frozen=True, slots=True)
class NumberedObject:
    """One listed object. `folder` ends in a slash."""

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
    """The number in the path of an object of this folder; None: it has another name, or lies elsewhere."""
    match = _NUMBERED.fullmatch(path)
    return int(match["number"]) if match and match["folder"] == folder else None


def listed(store: ObjectStore, folder: str, after: int | None = None) -> dict[int, ObjectStat]:
    """The objects of a folder with numbers above `after` (None: all), by number, in ascending order."""
    start_after = "" if after is None else numbered_path(folder, after)
    found = ((number_in(folder, stat.path), stat) for stat in store.list(folder, start_after))
    return {number: stat for number, stat in found if number is not None}


def newest_of_each(stats: Iterable[ObjectStat]) -> dict[str, NumberedObject]:
    """The object with the greatest number in each folder. `stats` are in the order of a listing."""
    found = (NumberedObject.of(stat) for stat in stats)
    return {newest.folder: newest for newest in found if newest is not None}


def read_newest(store: ObjectStore, folder: str, looks: int = 1) -> tuple[NumberedObject, bytes] | None:
    """The object with the greatest number, and its bytes. None: `looks` listings found no numbered object.

    Files of a disk come and go during a listing. So a second look may find an object that the first one missed, and
    with `looks` above 1 what lies above the newest one is listed once more.
    """
    for look in range(1, _READS_MAX + 1):
        found = newest_of_each(store.list(folder)).get(folder)
        if found is not None:
            with contextlib.suppress(NotFoundError):
                data = store.get(found.stat.path)
                if looks == 1 or not listed(store, folder, found.number):
                    return found, data
        elif look >= looks:
            return None
    raise StoreError(f"{store.uri}{folder} is replaced faster than it can be read")
