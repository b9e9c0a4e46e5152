"""What goes on beside an attempt, and must be done before its swap.

    attempt 1    PUT record, then PUT manifest 3, PUT manifest 4, PUT list      all at once, while the journal is asked
    swap         once all of them are done, the metadata file, which names them, and the catalog
    attempt 2    while the head is read, the journal is asked; then PUT list    its record is there

The time from the look at the head to the swap is the time in which others win. In it, only what needs an answer waits.
A record comes before the files, so that whoever finds a dead session knows all that it wrote. The metadata file comes
after them, as what it names has to stay. A file that could not be written ends the commit.

The store dates the first file. If our clock is ahead, the snapshot is dated by the store's: Java refuses metadata whose
times go back by more than a minute, so no Java writer could commit until it is as late as our clock had said. A store
whose clock is ahead would stop them as well, so its time never counts then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from types import TracebackType
from typing import Self

from deltacompact.iceberg.table import locations
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.store_clock import ahead_s

WRITES_AT_ONCE = 8
"""The most files that are put side by side. Each is held in memory until it is there."""


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "beside")


@dataclass(slots=True)
class Beside:
    """Work of the attempts at one commit. After the block, none of it is under way."""

    _writing: ThreadPoolExecutor = field(default_factory=lambda: _pool(WRITES_AT_ONCE))
    _asking: ThreadPoolExecutor = field(default_factory=lambda: _pool(1))
    _room: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(WRITES_AT_ONCE))
    _begun: list[Future[None]] = field(default_factory=list)
    _record: Future[None] | None = None
    _first: Lock = field(default_factory=Lock)
    """Whoever acquires it puts the first file."""
    _dated: Future[None] | None = None
    _ahead_s: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._asking.shutdown(cancel_futures=True)
        self._writing.shutdown(cancel_futures=True)

    def put(self, store: ObjectStore, location: str, data: bytes) -> None:
        """Begin to write an object, once the last record is there. Waits while too many others are written."""
        record, is_first = self._record, self._first.acquire(blocking=False)

        def written() -> None:
            try:
                _wait_for(record)
                locations.put(store, location, data)
                if is_first:
                    now_s = time.time()
                    self._ahead_s = ahead_s(store, now_s, min(now_s, locations.modified_s(store, location)))
            finally:
                self._room.release()

        self._room.acquire()
        writing = self._writing.submit(written)
        self._begun.append(writing)
        if is_first:
            self._dated = writing

    def now_ms(self) -> int:
        """The time to date a snapshot by, once a first file is there. If it could not be written, `finish` says so."""
        wait([] if self._dated is None else [self._dated])
        return int((time.time() - self._ahead_s) * 1000)

    def record(self, work: Callable[[], None] | None) -> None:
        """Begin some work, if there is any, as `ask` does. What is put from now on waits for it."""
        if work is not None:
            self._record = self._asking.submit(work)
            self._begun.append(self._record)

    def ask(self, work: Callable[[], None] | None) -> None:
        """Begin some work, if there is any. What was asked before is done first."""
        if work is not None:
            self._begun.append(self._asking.submit(work))

    def finish(self) -> None:
        """Wait for all that was begun. Raises its first error."""
        begun, self._begun = self._begun, []
        wait(begun)
        for future in begun:
            future.result()


def _wait_for(record: Future[None] | None) -> None:
    if record is not None:
        record.result()
