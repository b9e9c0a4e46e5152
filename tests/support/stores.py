"""Stores that misbehave on purpose: every operation can be counted, failed, cut off or held back.

intercept(kind, path, act)     sees each operation before it happens; calling act() is what makes it happen
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from typing import IO, Any

import pyarrow as pa

from deltacompact.base.errors import StoreError
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import Fetched, ObjectStat, Tagged

Intercept = Callable[[str, str, Callable[[], Any]], Any]


class Crash(BaseException):
    """The process dies here: nothing may catch it."""


class InterceptedStore:
    """A MemoryStore behind a hook. A written file appears in one operation, at the end of its block."""

    def __init__(self, inner: MemoryStore, intercept: Intercept) -> None:
        self.inner = inner
        self.uri = inner.uri
        self._intercept = intercept

    def get(self, path: str) -> bytes:
        return self._intercept("get", path, lambda: self.inner.get(path))

    def put(self, path: str, data: bytes) -> None:
        self._intercept("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._intercept("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def get_tagged(self, path: str) -> Tagged:
        return self._intercept("get", path, lambda: self.inner.get_tagged(path))

    def put_if_same(self, path: str, data: bytes, etag: str) -> str | None:
        return self._intercept("put_if_same", path, lambda: self.inner.put_if_same(path, data, etag))

    def open(self, path: str) -> pa.NativeFile:
        return self._intercept("open", path, lambda: self.inner.open(path))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        sink = pa.BufferOutputStream()
        yield sink
        data = sink.getvalue().to_pybytes()
        self._intercept("writer", path, lambda: self.inner.put(path, data))

    def stat(self, path: str) -> ObjectStat:
        return self._intercept("stat", path, lambda: self.inner.stat(path))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        return iter(self._intercept("list", prefix, lambda: list(self.inner.list(prefix, start_after))))

    def folders(self) -> Iterator[str]:
        return iter(self._intercept("folders", "", lambda: list(self.inner.folders())))

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        self._intercept("delete", "", lambda: self.inner.delete(gone))


def ranged(data: bytes, start: int, length: int, etag: str | None = None) -> Fetched:
    """What one ranged GET gives of an object. A negative start counts from the end."""
    first = max(0, len(data) + start) if start < 0 else start
    return Fetched(pa.py_buffer(data[first : first + length]), len(data), etag)


class Fetching:
    """Makes of an InterceptedStore one behind a network: it fetches ranges, so streams have heads, tables listings."""

    inner: MemoryStore
    _intercept: Intercept

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        answer: Future[Fetched] = Future()
        try:
            data = self._intercept("fetch", path, lambda: self.inner.get(path))
            answer.set_result(ranged(data, start, length))
        except Exception as error:
            answer.set_exception(error)
        return answer


class FetchingStore(Fetching, InterceptedStore):
    """An InterceptedStore behind a network."""


def copy_of(store: MemoryStore) -> MemoryStore:
    """A store with the same objects, which goes its own way."""
    copy = MemoryStore(store.uri, store._clock)
    copy._objects = dict(store._objects)
    return copy


CHANGES = frozenset({"put", "put_if_absent", "put_if_same", "writer", "delete"})
"""The operations before which a process may die. Dead before a read, or after a change, it leaves
what it leaves when it dies before the next change."""


class FailsAt:
    """An intercept: operation number `at` (of some kinds, or of all) fails, before it happens or after it did."""

    def __init__(
        self,
        at: int,
        *,
        kinds: Collection[str] | None = None,
        after: bool = False,
        error: Callable[[str], BaseException] = StoreError,
    ) -> None:
        self.at = at
        self.kinds = kinds
        self.after = after
        self.error = error
        self.seen = 0
        self.failed: str | None = None

    def __call__(self, kind: str, path: str, act: Callable[[], Any]) -> Any:
        if self.kinds is not None and kind not in self.kinds:
            return act()
        place, self.seen = self.seen, self.seen + 1
        if place != self.at:
            return act()
        self.failed = f"{kind} {path}"
        if self.after:
            act()
        raise self.error(f"{kind} {path}: failed {'after' if self.after else 'before'} it happened")
