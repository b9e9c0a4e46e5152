"""Random access to a remote file: its ranges are fetched before the reader needs them, several at a time.

    open        one request for the last 64 KiB also tells size and ETag; a file of up to 1 MiB comes whole
    announce    0‥3 M · 3‥9 M · 60‥80 M            what will be read, in the order of reading
    requests    0‥3 M · 3‥9 M · 60‥67 M · …        neighbours up to 8 MiB are one request, larger ranges are several
    read        60‥80 M: waits for three answers and joins them; requests for what follows have begun

The files of a task share a `ReadAhead`. It bounds the bytes that are under way or wait to be read. A reader that needs
bytes at once does not wait for room, so it cannot block itself. All answers must have the same ETag: if the object is
overwritten between open and last read, reading raises InputError.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.storage.objects import Fetched, Fetches, ObjectStore

FILES_AHEAD = 16
"""How many files a task opens before it needs them."""

REQUESTS_AHEAD = 32
"""Most requests of a task that are under way or wait to be read: many small files must not fill all connections."""

_READ_AT_ONCE = 4
"""Requests that one read of a large range keeps under way, even if there is no room."""

Range = tuple[int, int]
"""The first byte, and the first byte after the range."""

T = TypeVar("T")
Begun = TypeVar("Begun")


class RemoteStore(ObjectStore, Fetches, Protocol):
    """A store behind a network."""


def begun_ahead(items: Iterable[T], begin: Callable[[T], Begun], count: int = FILES_AHEAD) -> Iterator[Begun]:
    """The results of `begin` for each item, in order. `begin` runs `count` items ahead of the caller."""
    waiting: deque[Begun] = deque()
    for item in items:
        waiting.append(begin(item))
        if len(waiting) > count:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


@dataclass(slots=True, eq=False)
class _Block:
    """The bytes [start, stop) of a file, in one request of `bytes`.

    `unread` counts the announced bytes that nobody has read yet. A tail's start is negative until its file is open.
    """

    start: int
    stop: int
    unread: float
    answer: Future[Fetched] | None = None
    bytes: int = 0

    def __post_init__(self) -> None:
        self.bytes = self.stop - self.start


class ReadAhead:
    """The room of one task for bytes that it fetches before it needs them.

    Requests begin in the order of the calls of `file`, but the first request of each file goes before all others.
    """

    def __init__(self, limits: ReadLimits = READ_LIMITS) -> None:
        self.limits = limits
        self.lock = threading.RLock()
        self._waiting: list[tuple[tuple[bool, int, int], _FetchedBlocks, _Block]] = []
        self._numbers = itertools.count()
        self._held_bytes = 0
        self._held = 0

    def file(
        self, store: ObjectStore, path: str, known_bytes: int | None = None, whole: bool = False
    ) -> FetchedFile | None:
        """Begin to open a file, without waiting. None: the store is not remote.

        `known_bytes` is the file's size by the log: a small file then takes one request. `whole` announces all bytes.
        """
        if not isinstance(store, Fetches):
            return None
        return FetchedFile(_FetchedBlocks(store, path, self, known_bytes, whole))

    def number(self) -> int:
        return next(self._numbers)

    def expect(self, ranges: _FetchedBlocks, block: _Block, first: bool = False) -> None:
        """Begin the request of this block as soon as there is room."""
        heapq.heappush(self._waiting, ((not first, ranges.number, self.number()), ranges, block))

    def fill(self) -> None:
        """Begin the next requests for which there is room."""
        while self._waiting:
            _, ranges, block = self._waiting[0]
            if block.answer is None and block.unread > 0 and not ranges.closed:
                fits = self._held_bytes + block.bytes <= self.limits.read_ahead_bytes
                if self._held and not (fits and self._held < REQUESTS_AHEAD):
                    return
                self.begin(ranges, block)
            heapq.heappop(self._waiting)

    def begin(self, ranges: _FetchedBlocks, block: _Block) -> Future[Fetched]:
        """The block's request. It begins now, unless it has begun already."""
        if block.answer is None:
            block.answer = ranges.requested(block)
            self._held_bytes += block.bytes
            self._held += 1
        return block.answer

    def release(self, block: _Block) -> None:
        if block.answer is not None:
            block.answer.cancel()
            block.answer = None
            self._held_bytes -= block.bytes
            self._held -= 1


