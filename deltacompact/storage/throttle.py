"""Throttles a compaction, so that it leaves room for others on a shared store and cluster.

    cluster: 100 MB/s of reads, 10 tasks at a time   ->   10 MB/s for each task, each in a process of its own
    a task reads 4 MB                                ->   this uses up 0.4 s of its allowance; an earlier request sleeps

Shares are fixed, so tasks need not coordinate, and together never exceed the caps. If fewer tasks run, part of the caps
stays unused.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from deltacompact.base.settings import Settings
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.objects import Fetched, Fetches, ObjectStat, ObjectStore

BURST_S = 0.25
"""A process may use this many seconds of its allowance at once."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Caps on bytes and requests a second. None: no cap."""

    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    requests_per_s: float | None = None

    @classmethod
    def of(cls, settings: Settings, processes: float) -> Pace:
        """The share of one process, if `processes` processes share the caps."""
        return cls(
            _part(settings.read_mb_per_s, 1e6 / processes),
            _part(settings.write_mb_per_s, 1e6 / processes),
            _part(settings.requests_per_s, 1 / processes),
        )

    @property
    def is_free(self) -> bool:
        return self == Pace()


def _part(cap: float | None, factor: float) -> float | None:
    return None if cap is None else cap * factor


def paced(store: ObjectStore, pace: Pace, stopped: threading.Event | None = None) -> ObjectStore:
    """The store, throttled to a pace, for tasks.

    Once `stopped` is set, what waits for the pace in this process raises KeyboardInterrupt.
    """
    if pace.is_free:
        return store
    return (PacedRemote if isinstance(store, Fetches) else PacedStore)(store, pace, stopped or threading.Event())


class Rate:
    """A rate (None: no cap), and how far it is used up."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._lock = threading.Lock()
        self._free_at = time.monotonic() - BURST_S

    def take(self, amount: float) -> float:
        """Seconds until the rate has covered all amounts taken so far. Not positive: it has."""
        if self._per_s is None or amount <= 0:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - BURST_S) + amount / self._per_s
            return self._free_at - now


@dataclass(frozen=True, slots=True)
class Allowance:
    """A rate that this process's tasks share, and what ends a wait for it."""

    rate: Rate
    stopped: threading.Event

    def take(self, amount: float) -> None:
        """Sleep until the rate covers the amount, too. Raises KeyboardInterrupt if `stopped` is set meanwhile."""
        if (wait_s := self.rate.take(amount)) > 0 and self.stopped.wait(min(wait_s, threading.TIMEOUT_MAX)):
            raise KeyboardInterrupt


@functools.lru_cache(maxsize=16)
def _rates(pace: Pace) -> tuple[Rate, Rate, Rate]:
    """This process's rates of reads, writes and requests. Its tasks share them."""
    return Rate(pace.read_bytes_per_s), Rate(pace.write_bytes_per_s), Rate(pace.requests_per_s)


class PacedStore:
    """A store that keeps within one process's pace."""

    def __init__(self, store: ObjectStore, pace: Pace, stopped: threading.Event) -> None:
        self.uri = store.uri
        self._store = store
        self._pace = pace
        self._stopped = stopped
        self._reads, self._writes, self._requests = (Allowance(rate, stopped) for rate in _rates(pace))

    def alike(self, store: ObjectStore) -> ObjectStore:
        """The other store, throttled by the same allowances."""
        return paced(store, self._pace, self._stopped)

    def __reduce__(self) -> tuple[Any, ...]:
        return paced, (self._store, self._pace)  # who ends the tasks of another process ends that process

    def __getattr__(self, name: str) -> Any:
        """Takes other attributes (root, settings) from the store itself."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._store, name)

    def get(self, path: str) -> bytes:
        self._requests.take(1)
        data = self._store.get(path)
        self._reads.take(len(data))
        return data

    def put(self, path: str, data: bytes) -> None:
        self._requests.take(1)
        self._writes.take(len(data))
        self._store.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._requests.take(1)
        self._writes.take(len(data))
        return self._store.put_if_absent(path, data)

    def open(self, path: str) -> pa.NativeFile:
        self._requests.take(1)
        source = self._store.open(path)
        if self._pace.read_bytes_per_s is None and self._pace.requests_per_s is None:
            return source
        return pa.PythonFile(_PacedFile(source, self._reads, self._requests), mode="r")

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        self._requests.take(1)
        with self._store.writer(path) as sink:
            yield sink if self._pace.write_bytes_per_s is None else _PacedSink(sink, self._writes)  # type: ignore[misc]

    def stat(self, path: str) -> ObjectStat:
        self._requests.take(1)
        return self._store.stat(path)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self._requests.take(1)
        return self._store.list(prefix, start_after)

    def folders(self) -> Iterator[str]:
        self._requests.take(1)
        return self._store.folders()

    def delete(self, paths: Iterable[str]) -> None:
        self._requests.take(1)
        self._store.delete(paths)


class PacedRemote(PacedStore):
    """A remote store that keeps within one process's pace, `fetch` included."""

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        self._requests.take(1)
        self._reads.take(length)
        begun: Future[Fetched] = self._store.fetch(path, start, length, etag)  # type: ignore[attr-defined]
        return begun

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)


class _PacedFile:
    """The methods that pyarrow calls on a file that it reads."""

    def __init__(self, source: pa.NativeFile, reads: Allowance, requests: Allowance) -> None:
        self._source = source
        self._reads = reads
        self._requests = requests

    def read(self, size: int = -1) -> bytes:
        self._requests.take(1)
        data = bytes(self._source.read(None if size < 0 else size))
        self._reads.take(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._source.seek(offset, whence))

    def tell(self) -> int:
        return int(self._source.tell())

    def close(self) -> None:
        self._source.close()

    @property
    def closed(self) -> bool:
        return bool(self._source.closed)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class _PacedSink:
    """A sink that takes each write out of the allowance."""

    def __init__(self, sink: IO[bytes], writes: Allowance) -> None:
        self._sink = sink
        self._writes = writes

    def write(self, data: Any) -> int:
        self._writes.take(memoryview(data).nbytes)
        return int(self._sink.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)
