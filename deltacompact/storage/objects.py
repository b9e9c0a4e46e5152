"""Objects by path: what the catalog needs of S3, of a local disk, and of a test's memory.

The commit protocol rests on one primitive, *put if absent*:

    put_if_absent("t/stream/0/00000000000000000007.json", A) -> True      the object is A, for ever
    put_if_absent("t/stream/0/00000000000000000007.json", B) -> False     somebody was there first

S3 does it with `If-None-Match: *`, a disk by linking a finished file into place. Data files are written under
attempt-unique names, so `writer` need not be conditional, but a write that fails must leave nothing behind.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol, runtime_checkable

import pyarrow as pa

from deltacompact.base.errors import InputError

PROBE = ".put-if-absent"
"""An object below the root of a store, beside the tables, of which `refuse_overwriting` knows."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One listed object: path relative to the store's root, size in bytes, last modified in seconds (store's clock).

    `etag` where the store has one and was asked for this object alone.
    """

    path: str
    bytes: int
    modified_s: float
    etag: str | None = None


@runtime_checkable
class ObjectStore(Protocol):
    """A flat, strongly consistent space of objects under a root. Stores can be pickled and sent to workers.

    Raises NotFoundError where an object is missing, StoreError where an outcome is unknown.
    """

    uri: str

    def get(self, path: str) -> bytes: ...

    def put(self, path: str, data: bytes) -> None: ...

    def put_if_absent(self, path: str, data: bytes) -> bool: ...

    def open(self, path: str) -> pa.NativeFile:
        """Random access for reading."""

    def writer(self, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A sink whose bytes become the object when the block ends without an exception, and never otherwise."""

    def stat(self, path: str) -> ObjectStat: ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix`, in byte order of their paths, those after `start_after`."""

    def folders(self) -> Iterator[str]:
        """Names of the folders directly below the root, in byte order."""

    def delete(self, paths: Iterable[str]) -> None: ...


@runtime_checkable
class LeavesUnfinished(Protocol):
    """A store where a process that dies in the middle of a write leaves something that no listing shows."""

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """Writes that were begun and not ended: those below `prefix`, or all where the store does not know."""

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        """Forget such writes. Whoever is still at one gets a StoreError when it ends."""


def unfinished(store: ObjectStore, prefix: str) -> Iterator[ObjectStat]:
    """What writes that were never ended left in a store."""
    if isinstance(store, LeavesUnfinished):
        yield from store.unfinished(prefix)


def discard(store: ObjectStore, begun: Iterable[ObjectStat]) -> None:
    if isinstance(store, LeavesUnfinished):
        store.discard(begun)


def refuse_overwriting(store: ObjectStore) -> None:
    """Raise InputError for a store whose put-if-absent overwrites what is there: two writers would lose commits.

    The probe stays: where it is there already, a refused put of one request is the proof.
    """
    first, second = (f"deltacompact: this store refuses to overwrite ({uuid.uuid4().hex})\n".encode() for _ in "12")
    if store.put_if_absent(PROBE, first) and (store.put_if_absent(PROBE, second) or store.get(PROBE) != first):
        raise InputError(
            f"{store.uri} overwrites an object that a conditional put must not (it ignores If-None-Match), so writers "
            "would lose each other's commits: use a store that honours it"
        )
