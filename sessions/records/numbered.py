"""Compare-and-swap on the one primitive that every store has: put if absent.

    job-runs/run-1/run/00000000000000000007.json     was replaced; a few of these stay, for readers that opened them
    job-runs/run-1/run/00000000000000000008.json     the current version: the greatest number counts

    swap 8 -> 9      put 9 if absent, look whether 8 is there and nothing above 9, remove what lies well below
    swap 8 -> 9      the slot is taken: somebody else was first, nothing happened

A writer may sleep between its read of 8 and its put of 9 for so long that 9 was written and removed by others. Its put
succeeds then, but a newer record lies above, and no reader ever looks at the late 9. A newer record may also lie above
because somebody has replaced our own 9 already: each record names the ones before it, so the newest tells which it is.

    newest 12, written by d after c (11), b (10), a (9)     our 9 is "a": it won        our 9 is "x": it came late

A late 9 harms only a reader that takes it for the newest. Listing a folder takes all names at once and then looks at
file after file; meanwhile every newer version may have been replaced and removed. So a reader that sees nothing above
9 lists once more what lies above 9, and if every listed file is gone, it lists anew.

There is no lock: a writer that is suspended anywhere holds nobody up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from deltacompact.base.errors import NotFoundError, StoreError
from deltacompact.storage.certain_put import put_certainly
from deltacompact.storage.numbered import NumberedObject, listed, numbered_path, read_newest
from deltacompact.storage.objects import ObjectStat, ObjectStore
from sessions.records.versions import READABLE_BEFORE, Version, next_written, of_bytes, to_bytes

_VERSIONS_KEPT = 8
"""How many versions stay. Some of these then exist throughout the listing of a folder, which is no snapshot of it."""


class NumberedRecords:
    """Each version of a record in an object of its own."""

    def __init__(self, store: ObjectStore, looks: int = 2) -> None:
        """`looks`: how often to list for a record until it counts as missing, because a listing is no snapshot."""
        self._store = store
        self._looks = looks

    def read(self, folder: str) -> Version:
        """The current version. Raises NotFoundError."""
        found = read_newest(self._store, folder + "/", self._looks)
        if found is None:
            raise NotFoundError(f"{self._store.uri}{folder} does not exist")
        return self._version(*found)

    def put(self, folder: str, number: int, value: Any, before: tuple[str, ...]) -> Version | None:
        """Put version `number` if its predecessor is the newest; None if somebody else was faster."""
        path = numbered_path(folder + "/", number)
        written = next_written(before)
        if not put_certainly(self._store, path, to_bytes(written=written, **{READABLE_BEFORE: value})):
            return None
        versions = listed(self._store, folder + "/")
        if (number and number - 1 not in versions) or self._something_above(folder, number, versions):
            return self._replaced_already(folder, number, value, written)
        replaced = [stat.path for other, stat in versions.items() if other <= number - _VERSIONS_KEPT]
        with contextlib.suppress(StoreError):  # the next swap removes them
            self._store.delete(replaced)
        try:
            stat = versions.get(number) or self._store.stat(path)
        except NotFoundError:  # while the disk was listed, others have replaced it so often that it was removed
            return self._replaced_already(folder, number, value, written)
        return Version(folder, number, stat.modified_s, value, written)

    def _something_above(self, folder: str, number: int, versions: Mapping[int, ObjectStat]) -> bool:
        if max(versions, default=number) > number:
            return True
        return self._looks > 1 and bool(listed(self._store, folder + "/", number))

    def version(self, found: NumberedObject) -> Version:
        """The version in a listed object. Raises NotFoundError, CorruptionError."""
        return self._version(found, self._store.get(found.stat.path))

    def _version(self, found: NumberedObject, data: bytes) -> Version:
        value, written, _ = of_bytes(data, self._store.uri + found.stat.path)
        return Version(found.folder.removesuffix("/"), found.number, found.stat.modified_s, value, written)

    def _replaced_already(self, folder: str, number: int, value: Any, written: tuple[str, ...]) -> Version | None:
        """What became of our put if a newer version exists: it won and was replaced since, or it came late (None)."""
        found = self.read(folder)
        since = found.number - number
        if since >= len(found.written):
            if number == 0:
                return None  # it is there already, whoever put it
            raise StoreError(f"{self._store.uri}{folder} was replaced {since} times meanwhile: read it again")
        return Version(folder, number, found.modified_s, value, written) if found.written[since] == written[0] else None
