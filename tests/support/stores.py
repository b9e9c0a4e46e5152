"""Stores that misbehave on purpose: a test can count, fail, cut off or delay each operation.

intercept(kind, path, act)     is called before each operation; act() carries the operation out
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
from deltacompact.storage.objects import Fetched, ObjectStat, ObjectStore, Tagged

Intercept = Callable[[str, str, Callable[[], Any]], Any]


class Crash(BaseException):
    """The process dies here. No code may catch this error."""


class InterceptedStore:
    """A store behind a hook. A file that is written in a block appears in one operation, at the block's end."""

    def __init__(self, inner: ObjectStore, intercept: Intercept) -> None:
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
    """The answer to a ranged GET of an object. A negative start counts from the end."""
    first = max(0, len(data) + start) if start < 0 else start
    return Fetched(pa.py_buffer(data[first : first + length]), len(data), etag)


class Fetching:
    """Makes an InterceptedStore remote: it fetches ranges, so streams have heads, and tables have listings."""

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
    """A copy of the store, which can change independently."""
    copy = MemoryStore(store.uri, store._clock)
    copy._objects = dict(store._objects)
    return copy


CHANGES = frozenset({"put", "put_if_absent", "put_if_same", "writer", "delete"})
"""The operations before which a test kills a process. A death before a read or after a change leaves the same objects
as a death before the next change."""


class FailsAt:
    """An intercept that fails operation number `at` of these kinds: before the operation happens, or after it."""

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
