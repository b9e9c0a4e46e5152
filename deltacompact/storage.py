"""Objects by path: what the catalog needs of S3, of a local disk, and of a test's memory.

The commit protocol rests on one primitive, *put if absent*:

    put_if_absent("t/stream/0/00000000000000000007.json", A) -> True      the object is A, for ever
    put_if_absent("t/stream/0/00000000000000000007.json", B) -> False     somebody was there first

S3 does it with `If-None-Match: *`, a disk by linking a finished file into place. Data files are written under
attempt-unique names, so `writer` need not be conditional, but a write that fails must leave nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast, runtime_checkable
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from deltacompact.direct_file import DirectFile
from deltacompact.errors import InputError, NotFoundError, StoreError

if TYPE_CHECKING:
    from deltacompact.s3_store import S3Settings


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


class MemoryStore:
    """A dictionary with a lock: for tests, and for reads that publish nothing."""

    def __init__(self, uri: str = "memory://", clock: Any = time.time) -> None:
        self.uri = uri
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        try:
            return self._objects[path][0]
        except KeyError:
            raise NotFoundError(f"{self.uri}{path} does not exist") from None

    def put(self, path: str, data: bytes) -> None:
        self._objects[path] = (bytes(data), self._clock())

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self._objects:
                return False
            self.put(path, data)
            return True

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        sink = pa.BufferOutputStream()
        yield sink
        self.put(path, sink.getvalue().to_pybytes())

    def stat(self, path: str) -> ObjectStat:
        data = self.get(path)
        return ObjectStat(path, len(data), self._objects[path][1])

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        for path in sorted(self._objects):
            if path.startswith(prefix) and path > start_after:
                data, modified_s = self._objects[path]
                yield ObjectStat(path, len(data), modified_s)

    def folders(self) -> Iterator[str]:
        yield from sorted({path.partition("/")[0] for path in self._objects if "/" in path})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._objects.pop(path, None)


class LocalStore:
    """Objects as files below a directory. Unfinished writes live in `.unfinished` and are never listed."""

    UNFINISHED = ".unfinished"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.uri = self.root.as_uri() + "/"

    def get(self, path: str) -> bytes:
        with self._reading(path):
            return (self.root / path).read_bytes()

    def put(self, path: str, data: bytes) -> None:
        with self.writer(path) as sink:
            sink.write(data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._unfinished() as (sink, name):
            sink.write(data)
            sink.finish()
            target = self._parent_made(path)
            try:
                os.link(name, target)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True

    def open(self, path: str) -> pa.NativeFile:
        with self._reading(path):
            file = self.root / path
            return pa.memory_map(os.fsencode(file)) if file.stat().st_size else pa.BufferReader(b"")

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        with self._unfinished() as (sink, name):
            yield cast(IO[bytes], sink)
            sink.finish()
            target = self._parent_made(path)
            os.replace(name, target)
            _sync_directory(target.parent)

    def stat(self, path: str) -> ObjectStat:
        with self._reading(path):
            stat = (self.root / path).stat()
        return ObjectStat(path, stat.st_size, stat.st_mtime)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        directory = self.root / prefix.rpartition("/")[0]
        found = []
        for folder, folders, names in os.walk(directory):
            if self.UNFINISHED in folders:
                folders.remove(self.UNFINISHED)
            relative = Path(folder).relative_to(self.root).as_posix()
            at = "" if relative == "." else relative + "/"
            found += [at + name for name in names]
        for path in sorted(found, key=str.encode):
            if path.startswith(prefix) and path > start_after:
                with contextlib.suppress(NotFoundError):
                    yield self.stat(path)

    def folders(self) -> Iterator[str]:
        if self.root.is_dir():
            found = {each.name for each in self.root.iterdir() if each.is_dir()}
            yield from sorted(found - {self.UNFINISHED})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the folder goes with its last object, as on S3
                (self.root / path).parent.rmdir()

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFoundError(f"{self.root / path} does not exist") from None
        except PermissionError:
            raise InputError(f"{self.root / path} may not be read") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise NotFoundError(f"{self.root / path} does not exist") from None
            raise

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[tuple[DirectFile, Path]]:
        name = self.root / self.UNFINISHED / uuid.uuid4().hex
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            with DirectFile(name) as sink:
                yield sink, name
        except (PermissionError, NotADirectoryError, FileNotFoundError) as error:
            raise InputError(f"{self.root} cannot be written: {error.strerror}") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                longest = max(map(os.fsencode, Path(error.filename2 or error.filename or "").parts), key=len)
                said = f"{longest[:40].decode(errors='replace')}…"
                raise InputError(f"{said!r}: a name of {len(longest)} bytes is too long for {self.root}") from None
            raise StoreError(f"writing below {self.root} failed: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                name.unlink(missing_ok=True)

    def _parent_made(self, path: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_store(uri: str | os.PathLike[str], s3: S3Settings | None = None) -> ObjectStore:
    """The store at "s3://bucket/prefix", "file:///path" or a plain local path. Nothing is asked of it yet."""
    text = os.fspath(uri)
    parts = urlsplit(text)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise InputError(f"{text!r} names no bucket")
        from deltacompact.s3_store import S3Settings, S3Store

        return S3Store(parts.netloc, parts.path, s3 or S3Settings.from_environment())
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"{text!r}: a file URI has three slashes (file:///path)")
        return LocalStore(unquote(parts.path, errors="surrogateescape"))
    if "://" in text:
        raise InputError(f"{text!r}: unknown scheme {parts.scheme!r} (use file:// or s3://)")
    if not text:
        raise InputError("the catalog's URI is empty")
    return LocalStore(text)


def open_object(root: ObjectStore, path: str) -> tuple[ObjectStore, str]:
    """The store and the path in it of an object that the log names: below the root, or a URI of its own."""
    if "://" not in path:
        return root, path
    folder, _, name = path.rpartition("/")
    other = open_store(folder, getattr(root, "settings", None))
    alike = getattr(root, "alike", None)  # a store that is paced paces others as well
    if path.startswith("file:"):
        name = unquote(name, errors="surrogateescape")
    return (alike(other) if alike else other), name


def copy_into(store: ObjectStore, source: str | os.PathLike[str], path: str) -> int:
    """Copy a file (local path or URI) into the store; the number of bytes copied."""
    origin, name = open_object(store, _as_uri(source))
    with origin.open(name) as reader, store.writer(path) as sink:
        shutil.copyfileobj(reader, sink, 8 << 20)
        return int(reader.tell())


def _as_uri(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if "://" in text else Path(text).absolute().as_uri()
