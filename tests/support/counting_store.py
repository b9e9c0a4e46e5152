"""A store that counts its requests by method and path, as S3 bills them: each page of a listing is a request.

    with counting(MemoryStore()) as store:
        catalog.append(…)
    store.by_kind()      {"get": 2, "put": 1, "put_if_absent": 1}

With a latency, the store also knows the chain: the requests that waited for each other.

    get ──┐ put ──┐       the chain is get, put: the fetch began before the get had ended
      fetch ──┐

The store fetches ranges like S3, so the code under test does what it does on S3.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import IO, Any

import pyarrow as pa
from stores import InterceptedStore, ranged

from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.objects import Fetched, ObjectStat, ObjectStore

LIST_PAGE = 1000
"""Keys in one answer to a LIST request."""

_NAMES = [
    (re.compile(r"[0-9a-f]{32}"), "#"),
    (re.compile(r"[0-9a-f]{24}"), "session"),
    (re.compile(r"[0-9]{20}"), "n"),
    (re.compile(r"k=[^/]+"), "k=…"),
]


class CountingStore(InterceptedStore):
    """Passes requests on to another store and lists them as (method, path)."""

    def __init__(self, inner: ObjectStore, latency_s: float = 0.0) -> None:
        super().__init__(inner, self._count)
        self.requests: list[tuple[str, str]] = []
        self.latency_s = latency_s
        self._answering = ThreadPoolExecutor(64)
        self._spans: list[tuple[float, float, str]] = []
        self._lock = threading.Lock()
        self._at_once = 0
        self.at_once_max = 0

    def reset(self) -> None:
        self.requests = []
        self._spans = []

    def chain(self) -> list[str]:
        """The longest chain in which each request began after the answer to the request before it."""
        longest: list[tuple[float, list[str]]] = []
        for began, ended, name in sorted(self._spans):
            before = max((chain for end, chain in longest if end <= began), key=len, default=[])
            longest.append((ended, [*before, name]))
        return max((chain for _, chain in longest), key=len, default=[])

    def by_kind(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.requests)

    def by_path(self) -> Counter[tuple[str, str]]:
        """Count the requests by method and path. Names that are used once are cut off the paths."""
        found: Counter[tuple[str, str]] = Counter()
        for kind, path in self.requests:
            for pattern, name in _NAMES:
                path = pattern.sub(name, path)
            found[kind, path] += 1
        return found

    @contextlib.contextmanager
    def _counted(self, kind: str, path: str) -> Iterator[None]:
        with self._lock:
            self.requests.append((kind, path))
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        began = time.perf_counter()
        try:
            time.sleep(self.latency_s)
            yield
        finally:
            with self._lock:
                self._at_once -= 1
                self._spans.append((began, time.perf_counter(), f"{kind} {path}"))

    def _count(self, kind: str, path: str, act: Callable[[], Any]) -> Any:
        with self._counted(kind, path):
            return act()

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        def fetched() -> Fetched:
            with self._counted("fetch", path):
                return ranged(self.inner.get(path), start, length)

        if self.latency_s:
            return self._answering.submit(fetched)
        answer: Future[Fetched] = Future()
        try:
            answer.set_result(fetched())
        except Exception as error:
            answer.set_exception(error)
        return answer

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        with self.inner.writer(path) as sink:
            yield sink
            with self._counted("writer", path):
                pass  # a small file is sent when it is closed

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        listed = self.inner.list(prefix, start_after)
        more = True
        while more:
            with self._counted("list", prefix):
                page = list(islice(listed, LIST_PAGE))
            yield from page
            more = len(page) == LIST_PAGE

    def folders(self) -> Iterator[str]:
        with self._counted("list", ""):
            return iter(list(self.inner.folders()))

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        for first in range(0, len(gone), LIST_PAGE):
            with self._counted("delete", ""):
                self.inner.delete(gone[first : first + LIST_PAGE])

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """On S3, a listing of the uploads below the prefix."""
        with self._counted("uploads", prefix):
            return iter(())

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        assert not list(begun)

    def __reduce__(self) -> Any:
        raise TypeError("a counting store stays in its process")
