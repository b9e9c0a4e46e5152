"""The keys that a batch of changes upserts: no mirror can hold two rows of one key.

insert 1 a, 2 b, 1 c      key 1 is that of two rows
insert 1 a · delete 1     a row that moved to another partition of its source: one row

Of very many keys, a part is looked at, chosen by digest: two rows of one key are both in it, or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.change_feed.columns import CHANGE_COLUMNS, ChangeType
from deltacompact.change_feed.pairing import key_digests

UPSERTS = (str(ChangeType.INSERT), str(ChangeType.UPDATE_AFTER))
KEYS_MAX = 1 << 22
"""Digests that are held at a time. They take 16 bytes each."""


class UpsertedKeys:
    """Looks at changes as they pass."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = list(key)
        self._found: list[npt.NDArray[np.uint64]] = []
        self._held, self._part = 0, np.uint64(0)

    def add(self, changes: pa.RecordBatch) -> None:
        digests = self._of_part(_digests(changes, self._key)[1])
        self._found.append(digests)
        self._held += len(digests)
        while self._held > KEYS_MAX:
            self._part = self._part * np.uint64(2) + np.uint64(1)
            self._found = [self._of_part(np.concatenate(self._found))]
            self._held = len(self._found[0])

    def repeated(self, again: Callable[[], Iterable[pa.RecordBatch]]) -> str | None:
        """A key of two rows, as a text. `again` reads the same changes once more, to name it."""
        found = np.concatenate([np.zeros((0, 2), np.uint64), *self._found])
        found = found[np.lexsort((found[:, 1], found[:, 0]))]
        twice = np.flatnonzero((found[1:] == found[:-1]).all(axis=1))
        if not len(twice):
            return None
        for changes in again():
            rows, digests = _digests(changes, self._key)
            places = np.flatnonzero((digests == found[twice[0]]).all(axis=1))
            if len(places):
                (row,) = rows.slice(places[0], 1).to_pylist()
                return ", ".join(f"{name}={row[name]!r}" for name in self._key)
        return ", ".join(self._key)

    def _of_part(self, digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        kept: npt.NDArray[np.uint64] = digests[digests[:, 0] & self._part == 0]
        return kept


def _digests(changes: pa.RecordBatch, key: Sequence[str]) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
    """The keys of the upserts, and their digests."""
    rows = pa.Table.from_batches([changes]).filter(pc.field(CHANGE_COLUMNS.field(0).name).isin(UPSERTS))
    return rows.select(list(key)), key_digests(rows, key)
