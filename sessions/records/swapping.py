"""JSON records that are replaced by compare-and-swap. Each kind of store has its own way:

    S3, memory      one object, replaced with If-Match: one request to read, one to swap
    a folder        an object for each version, put if absent: numbered.py

    job-runs/run-1/run/99999999999999999999.json     the one object

The single object has the greatest number as its name, in the folder where the version before put numbered objects. A
record that began as numbered objects stays so, because dispatchers of the version before may work on it, too. A record
that began as a single object looks damaged to the version before, which leaves it alone. So two versions never work on
one job run without seeing each other's changes.

    swap 5c5c…       If-Match holds                   replaced
    swap 5c5c…       refused, newest names 5c5c…      our swap succeeded: its reply was lost, or it was replaced since
    swap 5c5c…       refused, newest does not         another writer was first
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError, StoreError
from deltacompact.base.partitions import side_by_side
from deltacompact.storage.certain_put import put_certainly
from deltacompact.storage.numbered import NumberedObject, newest_of_each
from deltacompact.storage.objects import ObjectStore, Swaps, honours_if_match
from sessions.base.settings import READ_AT_ONCE
from sessions.base.unreadable import Unreadable
from sessions.records.numbered import NumberedRecords
from sessions.records.versions import READABLE_BEFORE, Version, next_written, of_bytes, to_bytes

_ONE = "9" * 20 + ".json"
_SWAPS_MAX = 20


class SwappedRecords:
    """Records by folder. `key` names their values in the JSON: NEW if the version before must not touch them."""

    def __init__(self, store: ObjectStore, key: str = READABLE_BEFORE, unreadable: Unreadable | None = None) -> None:
        self._store = store
        self._key = key
        self._swaps = store if isinstance(store, Swaps) else None
        self._numbered = NumberedRecords(store, looks=1 if self._swaps else 2)
        self._probed = False
        self._known: dict[str, Version] = {}  # of updated records: usually nobody else has changed them since
        self.unreadable = Unreadable() if unreadable is None else unreadable

    def read(self, folder: str) -> Version:
        """The current version. Raises NotFoundError, CorruptionError."""
        if self._swaps is not None:
            with contextlib.suppress(NotFoundError):
                return self._one(self._swaps, folder)
        return self._numbered.read(folder)

    def read_to_update(self, folder: str) -> Version:
        """As `read`, and remember it: a later `update` reads again only if somebody else has replaced the record."""
        self._known[folder] = version = self.read(folder)
        return version

    def read_all(self, prefix: str, name: str = "") -> Iterator[Version]:
        """Every record below a prefix whose folder ends in `name`. Unreadable records are noted and left out."""
        yield from self.read_changed(prefix, {}, name).values()

    def read_changed(self, prefix: str, known: Mapping[str, Version], name: str = "") -> dict[str, Version]:
        """As `read_all`, by folder. A record whose `known` version is still current is not read again."""
        newest = {folder.removesuffix("/"): entry for folder, entry in newest_of_each(self._store.list(prefix)).items()}
        found = {folder: entry for folder, entry in newest.items() if folder.endswith(name)}
        same = {folder: known[folder] for folder, entry in found.items() if _is(entry, known.get(folder))}
        changed = {folder: entry for folder, entry in found.items() if folder not in same}

        def version(folder: str) -> Version | None:
            try:
                return self._version(folder, changed[folder])
            except NotFoundError:
                return None
            except (CorruptionError, InputError) as error:
                self.unreadable.note(folder, error)
                return None

        read = dict(zip(changed, side_by_side(changed, version, READ_AT_ONCE), strict=True))
        self.unreadable.keep(prefix, name, found)
        return {**same, **{folder: entry for folder, entry in read.items() if entry is not None}}

    def create(self, folder: str, value: Any) -> bool:
        """Put the first version. False if the record exists already."""
        if self._one_object() is None:
            return self._numbered.put(folder, 0, value, ()) is not None
        return put_certainly(self._store, f"{folder}/{_ONE}", self._bytes(0, value, next_written(())))

    def swap(self, version: Version, value: Any) -> Version | None:
        """Replace exactly this version. None if somebody else has replaced it.

        Raises StoreError if the outcome is unknown: read the record then.
        """
        if version.etag is None or self._swaps is None:
            return self._numbered.put(version.folder, version.number + 1, value, version.written)
        number, written = version.number + 1, next_written(version.written)
        path = f"{version.folder}/{_ONE}"
        etag = self._swaps.put_if_same(path, self._bytes(number, value, written), version.etag)
        if etag is None:
            try:
                found = self._one(self._swaps, version.folder)
            except NotFoundError:  # the record is gone
                return None
            if written[0] not in found.written:
                return None
            etag = found.etag if found.number == number else "replaced"
        return Version(version.folder, number, math.inf, value, written, etag)

    def update(self, folder: str, change: Callable[[Any], Any]) -> None:
        """Replace the record by `change(value)`, and again if somebody was faster. `change(None)`: no record yet."""
        for _ in range(_SWAPS_MAX):
            try:
                version = self._known.pop(folder, None) or self.read(folder)
            except NotFoundError:
                if self.create(folder, change(None)):
                    return
                continue
            if (swapped := self.swap(version, change(version.value))) is not None:
                self._known[folder] = swapped
                return
        raise StoreError(f"{self._store.uri}{folder} is replaced faster than it can be changed")

    def remove_newest(self, folder: str) -> None:
        """Delete the newest version, which is damaged. In a folder the one before is the newest then."""
        for newest in newest_of_each(self._store.list(folder + "/")).values():
            self._store.delete([newest.stat.path])
        self.unreadable.forget(folder)

    def _one_object(self) -> Swaps | None:
        """The store, if it honours If-Match, so that a record can be one object; None: records are numbered objects."""
        if self._swaps is not None and not self._probed:
            if not honours_if_match(self._swaps):
                self._swaps = None
            self._probed = True
        return self._swaps

    def _bytes(self, number: int, value: Any, written: tuple[str, ...]) -> bytes:
        return to_bytes(written=written, number=number, **{self._key: value})

    def _one(self, store: Swaps, folder: str) -> Version:
        path = f"{folder}/{_ONE}"
        found = store.get_tagged(path)
        value, written, number = of_bytes(found.data, self._store.uri + path)
        return Version(folder, number, found.modified_s, value, written, found.etag)

    def _version(self, folder: str, listed: NumberedObject) -> Version:
        """The listed version, or the one that has replaced it. Raises NotFoundError if the record is gone."""
        if listed.stat.path.endswith(_ONE) and self._swaps is not None:
            return self._one(self._swaps, folder)
        try:
            return self._numbered.version(listed)
        except NotFoundError:
            return self.read(folder)


def _is(listed: NumberedObject, known: Version | None) -> bool:
    """Whether a listed object is the version that is known."""
    if known is None:
        return False
    return listed.stat.etag == known.etag if known.etag is not None else listed.number == known.number
