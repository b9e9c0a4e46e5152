"""Checks that a file outside of the catalog has not changed since it was appended.

    tuesday.csv   appended: 120 bytes, modified at 10:04:07.25, SHA-256 9f86…
    later         150 bytes                            changed: refused
                  120 bytes, modified at 10:04:07.25   the same file
                  120 bytes, modified at 11:30:00.00   hash the bytes: a restored copy is the same, an edited one not

A store with ETags gives an object a new ETag whenever it is written, so only a restored copy needs a hash. A disk has
only modification times, in ticks of up to 10 ms. An edit within the same tick would not change the time. So a file that
was written just now is inspected a tick later.
"""

from __future__ import annotations

import hashlib
import time

import pyarrow as pa

from deltacompact.base.data_file import DataFile, Stamp
from deltacompact.base.errors import InputError
from deltacompact.storage.fetched_file import FetchedFile, announce
from deltacompact.storage.objects import ObjectStat, ObjectStore
from deltacompact.storage.opening import open_object

_TICK_S = 0.02
_HASHED_AT_ONCE_BYTES = 8 << 20


def settled(store: ObjectStore, name: str, managed: bool = False) -> ObjectStat:
    """The file's size and time, read late enough that any later edit changes the time. Nobody edits a managed file."""
    stat = store.stat(name)
    if not managed and stat.etag is None and abs(time.time() - stat.modified_s) < _TICK_S:
        time.sleep(_TICK_S)
        stat = store.stat(name)
    return stat


def stat_of(store: ObjectStore, name: str, source: pa.NativeFile) -> ObjectStat:
    """The size, and time or ETag, of an open file. A remote file knows them since it was opened."""
    return ObjectStat(name, source.size(), 0.0, source.etag) if isinstance(source, FetchedFile) else store.stat(name)


def stamp_of(stat: ObjectStat, source: pa.NativeFile | None) -> Stamp:
    """The stamp of a file. With `source`, it has the hash of the bytes."""
    digest = None if source is None else sha256(source)
    return Stamp(stat.modified_s if stat.etag is None else None, stat.etag, digest)


def is_untouched(root: ObjectStore, file: DataFile) -> bool:
    """Whether the store still reports the size and the time or ETag that it reported at the inspection."""
    store, name = open_object(root, file.path)
    stat = store.stat(name)
    return file.bytes == stat.bytes and file.stamp is not None and _agrees(file.stamp, stat)


def check_unchanged(store: ObjectStore, name: str, source: pa.NativeFile, file: DataFile) -> None:
    """Check an opened file against its size and stamp from the append. Raises InputError that says what differs."""
    size = source.size()
    if size != file.bytes:
        raise _changed(file, f"it had {file.bytes:,} bytes, now it has {size:,}")
    if file.stamp is None:  # an older release appended it
        return
    stat = stat_of(store, name, source)
    if _agrees(file.stamp, stat):
        return
    if file.stamp.sha256 is None:
        raise _changed(file, f"it had the ETag {file.stamp.etag}, now it has {stat.etag}")
    if sha256(source) != file.stamp.sha256:
        raise _changed(file, "it has the same size, but other bytes")


def sha256(source: pa.NativeFile) -> str:
    """The hex digest of a file's bytes. Afterwards the file is at its beginning."""
    digest = hashlib.sha256()
    announce(source)
    source.seek(0)
    while data := source.read_buffer(_HASHED_AT_ONCE_BYTES):
        digest.update(data)
    source.seek(0)
    return digest.hexdigest()


def _agrees(stamp: Stamp, stat: ObjectStat) -> bool:
    if stamp.etag is not None:
        return stamp.etag == stat.etag
    return stamp.modified_s == stat.modified_s


def _changed(file: DataFile, difference: str) -> InputError:
    return InputError(f"{file.path} was changed since it was appended: {difference}")
