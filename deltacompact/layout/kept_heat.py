"""Keeps the heat of a table beside it, in numbered documents: each one is put if absent, and replaces the one before.

    heat/00000000000000000007.json     40 reads of log 5c5c…
    heat/00000000000000000008.json     and 3 later ones; document 3 is deleted

If two writers add reads at once, the first one wins, and the other adds its reads to the winner's document. Heat
decides how rows are ordered, never which rows there are. So a document that is damaged, or belongs to an earlier table
of this name, counts as empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.base.errors import StoreError
from deltacompact.layout.heat import Heat, SourcedRead, heat_document, heat_from_document
from deltacompact.storage.checksummed import is_whole, with_checksum
from deltacompact.storage.numbered import numbered_path, read_newest
from deltacompact.storage.objects import ObjectStore

OLDER_DOCUMENTS = 4
"""The number of older documents to keep: a slow writer that has read one of them finds the next number taken."""
_FORMAT = 1
_TRIES = 20


@dataclass(frozen=True, slots=True)
class KeptHeat:
    """The heat of a table, in a folder of its own. `identity`: differs from that of earlier tables with this name."""

    store: ObjectStore
    folder: str
    table_id: str
    identity: str

    def read(self) -> Heat:
        """The heat that is kept. Empty: there is none."""
        return self._newest()[1]

    def keep(self, reads: Iterable[SourcedRead], now_s: float) -> Heat:
        """Add these reads, keep the heat, and return it. Raises StoreError if other writers are always faster."""
        reads = list(reads)
        for _ in range(_TRIES):
            number, before = self._newest()
            heat = before.with_reads(reads, now_s)
            document = with_checksum("heat", heat_document(heat), format=_FORMAT, kind="heat", table=self.identity)
            if self.store.put_if_absent(numbered_path(self.folder, number + 1), json.dumps(document).encode()):
                if number > OLDER_DOCUMENTS:
                    self.store.delete([numbered_path(self.folder, number - OLDER_DOCUMENTS)])
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