class _FetchedBlocks:
    """The blocks of one file, with the methods that pyarrow calls on a file that it reads."""

    def __init__(self, store: RemoteStore, path: str, ahead: ReadAhead, known_bytes: int | None, whole: bool) -> None:
        self.path = path
        self.etag: str | None = None
        self.closed = False
        self.number = ahead.number()
        self._store = store
        self._ahead = ahead
        self._size: int | None = None
        self._position = 0
        self._blocks: list[_Block] = []
        """In the order of their first bytes."""
        limits = ahead.limits
        is_small = whole if known_bytes is None else known_bytes <= limits.whole_bytes
        tail_bytes = limits.whole_bytes if is_small else limits.tail_bytes
        tail_bytes = max(1, tail_bytes if known_bytes is None else min(known_bytes, tail_bytes))
        self._tail = _Block(-tail_bytes, 0, math.inf)
        with ahead.lock:
            ahead.expect(self, self._tail, first=True)
            if whole and known_bytes is not None:
                self._plan([(0, known_bytes - tail_bytes)])
            ahead.fill()

    # What happens to the file

    @property
    def is_open(self) -> bool:
        """Whether size and tail have come."""
        answer = self._tail.answer
        return self._size is not None or (answer is not None and answer.done())

    def size(self) -> int:
        """The size in bytes. Waits for the first answer."""
        if self._size is None:
            with self._ahead.lock:
                answer = self._ahead.begin(self, self._tail)
            found = answer.result()
            with self._ahead.lock:
                if self._size is None:
                    self._check(found)
                    self._tail.start, self._tail.stop = found.object_bytes - found.data.size, found.object_bytes
                    self._size = found.object_bytes
        return self._size

    def announce(self, ranges: Iterable[Range]) -> None:
        """Announce what will be read, in the order of reading. Drops the tail once none of its bytes are announced."""
        size = self.size()
        with self._ahead.lock:
            tail_start = self._tail.start if self._tail.answer is not None else size
            wanted = [(start, min(stop, size)) for start, stop in ranges if 0 <= start < min(stop, size)]
            in_tail = sum(max(0, stop - max(start, tail_start)) for start, stop in wanted)
            self._tail.unread = in_tail + (0 if self._tail.unread == math.inf else self._tail.unread)
            if not self._tail.unread:
                self._ahead.release(self._tail)
            self._plan((start, min(stop, tail_start)) for start, stop in wanted if not self._covers(start, stop))
            self._ahead.fill()

    def read_at(self, length: int, offset: int) -> pa.Buffer:
        """Up to `length` bytes, fewer at the end of the file."""
        stop = min(offset + length, self.size())
        if self.closed:
            raise ValueError(f"{self.path} is closed")
        if offset >= stop:
            return pa.py_buffer(b"")
        with self._ahead.lock:
            pieces = list(self._pieces(offset, stop))
            self._ahead.fill()
        if len(pieces) == 1:
            return self._taken(*pieces[0])
        joined = pa.allocate_buffer(stop - offset)
        with memoryview(joined) as out:
            for number, (block, low, high) in enumerate(pieces):
                with self._ahead.lock:
                    for following, _, _ in pieces[number : number + _READ_AT_ONCE]:
                        self._ahead.begin(self, following)
                out[low - offset : high - offset] = self._taken(block, low, high)
        return joined

    def requested(self, block: _Block) -> Future[Fetched]:
        return self._store.fetch(self.path, block.start, block.bytes, self.etag)

    def close(self) -> None:
        with self._ahead.lock:
            self.closed = True
            for block in (self._tail, *self._blocks):
                self._ahead.release(block)
            self._blocks.clear()
            self._ahead.fill()

    # Blocks

    def _plan(self, ranges: Iterable[Range], first: bool = False) -> list[_Block]:
        limits = self._ahead.limits
        planned = [_Block(*request) for request in requests(ranges, limits.request_bytes, limits.gap_bytes)]
        for block in planned:
            bisect.insort(self._blocks, block, key=lambda known: known.start)
            self._ahead.expect(self, block, first)
        return planned

    def _pieces(self, offset: int, stop: int) -> Iterator[tuple[_Block, int, int]]:
        """The blocks that have these bytes, with the range of each. Blocks are made for bytes that no block has."""
        while offset < stop:
            number = bisect.bisect_right(self._blocks, offset, key=lambda known: known.start)
            block = self._blocks[number - 1] if number else None
            if self._tail.answer is not None and self._tail.start <= offset:
                yield self._tail, offset, stop
                return
            if block is None or block.stop <= offset:
                following = self._blocks[number].start if number < len(self._blocks) else stop
                tail_start = self._tail.start if self._tail.answer is not None else stop
                block = self._plan([(offset, min(stop, following, tail_start))], first=True)[0]
            yield block, offset, min(stop, block.stop)
            offset = min(stop, block.stop)

    def _covers(self, start: int, stop: int) -> bool:
        """Whether one block has all of these bytes already."""
        number = bisect.bisect_right(self._blocks, start, key=lambda known: known.start)
        return number > 0 and self._blocks[number - 1].stop >= stop

    def _taken(self, block: _Block, low: int, high: int) -> pa.Buffer:
        """The bytes of a block. The block is dropped when all its announced bytes have been taken."""
        with self._ahead.lock:
            answer = self._ahead.begin(self, block)
        found = answer.result()
        self._check(found)
        if found.data.size < high - block.start:
            raise StoreError(f"{self._store.uri}{self.path}: the store returned fewer bytes than the object has")
        with self._ahead.lock:
            block.unread -= high - low
            if block.unread <= 0:
                self._ahead.release(block)
                if block in self._blocks:
                    self._blocks.remove(block)
                self._ahead.fill()
        return found.data.slice(low - block.start, high - low)

    def _check(self, found: Fetched) -> None:
        if self.etag is None:
            self.etag = found.etag
        elif found.etag != self.etag:
            raise InputError(f"{self._store.uri}{self.path} changed while it was read")

    # What pyarrow calls

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        data = self.read_at(self.size() if size is None or size < 0 else size, self._position)
        self._position += data.size
        return data

    def read(self, size: int = -1) -> pa.Buffer:
        """A buffer in place of `bytes`: pyarrow copies the bytes of any buffer."""
        return self.read_buffer(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self.size() if whence == 2 else 0)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


