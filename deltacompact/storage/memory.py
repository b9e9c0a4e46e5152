"""Objects in the memory of this process: for tests, and to check what a format can hold."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from deltacompact.base.errors import NotFoundError
from deltacompact.storage.objects import ObjectStat, Tagged


class MemoryStore:
    """A dictionary with a lock."""

    def __init__(self, uri: str = "memory://", clock: Any = time.time) -> None:
        self.uri = uri
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        return self._found(path)[0]

    def put(self, path: str, data: bytes) -> None:
        self._objects[path] = (bytes(data), self._clock())

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self._objects:
                return False
            self.put(path, data)
            return True

    def get_tagged(self, path: str) -> Tagged:
        data, modified_s = self._found(path)
        return Tagged(data, _etag(data), modified_s)

    def put_if_same(self, path: str, data: bytes, etag: str) -> str | None:
        with self._lock:
            if path not in self._objects or _etag(self._objects[path][0]) != etag:
                return None
            self.put(path, data)
            return _etag(data)

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        sink = pa.BufferOutputStream()
        yield sink
        self.put(path, sink.getvalue().to_pybytes())

    def stat(self, path: str) -> ObjectStat:
        data, modified_s = self._found(path)
        return ObjectStat(path, len(data), modified_s)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        for path in sorted(self._objects):
            if path.startswith(prefix) and path > start_after:
                with contextlib.suppress(NotFoundError):  # it was removed meanwhile
                    data, modified_s = self._found(path)
                    yield ObjectStat(path, len(data), modified_s, _etag(data))

    def folders(self) -> Iterator[str]:
        paths = list(self._objects)  # at once: another thread may put an object meanwhile
        yield from sorted({path.partition("/")[0] for path in paths if "/" in path})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._objects.pop(path, None)

    def _found(self, path: str) -> tuple[bytes, float]:
        try:
            return self._objects[path]
        except KeyError:
            raise NotFoundError(f"{self.uri}{path} does not exist") from None


def _etag(data: bytes) -> str:
    return f"{hash(data) & (2**64 - 1):016x}"
