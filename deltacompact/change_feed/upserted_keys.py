"""The keys that a batch of changes upserts: no mirror can hold two rows of one key.

insert 1 a, 2 b, 1 c      key 1 is that of two rows
insert 1 a · delete 1     a row that moved to another partition of its source: one row

Digests of very many keys wait in a temporary file, and are looked at part by part.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

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
    """Looks at changes as they pass. `digests` keeps what was seen."""

    def __init__(self, key: Sequence[str], digests: IO[bytes]) -> None:
        self._key = list(key)
        self._file = digests
        self._count = 0

    @classmethod
    @contextlib.contextmanager
    def of(cls, key: Sequence[str]) -> Iterator[UpsertedKeys]:
        with tempfile.SpooledTemporaryFile(KEYS_MAX * 16, prefix="deltacompact-") as digests:
            yield cls(key, digests)

    def add(self, changes: pa.RecordBatch) -> None:
        digests = _digests(changes, self._key)[1]
        self._file.write(digests.tobytes())
        self._count += len(digests)

    def repeated(self, again: Callable[[], Iterable[pa.RecordBatch]]) -> str | None:
        """A key of two rows, as a text. `again` reads the same changes once more, to name it."""
        repeated = next((digest for part in self._parts() if (digest := _repeated(part)) is not None), None)
        if repeated is None:
            return None
        for changes in again():
            rows, digests = _digests(changes, self._key)
            places = np.flatnonzero((digests == repeated).all(axis=1))
            if len(places):
                (row,) = rows.slice(places[0], 1).to_pylist()
                return ", ".join(f"{name}={row[name]!r}" for name in self._key)
        return ", ".join(self._key)

    def _parts(self) -> Iterator[npt.NDArray[np.uint64]]:
        """The digests, about KEYS_MAX at a time. Equal ones are in one part."""
        parts = -(-self._count // KEYS_MAX)
        for part in range(parts):
            self._file.seek(0)
            found = []
            while chunk := self._file.read(KEYS_MAX * 16):
                digests = np.frombuffer(chunk, np.uint64).reshape(-1, 2)
                found.append(digests[digests[:, 0] % np.uint64(parts) == part])
            yield np.concatenate(found)


def _repeated(digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64] | None:
    """A digest that is there twice."""
    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))]
    twice = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    return ordered[twice[0]] if len(twice) else None


def _digests(changes: pa.RecordBatch, key: Sequence[str]) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
    """The keys of the upserts, and their digests."""
    rows = pa.Table.from_batches([changes]).filter(pc.field(CHANGE_COLUMNS.field(0).name).isin(UPSERTS))
    return rows.select(list(key)), key_digests(rows, key)