class FetchedFile(pa.PythonFile):  # type: ignore[misc]
    """An open remote file. pyarrow reads it like any other file; a reader that knows what it will read announces it."""

    def __new__(cls, ranges: _FetchedBlocks) -> FetchedFile:
        made: FetchedFile = super().__new__(cls, ranges, "r")
        return made

    def __init__(self, ranges: _FetchedBlocks) -> None:
        self._ranges = ranges

    @property
    def is_open(self) -> bool:
        """Whether size, ETag and the end of the file are here, so that opening does not wait."""
        return self._ranges.is_open

    @property
    def etag(self) -> str | None:
        self._ranges.size()
        return self._ranges.etag

    def size(self) -> int:
        return self._ranges.size()

    def announce(self, ranges: Iterable[Range]) -> None:
        """Announce what will be read, in the order of reading. Other bytes can be read, but are not fetched ahead."""
        self._ranges.announce(ranges)

    def read_at(self, nbytes: int, offset: int) -> pa.Buffer:
        """Up to `nbytes` bytes from `offset` on. Several threads may call this at once."""
        return self._ranges.read_at(nbytes, offset)

    def read_buffer(self, nbytes: int | None = None) -> pa.Buffer:
        return self._ranges.read_buffer(-1 if nbytes is None else nbytes)


def open_fetched(store: RemoteStore, path: str, limits: ReadLimits = READ_LIMITS) -> FetchedFile:
    """Open a file of a remote store. Waits for the first answer, and raises NotFoundError if there is no such file."""
    file = ReadAhead(limits).file(store, path)
    assert file is not None, "a remote store fetches"
    file.size()
    return file


def announce(source: pa.NativeFile, ranges: Sequence[Range] | None = None) -> None:
    """Announce what will be read of a file; None: all of it. Does nothing for a file that is not remote."""
    if isinstance(source, FetchedFile):
        source.announce([(0, source.size())] if ranges is None else ranges)


def requests(ranges: Iterable[Range], request_bytes: int, gap_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Requests for ranges, in the order of reading: (first byte, end, number of wanted bytes).

    A range joins the one before it if the gap is small and both fit a request. A larger range is split evenly.
    """
    begin = end = wanted = 0
    for start, stop in ranges:
        if stop <= start:
            continue
        if wanted and 0 <= start - end <= gap_bytes and stop - begin <= request_bytes:
            end, wanted = stop, wanted + stop - start
            continue
        yield from _split(begin, end, wanted, request_bytes)
        begin, end, wanted = start, stop, stop - start
    yield from _split(begin, end, wanted, request_bytes)


def _split(begin: int, end: int, wanted: int, request_bytes: int) -> Iterator[tuple[int, int, int]]:
    if end - begin <= request_bytes:
        if wanted:
            yield begin, end, wanted
        return
    count = -(-(end - begin) // request_bytes)
    bounds = [begin + (end - begin) * number // count for number in range(count + 1)]
    for start, stop in itertools.pairwise(bounds):
        yield start, stop, stop - start
