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
import posixpath
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from deltacompact.direct_file import DirectFile
from deltacompact.errors import InputError, NotFoundError, StoreError

if TYPE_CHECKING:
    from deltacompact.s3_store import S3Settings

Made = TypeVar("Made")

PROBE = ".put-if-absent"
"""An object below the root of a store, beside the tables, of which `refuse_overwriting` knows."""

_FOLDER_ATTEMPTS = 100
_UNFINISHED_NAME = re.compile(r"[0-9a-f]{32}")


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
            try:
                self._place(name, path, os.link)
            except FileExistsError:
                return False
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
            self._place(name, path, os.replace)

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
            try:
                (self.root / path).unlink(missing_ok=True)
            except NotADirectoryError:
                continue  # nothing of that name
            except OSError as error:
                raise StoreError(f"{self.root / path} could not be deleted: {error.strerror or error}") from error
            self._remove_if_empty((self.root / path).parent)  # the folder goes with its last object, as on S3

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """Of any table: the name of an unfinished file does not say where it was to go."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for found in sorted((self.root / self.UNFINISHED).iterdir()):
                with contextlib.suppress(NotFoundError):
                    if _UNFINISHED_NAME.fullmatch(found.name):
                        yield self.stat(f"{self.UNFINISHED}/{found.name}")

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        self.delete(stat.path for stat in begun)

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
            with self._in_folder(name.parent, lambda: DirectFile(name)) as sink:
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
            self._tidy(name.parent)

    def _place(self, name: Path, path: str, put: Callable[[Path, Path], None]) -> None:
        """Put a finished file where it belongs."""
        target = self.root / path
        self._in_folder(target.parent, lambda: put(name, target))
        _sync_directory(target.parent)

    def _in_folder(self, folder: Path, act: Callable[[], Made]) -> Made:
        """Do something in a folder, which is made where need be: a `delete` may take it while it is empty."""
        for attempt in count(1):
            with contextlib.suppress(FileExistsError):  # even `exist_ok` raises it, if the folder goes just then
                folder.mkdir(parents=True, exist_ok=True)
            try:
                return act()
            except FileNotFoundError:
                if attempt == _FOLDER_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _tidy(self, folder: Path) -> None:
        """What is done with the folder of unfinished writes after each: it stays for the next one."""

    def _remove_if_empty(self, folder: Path) -> None:
        if folder != self.root:
            with contextlib.suppress(OSError):
                folder.rmdir()


class ForeignFolder(LocalStore):
    """A folder that is no catalog: nothing of ours stays beside the file that is written there."""

    def _tidy(self, folder: Path) -> None:
        self._remove_if_empty(folder)


def _sync_directory(directory: Path) -> None:
    try:
        handle = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return  # somebody has deleted the object again, and its folder with it
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
    if isinstance(other, LocalStore):
        other = ForeignFolder(other.root)
    alike = getattr(root, "alike", None)  # a store that is paced paces others as well
    if path.startswith("file:"):
        name = unquote(name, errors="surrogateescape")
    return (alike(other) if alike else other), name


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


def identity(root: ObjectStore, path: str) -> str:
    """The same for all names of an object: its path in a store, and any URI that leads there.

    Names that only might lead to one object (on S3: percent-encoded or not) have one identity as well: this decides
    what is kept.
    """
    store, name = open_object(root, path)
    if isinstance(folder := getattr(store, "root", None), Path):
        return Path(os.path.realpath(folder / name)).as_uri()
    bucket = getattr(store, "bucket", None)
    if bucket is None:
        return store.uri + name
    return f"s3://{bucket}/" + posixpath.normpath(unquote(f"/{store.prefix}{name}")).lstrip("/")  # type: ignore[attr-defined]


def path_below(root: ObjectStore, uri: str) -> str | None:
    """The path below the root of the object that a URI leads to; None where it is somewhere else."""
    folder = identity(root, ".").rstrip("/") + "/"
    found = identity(root, uri)
    if not found.startswith(folder):
        return None
    below = found.removeprefix(folder)
    return unquote(below) if found.startswith("file:") else below


def copy_into(store: ObjectStore, source: str | os.PathLike[str], path: str) -> int:
    """Copy a file (local path or URI) into the store; the number of bytes copied."""
    origin, name = open_object(store, _as_uri(source))
    with origin.open(name) as reader, store.writer(path) as sink:
        shutil.copyfileobj(reader, sink, 8 << 20)
        return int(reader.tell())


def _as_uri(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if "://" in text else Path(text).absolute().as_uri()
