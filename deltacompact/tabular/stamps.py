"""Whether a file that lies outside of the catalog is still the one that was appended.

    tuesday.csv   appended: 120 bytes, modified at 10:04:07.25, SHA-256 9f86…
    later         150 bytes                            changed: refused
                  120 bytes, modified at 10:04:07.25   the same file
                  120 bytes, modified at 11:30:00.00   hash the bytes: a restored copy is the same, an edited one not

A store with ETags gives an object another ETag whenever it is written, so that a hash is only needed to know a restored
copy again. A disk gives times alone, in ticks of up to 10 ms: a file that was written within the last tick is looked at
again after it, because an edit within the same tick would show no other time.
"""

from __future__ import annotations

import hashlib
import time

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import DataFile, Stamp
from deltacompact.storage.objects import ObjectStat, ObjectStore
from deltacompact.storage.opening import open_object

_TICK_S = 0.02
_HASHED_AT_ONCE_BYTES = 8 << 20


def settled(store: ObjectStore, name: str) -> ObjectStat:
    """What the store says of a file, once any further edit would show."""
    stat = store.stat(name)
    if stat.etag is None and abs(time.time() - stat.modified_s) < _TICK_S:
        time.sleep(_TICK_S)
        stat = store.stat(name)
    return stat


def stamp_of(stat: ObjectStat, source: pa.NativeFile | None = None) -> Stamp:
    """The stamp of a file; with `source`, its bytes are hashed."""
    digest = None if source is None else sha256(source)
    return Stamp(stat.modified_s if stat.etag is None else None, stat.etag, digest)


def is_untouched(root: ObjectStore, file: DataFile) -> bool:
    """Whether the store still says of a file what it said when the file was inspected."""
    store, name = open_object(root, file.path)
    stat = store.stat(name)
    return file.bytes == stat.bytes and file.stamp is not None and _agrees(file.stamp, stat)


def check_unchanged(store: ObjectStore, name: str, source: pa.NativeFile, file: DataFile) -> None:
    """Hold an opened file against what it was when it was appended. Raises InputError that says what differs."""
    size = source.size()
    if size != file.bytes:
        raise _changed(file, f"it had {file.bytes:,} bytes, now it has {size:,}")
    if file.stamp is None:  # an older release appended it
        return
    stat = _opened(name, source, size) or store.stat(name)
    if _agrees(file.stamp, stat):
        return
    if file.stamp.sha256 is None:
        raise _changed(file, f"it had the ETag {file.stamp.etag}, now it has {stat.etag}")
    if sha256(source) != file.stamp.sha256:
        raise _changed(file, "its bytes are others, though as many as before")


def sha256(source: pa.NativeFile) -> str:
    """The hex digest of a file's bytes; the file is at its beginning afterwards."""
    digest = hashlib.sha256()
    source.seek(0)
    while data := source.read_buffer(_HASHED_AT_ONCE_BYTES):
        digest.update(data)
    source.seek(0)
    return digest.hexdigest()


def _agrees(stamp: Stamp, stat: ObjectStat) -> bool:
    if stamp.etag is not None:
        return stamp.etag == stat.etag
    return stamp.modified_s == stat.modified_s


def _opened(name: str, source: pa.NativeFile, size: int) -> ObjectStat | None:
    """What Arrow's S3 reader was told as it opened the object: it spares a request."""
    etag = None if isinstance(source, pa.PythonFile) else source.metadata().get("ETag")
    return None if etag is None else ObjectStat(name, size, 0.0, etag.decode().strip('"'))


def _changed(file: DataFile, how: str) -> InputError:
    return InputError(f"{file.path} was changed since it was appended: {how}")
