"""A store in memory behind a slow network. It delays each request in a thread, and records its path and range.

fetch("x", 0, 100)      starts at once; the answer comes `delay_s` later, with an ETag of the bytes
requests                (kind, path) of each request so far
under_way_max           the greatest number of fetches at a time
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, cast

import pyarrow as pa
from stores import InterceptedStore, ranged

from deltacompact.base.errors import InputError
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import Fetched, ObjectStat


class RemoteStore(InterceptedStore):
    """A MemoryStore that serves files range by range."""

    def __init__(self, inner: MemoryStore | None = None, delay_s: float = 0.0) -> None:
        super().__init__(inner or MemoryStore(), self._request)
        self.delay_s = delay_s
        self.requests: list[tuple[str, str]] = []
        self.ranges: list[tuple[str, int, int]] = []
        """(path, first byte, length) of each fetch. A fetch of a file's end has a negative first byte."""
        self.under_way = self.under_way_max = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(64)

    def _request(self, kind: str, path: str, act: Callable[[], Any]) -> Any:
        with self._lock:
            self.requests.append((kind, path))
        if self.delay_s:
            time.sleep(self.delay_s)
        return act()

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)

    def stat(self, path: str) -> ObjectStat:
        stat = super().stat(path)
        return ObjectStat(path, stat.bytes, stat.modified_s, _etag(self.inner.get(path)))

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        with self._lock:
            self.ranges.append((path, start, length))
            self.under_way += 1
            self.under_way_max = max(self.under_way_max, self.under_way)
        return self._threads.submit(self._fetched, path, start, length, etag)

    def _fetched(self, path: str, start: int, length: int, etag: str | None) -> Fetched:
        try:
            data = self._request("fetch", path, lambda: self.inner.get(path))
            if etag not in (None, _etag(data)):
                raise InputError(f"{path} changed while it was read")
            return ranged(data, start, length, _etag(data))
        finally:
            with self._lock:
                self.under_way -= 1

    @property
    def opened(self) -> Counter[str]:
        """How often each file was opened. The first request of an opened file fetches its end."""
        return Counter(path for path, start, _ in self.ranges if start < 0)

    def forget(self) -> None:
        """Forget all requests so far."""
        self.requests.clear()
        self.ranges.clear()
        self.under_way_max = 0

    def fetches(self) -> int:
        return sum(kind == "fetch" for kind, _ in self.requests)


class CopyingStore(RemoteStore):
    """A RemoteStore whose sinks copy ranges of objects inside the store. `copied` has the length of each copy."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(delay_s=delay_s)
        self.copied: list[int] = []

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        with super().writer(path) as sink:
            yield cast(IO[bytes], _CopyingSink(sink, self))


class _CopyingSink:
    def __init__(self, sink: IO[bytes], store: CopyingStore) -> None:
        self._sink = sink
        self._store = store

    def copy_from(self, store: RemoteStore, path: str, start: int, length: int) -> bool:
        assert store is self._store
        if self._sink.tell() < 100:  # as on S3, where a part before a copied part may not be tiny
            return False
        self._sink.write(store.inner.get(path)[start : start + length])
        self._store.copied.append(length)
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


@functools.lru_cache(maxsize=256)
def _etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
