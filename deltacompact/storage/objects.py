"""Objects by path: the operations that every store has, on S3, a local disk or in memory.

The commit protocol rests on one primitive, *put if absent*:

    put_if_absent("t/stream/0/00000000000000000007.json", A) -> True      the object is A from now on
    put_if_absent("t/stream/0/00000000000000000007.json", B) -> False     another writer was first

S3 does this with `If-None-Match: *`, a disk by linking a finished file into place. Each attempt writes its data files
under names of its own. So `writer` need not be conditional, but a write that fails must leave no object behind.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Protocol, runtime_checkable

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError

PROBE = ".put-if-absent"
"""The object that `refuse_overwriting` writes below the root of a store, beside the tables."""
SWAP_PROBE = ".put-if-same"
"""The object that `honours_if_match` asks a store to replace. It exists only if the store ignores `If-Match`."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One listed object: path relative to the store's root, size in bytes, last modified in seconds (store's clock).

    `etag` is there if the store has ETags. `storage_class` is S3's, where a listing says it: STANDARD, GLACIER, …
    """

    path: str
    bytes: int
    modified_s: float
    etag: str | None = None
    storage_class: str | None = None


@runtime_checkable
class ObjectStore(Protocol):
    """A flat, strongly consistent space of objects under a root. Stores can be pickled and sent to workers.

    Raises NotFoundError if an object is missing, StoreError if an outcome is unknown.
    """

    uri: str

    def get(self, path: str) -> bytes: ...

    def put(self, path: str, data: bytes) -> None: ...

    def put_if_absent(self, path: str, data: bytes) -> bool: ...

    def open(self, path: str) -> pa.NativeFile:
        """Random access for reading."""

    def writer(self, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A sink. Its bytes become the object only when the block ends without an exception."""

    def stat(self, path: str) -> ObjectStat: ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix` and sorts after `start_after`, in byte order of their paths."""

    def folders(self) -> Iterator[str]:
        """Names of the folders directly below the root, in byte order."""

    def delete(self, paths: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A range of an object: its bytes, and the whole object's size, ETag and time of last change, from one answer."""

    data: pa.Buffer
    object_bytes: int
    etag: str | None
    modified_s: float | None = None


@runtime_checkable
class Fetches(Protocol):
    """A store behind a network. It fetches several ranges at once, while the caller works."""

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        """Begin one request for `length` bytes from `start` on, or fewer at the object's end.

        A negative `start` counts from the end. With `etag`, an object that has another ETag now is an InputError.
        """


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object's bytes, ETag and time of last change, from one answer."""

    data: bytes
    etag: str
    modified_s: float


@runtime_checkable
class Swaps(Protocol):
    """A store with compare-and-swap: it replaces an object only if its ETag is the one that was read (`If-Match`)."""

    def get_tagged(self, path: str) -> Tagged: ...

    def put_if_same(self, path: str, data: bytes, etag: str) -> str | None:
        """The new ETag. None: the object has another ETag now, or is gone.

        After a lost reply the stored bytes say whether the put took effect, so `data` must be unique. None is also the
        answer if our put took effect and another writer has replaced its bytes since.
        """


@runtime_checkable
class Locks(Protocol):
    """A store without compare-and-swap whose writers can wait for each other."""

    def alone(self, path: str) -> contextlib.AbstractContextManager[None]:
        """A block that waits until no other one works in the folder of the path."""


@runtime_checkable
class Copies(Protocol):
    """A sink that can let the store copy ranges of other objects."""

    def copy_from(self, store: ObjectStore, path: str, start: int, length: int) -> bool:
        """Append a range of another object. False: the store cannot copy it, and nothing has been appended."""


@runtime_checkable
class LeavesUnfinished(Protocol):
    """A store in which a process that dies during a write leaves bytes behind that no listing shows."""

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """Unfinished writes below `prefix`, or all of them if the store does not know their paths."""

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        """Remove unfinished writes. A writer that is still at work gets a StoreError when it ends."""


def bytes_of(store: ObjectStore, path: str) -> int | None:
    """The size of an object. None: it is missing."""
    try:
        return store.stat(path).bytes
    except NotFoundError:
        return None


def is_there(store: ObjectStore, path: str) -> bool:
    return bytes_of(store, path) is not None


def by_folder(store: ObjectStore, prefix: str) -> dict[str, list[ObjectStat]]:
    """The objects in folders below a prefix, by the name of the first folder."""
    found: dict[str, list[ObjectStat]] = defaultdict(list)
    for stat in store.list(prefix):
        folder, slash, _ = stat.path.removeprefix(prefix).partition("/")
        if slash:
            found[folder].append(stat)
    return found


def unfinished(store: ObjectStore, prefix: str) -> Iterator[ObjectStat]:
    """The unfinished writes of a store, if it can have any."""
    if isinstance(store, LeavesUnfinished):
        yield from store.unfinished(prefix)


def discard(store: ObjectStore, begun: Iterable[ObjectStat]) -> None:
    if isinstance(store, LeavesUnfinished):
        store.discard(begun)


def honours_if_match(store: Swaps) -> bool:
    """Whether the store refuses a put with a wrong ETag. A store that ignores `If-Match` writes the probe object."""
    return store.put_if_same(SWAP_PROBE, b"deltacompact: does this store honour If-Match?\n", "0" * 32) is None


def refuse_overwriting(store: ObjectStore) -> None:
    """Raise InputError for a store whose put-if-absent overwrites an existing object: two writers would lose commits.

    The probe object stays in the store, so that later calls need one request: the store refuses to overwrite it.
    """
    first, second = (f"deltacompact: this store refuses to overwrite ({uuid.uuid4().hex})\n".encode() for _ in "12")
    if store.put_if_absent(PROBE, first) and (store.put_if_absent(PROBE, second) or store.get(PROBE) != first):
        raise InputError(
            f"{store.uri} overwrites an object that a conditional put must not (it ignores If-None-Match), so writers "
            "would lose each other's commits: use a store that honours it"
        )
