"""Objects as files below a folder of a local disk.

writer(path)          a file in .unfinished, synced, renamed into place when the block ends
put_if_absent(path)   a file in .unfinished, synced, linked into place: a link never replaces a file
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import IO, TypeVar, cast

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError, StoreError
from deltacompact.storage.direct_file import BLOCK_BYTES, DirectFile
from deltacompact.storage.identity import absolute
from deltacompact.storage.objects import ObjectStat

Result = TypeVar("Result")

_FOLDER_ATTEMPTS = 100
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""How exFAT, SMB and FUSE say that they have no hard links."""

_UNFINISHED_NAME = re.compile(r"[0-9a-f]{32}")


class LocalStore:
    """Objects as files below a directory. Unfinished files lie in `.unfinished` and are never listed."""

    UNFINISHED = ".unfinished"

    def __init__(self, root: str | os.PathLike[str], block_bytes: int = BLOCK_BYTES) -> None:
        self.root = absolute(root)
        self._block_bytes = block_bytes
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
                self._place(name, path, self._link)
            except FileExistsError:
                return False
            return True

    @contextlib.contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """A lock of the path's folder, among processes and threads of this machine. It ends with the process."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # no folder, or a file system without locks
                folder = os.open((self.root / path).parent, os.O_RDONLY)
                held.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield

    def open(self, path: str) -> pa.NativeFile:
        with self._reading(path):
            file = self.root / path
            # Not mapped: if somebody truncates a mapped file, the next access kills the process (SIGBUS).
            return pa.OSFile(os.fsencode(file)) if file.stat().st_size else pa.BufferReader(b"")

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
        """Files may come and go during a listing. If every listed file is gone, list again: others may replace them.

        If two listings give the same names and no file exists, the names are broken links.
        """
        seen: Sequence[str] = []
        there = False
        while not there and (paths := self._paths(prefix, start_after)) != seen:
            for path in paths:
                with contextlib.suppress(NotFoundError):
                    yield self.stat(path)
                    there = True
            seen = paths

    def _paths(self, prefix: str, start_after: str) -> Sequence[str]:
        found = []
        for folder, folders, names in os.walk(self.root / prefix.rpartition("/")[0], onerror=self._unlisted):
            if self.UNFINISHED in folders:
                folders.remove(self.UNFINISHED)
            relative = Path(folder).relative_to(self.root).as_posix()
            parent = "" if relative == "." else relative + "/"
            found += [path for name in names if (path := parent + name).startswith(prefix) and path > start_after]
        return sorted(found, key=str.encode)

    def _unlisted(self, error: OSError) -> None:
        """Ignore a missing folder: it holds nothing. Raise for one that cannot be opened: it may hold files in use."""
        with contextlib.suppress(NotFoundError), self._reading(error.filename):
            raise error

    def folders(self) -> Iterator[str]:
        found: set[str] = set()
        with contextlib.suppress(NotFoundError), self._reading(""):
            found |= {path.name for path in self.root.iterdir() if path.is_dir()}
        yield from sorted(found - {self.UNFINISHED})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                (self.root / path).unlink(missing_ok=True)
            except NotADirectoryError:
                continue  # there is no such object
            except OSError as error:
                raise StoreError(f"{self.root / path} could not be deleted: {error.strerror or error}") from error
            self._remove_if_empty((self.root / path).parent)  # a folder vanishes with its last object, as on S3

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """The unfinished files of all tables: their names do not say which path they were meant for."""
        for folder in self._folders_of_unfinished():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for path in sorted(folder.iterdir()):
                    with contextlib.suppress(NotFoundError):
                        if _UNFINISHED_NAME.fullmatch(path.name):
                            yield self.stat(path.relative_to(self.root).as_posix())

    def _folders_of_unfinished(self) -> Iterable[Path]:
        return [self.root / self.UNFINISHED]

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        self.delete(stat.path for stat in begun)

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFoundError(f"{self.root / path} does not exist") from None
        except PermissionError:
            raise InputError(f"{self.root / path}: permission to read is denied") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise NotFoundError(f"{self.root / path} does not exist") from None
            if error.errno is None:  # pyarrow's own error: a folder in the place of a file
                raise
            raise StoreError(f"{self.root / path} could not be read: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[tuple[DirectFile, Path]]:
        name = self.root / self.UNFINISHED / uuid.uuid4().hex
        try:
            with self._in_folder(name.parent, lambda: DirectFile(name, self._block_bytes)) as sink:
                yield sink, name
        except (PermissionError, NotADirectoryError, FileNotFoundError) as error:
            raise InputError(f"{self.root} cannot be written: {error.strerror}") from None
        except OSError as error:
            if error.errno == errno.EROFS:
                raise InputError(f"{self.root} cannot be written: {error.strerror}") from None
            if error.errno == errno.ENAMETOOLONG:
                longest = max(map(os.fsencode, Path(error.filename2 or error.filename or "").parts), key=len)
                shown = f"{longest[:40].decode(errors='replace')}…"
                raise InputError(f"{shown!r}: a name of {len(longest)} bytes is too long for {self.root}") from None
            raise StoreError(f"writing below {self.root} failed: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                name.unlink(missing_ok=True)
            self._tidy(name.parent)

    def _place(self, name: Path, path: str, put: Callable[[Path, Path], None]) -> None:
        """Move or link a finished file to its path."""
        target = self.root / path
        self._in_folder(target.parent, lambda: put(name, target))
        _sync_directory(target.parent)

    def _link(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise InputError(
                f"{self.root}: this file system has no hard links, or forbids them here, and they keep two writers "
                "apart: take a folder of another, or S3"
            ) from None

    def _in_folder(self, folder: Path, act: Callable[[], Result]) -> Result:
        """Act in a folder, and make it if it is missing. Again and again: a `delete` may remove the empty folder.

        A new folder outlives a crash once its parent is synced, and only so do the files in it.
        """
        for attempt in count():
            try:
                return act()
            except FileNotFoundError:
                if attempt == _FOLDER_ATTEMPTS:
                    raise
            made = list(takewhile(lambda place: not place.is_dir(), (folder, *folder.parents)))
            with contextlib.suppress(FileExistsError):  # `exist_ok` raises it too, if the folder is just being removed
                folder.mkdir(parents=True, exist_ok=True)
            for place in made:
                if place.name != self.UNFINISHED:  # nothing in it outlives a crash
                    _sync_directory(place.parent)
        raise AssertionError("unreachable")

    def _tidy(self, folder: Path) -> None:
        """Called with the folder of unfinished files after each write. This class keeps it for the next write."""

    def _remove_if_empty(self, folder: Path) -> None:
        if folder != self.root:
            with contextlib.suppress(OSError):
                folder.rmdir()


class ForeignFolder(LocalStore):
    """A folder outside of a catalog: writing a file leaves nothing else behind, unless the process dies.

    A file that is opened by its own URI has its folder as the store. So unfinished files may lie at any depth.
    """

    def _tidy(self, folder: Path) -> None:
        self._remove_if_empty(folder)

    def _folders_of_unfinished(self) -> Iterable[Path]:
        return sorted(self.root.rglob(self.UNFINISHED))


def _sync_directory(directory: Path) -> None:
    try:
        handle = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return  # another process has deleted the object already, and its folder with it
    except PermissionError:
        return  # who may not list a folder may write into it
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
