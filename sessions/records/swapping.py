"""Compare-and-swap on the one primitive that the catalog needs of a store as well: put if absent.

    job-runs/run-1/run/00000000000000000007.json     was replaced; a few of these stay for readers that are at them
    job-runs/run-1/run/00000000000000000008.json     the record as it is: the greatest number counts

    swap 8 -> 9      put 9 if absent, look whether 8 is there and nothing above 9, remove what lies well below
    swap 8 -> 9      the slot is taken: somebody else was first, nothing happened

A writer may sleep between its read of 8 and its put of 9 for so long that 9 was written and removed by others. Its put
succeeds then, but a newer record lies above, and no reader ever looks at the late 9. A newer record may also lie above
because somebody has replaced our own 9 already: each record names the ones before it, so the newest tells which it is.

    newest 12, written by d after c (11), b (10), a (9)     our 9 is "a": it won        our 9 is "x": it came late

No lock is held at any time: a writer that is suspended anywhere holds nobody up.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import CorruptionError, NotFoundError, StoreError
from deltacompact.catalog.delta_stream.log.certain_put import put_certainly
from deltacompact.storage.objects import ObjectStat, ObjectStore

_NUMBERED = re.compile(r"(?P<folder>.+)/(?P<number>[0-9]{20})\.json", re.DOTALL)
_READERS = 16
_KEPT = 8
"""Versions that stay. A disk is no snapshot while it is listed: of these, some are there from its begin to its end."""
_REMEMBERED = 32
"""A writer that sleeps between its put and its look, while more versions than that come, cannot be told who won."""
_SWAPS_MAX = 20
_READS_MAX = 100
"""A record that is replaced under a reader's eyes is read again, so often."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record. `modified_s` is when it was put, by the store's clock.

    `written` names this put, and those of the versions before it, the latest first.
    """

    folder: str
    number: int
    modified_s: float
    value: Any
    written: tuple[str, ...]


class SwappedRecords:
    """JSON values by folder, each of them replaced by compare-and-swap."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, folder: str) -> Version:
        """The record as it is. Raises NotFoundError."""
        for attempt in range(_READS_MAX):
            newest = _newest(self._store.list(folder + "/")).get(folder)
            if newest is None:
                if attempt:
                    raise NotFoundError(f"{self._store.uri}{folder} does not exist")
                continue
            with contextlib.suppress(NotFoundError):
                return self._version(newest)
        raise StoreError(f"{self._store.uri}{folder} is replaced faster than it can be read")

    def read_all(self, prefix: str, name: str = "") -> Iterator[Version]:
        """Every record below a prefix whose folder ends in `name`. One that vanishes meanwhile is left out."""
        found = {folder: stat for folder, stat in _newest(self._store.list(prefix)).items() if folder.endswith(name)}
        with ThreadPoolExecutor(_READERS) as threads:
            for version in threads.map(self._version_now, found, found.values()):
                if version is not None:
                    yield version

    def read_changed(self, prefix: str, known: Mapping[str, Version]) -> dict[str, Version]:
        """Every record below a prefix by folder; those whose number is known are not read again."""
        found = _newest(self._store.list(prefix))
        same = {
            path: known[path] for path, stat in found.items() if path in known and known[path].number == _number(stat)
        }
        changed = {path: stat for path, stat in found.items() if path not in same}
        with ThreadPoolExecutor(_READERS) as threads:
            read = dict(zip(changed, threads.map(self._version_now, changed, changed.values()), strict=True))
        return {**same, **{path: version for path, version in read.items() if version is not None}}

    def create(self, folder: str, value: Any) -> bool:
        """Put the first version. False where the record is there already."""
        return self._put(folder, 0, value, ()) is not None

    def swap(self, version: Version, value: Any) -> Version | None:
        """Replace exactly this version. None where somebody else has replaced it.

        Raises StoreError where nobody can say: read the record then.
        """
        return self._put(version.folder, version.number + 1, value, version.written)

    def update(self, folder: str, change: Callable[[Any], Any]) -> None:
        """Replace the record by what `change` makes of it, again where somebody was faster; None: there is none yet."""
        for _ in range(_SWAPS_MAX):
            try:
                version = self.read(folder)
            except NotFoundError:
                if self.create(folder, change(None)):
                    return
                continue
            if self.swap(version, change(version.value)) is not None:
                return
        raise StoreError(f"{self._store.uri}{folder} is replaced faster than it can be changed")

    def _put(self, folder: str, number: int, value: Any, before: tuple[str, ...]) -> Version | None:
        path = f"{folder}/{number:020d}.json"
        written = (uuid.uuid4().hex[:16], *before)[:_REMEMBERED]
        data = json.dumps({"written": written, "record": value}, separators=(",", ":")).encode()
        if not put_certainly(self._store, path, data):
            return None
        versions = {_number(stat): stat for stat in self._store.list(folder + "/") if _NUMBERED.fullmatch(stat.path)}
        if max(versions, default=number) > number or (number and number - 1 not in versions):
            return self._replaced_already(folder, number, value, written)
        replaced = [stat.path for other, stat in versions.items() if other <= number - _KEPT]
        with contextlib.suppress(StoreError):  # the next swap removes them
            self._store.delete(replaced)
        stat = versions.get(number) or self._store.stat(path)
        return Version(folder, number, stat.modified_s, value, written)

    def _replaced_already(self, folder: str, number: int, value: Any, written: tuple[str, ...]) -> Version | None:
        """What became of a put above which a newer version lies: it won and was replaced, or it came late."""
        newest = self.read(folder)
        since = newest.number - number
        if since >= len(newest.written):
            if number == 0:
                return None  # it is there already, whoever put it
            raise StoreError(f"{self._store.uri}{folder} was replaced {since} times meanwhile: read it again")
        return (
            Version(folder, number, newest.modified_s, value, written) if newest.written[since] == written[0] else None
        )

    def _version_now(self, folder: str, newest: ObjectStat) -> Version | None:
        """The record that was listed, or the one that has replaced it; None where it is gone altogether."""
        try:
            return self._version(newest)
        except NotFoundError:
            with contextlib.suppress(NotFoundError):
                return self.read(folder)
        return None

    def _version(self, stat: ObjectStat) -> Version:
        data = self._store.get(stat.path)
        try:
            document = json.loads(data)
            value, written = document["record"], tuple(document["written"])
        except (ValueError, LookupError, TypeError):
            raise CorruptionError(f"{self._store.uri}{stat.path} is damaged") from None
        return Version(stat.path.rpartition("/")[0], _number(stat), stat.modified_s, value, written)


def _newest(listed: Iterable[ObjectStat]) -> dict[str, ObjectStat]:
    """The newest version of each record. Paths come in order, and numbers have 20 digits."""
    newest = {}
    for stat in listed:
        if found := _NUMBERED.fullmatch(stat.path):
            newest[found["folder"]] = stat
    return newest


def _number(stat: ObjectStat) -> int:
    return int(stat.path[-25:-5])
