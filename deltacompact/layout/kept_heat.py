"""The heat of a table, beside it: a small document that is replaced by the next number, put if absent.

    heat/00000000000000000007.json     40 reads of log 5c5c…
    heat/00000000000000000008.json     and 3 that came since; 3 is removed

Of two who bring reads at a time, one is first, and the other adds its own to that. Heat decides an order, never rows: a
document that is damaged, or of a table that lay here before, is as none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.base.errors import StoreError
from deltacompact.layout.heat import Heat, Told, heat_document, heat_from_document
from deltacompact.storage.checksummed import is_whole, with_checksum
from deltacompact.storage.numbered import numbered_path, read_newest
from deltacompact.storage.objects import ObjectStore

KEPT = 4
"""Older documents: whoever has read one of them, and is slow, finds that the next number is taken."""
_FORMAT = 1
_TRIES = 20


@dataclass(frozen=True, slots=True)
class KeptHeat:
    """The heat of a table in a folder of its own. `identity`: another one for each table of the name."""

    store: ObjectStore
    folder: str
    table_id: str
    identity: str

    def read(self) -> Heat:
        """What is known; nothing: no reads have been told."""
        return self._newest()[1]

    def keep(self, told: Iterable[Told], now_s: float) -> Heat:
        """The heat with these reads, which is kept from now on. Raises StoreError if others are always faster."""
        told = list(told)
        for _ in range(_TRIES):
            number, before = self._newest()
            heat = before.with_reads(told, now_s)
            document = with_checksum("heat", heat_document(heat), format=_FORMAT, kind="heat", table=self.identity)
            if self.store.put_if_absent(numbered_path(self.folder, number + 1), json.dumps(document).encode()):
                self.store.delete([numbered_path(self.folder, number - KEPT)] if number > KEPT else [])
                return heat
        raise StoreError(f"the heat of table {self.table_id!r} is replaced faster than reads can be added: try again")

    def _newest(self) -> tuple[int, Heat]:
        found = read_newest(self.store, self.folder)
        return (0, Heat()) if found is None else (found[0].number, self._parsed(found[1]) or Heat())

    def _parsed(self, data: bytes) -> Heat | None:
        try:
            document = json.loads(data)
            known = document["format"] == _FORMAT and document["table"] == self.identity
            return heat_from_document(document["heat"]) if known and is_whole(document, "heat") else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
