"""Uploads an object part by part while its writer still encodes.

    write 3 MB, write 9 MB …      copied into a block of 8 MiB; full blocks are sent by other threads, four at a time
    copy_from(store, path, …)     the store copies a range of another object itself; no byte travels
    complete                      one plain put if nothing has been sent yet; else the upload is completed
    abort                         the store drops the parts

Nobody sees the object before it is completed. S3 takes at most 10,000 parts of 5 MiB to 5 GiB; only the last may be
smaller. So the blocks grow: 1,000 of 8 MiB, 1,000 of 16 MiB, … 5 TB in all. If fewer than 5 MiB wait in the block when
a range is copied, the first bytes of the range fill it up to 5 MiB.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, wait
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from deltacompact.base.errors import StoreError
from deltacompact.storage.objects import Fetches, ObjectStore

MIB = 1 << 20
BLOCK_BYTES = 8 * MIB
SMALLEST_PART_BYTES = 5 * MIB
LARGEST_COPY_BYTES = 512 * MIB
"""S3 allows 5 GiB. Smaller copies run side by side, and each is answered before a time-out."""
IN_FLIGHT_BYTES = 32 * MIB

_SHORT_ANSWERS_MAX = 3
_PARTS_PER_SIZE = 1000
_PARTS_MAX = 10_000

Part = TypeVar("Part")
Source = TypeVar("Source")


class CopyRefused(Exception):
    """The store does not copy ranges into this upload."""


class UploadTarget(Protocol[Part, Source]):
    """The object that an upload writes. Parts are numbered from 1; several threads send them."""

    def put(self, data: memoryview) -> None: ...

    def begin(self) -> str: ...

    def send(self, upload: str, number: int, data: memoryview) -> Part: ...

    def source(self, store: ObjectStore, path: str) -> Source | None:
        """How the target names the object as the source of a copy. None: the target cannot copy from it."""

    def copy(self, upload: str, number: int, source: Source, start: int, length: int) -> Part:
        """Copy a range as a part. Raises CopyRefused if the store does not copy into this upload."""

    def surely_copies(self) -> bool:
        """Whether a copy has succeeded before. Until then, the upload waits for each copy."""

    def complete(self, upload: str, parts: list[Part]) -> None: ...

    def abort(self, upload: str) -> None: ...


class Upload(io.RawIOBase):
    """A sink. `tell` is the object's size so far; it works after `complete`, too."""

    def __init__(self, target: UploadTarget[Any, Any], threads: Executor, block_bytes: int = BLOCK_BYTES) -> None:
        self._target = target
        self._threads = threads
        self._block_bytes = block_bytes
        self._block = bytearray()
        self._filled = 0
        self._length = 0
        self._upload: Future[str] | None = None
        self._parts: list[Future[Any]] = []
        self._in_flight: deque[tuple[Future[Any], bytearray]] = deque()
        self._spare: list[bytearray] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._length

    def write(self, data: Any, /) -> int:
        with memoryview(data) as whole, whole.cast("B") as view:
            copied = 0
            while copied < len(view):
                if not self._filled:
                    self._block = self._free_block()
                size = min(len(view) - copied, len(self._block) - self._filled)
                self._block[self._filled : self._filled + size] = view[copied : copied + size]
                self._filled += size
                copied += size
                if self._filled == len(self._block):
                    self._send()
            self._length += copied
            return copied

    def copy_from(self, store: ObjectStore, path: str, start: int, length: int) -> bool:
        """Append a range of another object. False: the store cannot copy it, and nothing has been written."""
        source = self._target.source(store, path)
        topped_up = max(0, SMALLEST_PART_BYTES - self._filled) if self._filled else 0
        copied = length - topped_up
        if source is None or copied < self._smallest_copy():
            return False
        if topped_up:
            self._write_from(store, path, start, topped_up)
        if self._filled:
            self._send()
        for begin, size in _pieces(start + topped_up, copied):
            part = self._submit(self._target.copy, source, begin, size)
            if not self._target.surely_copies() and isinstance(part.exception(), CopyRefused):
                self._parts.remove(part)
                self._write_from(store, path, begin, start + length - begin)
                break
            self._length += size
        return True

    def _write_from(self, store: ObjectStore, path: str, start: int, length: int) -> None:
        assert isinstance(store, Fetches)
        for begin in range(start, start + length, self._block_bytes):
            self.write(_whole(store, path, begin, min(self._block_bytes, start + length - begin)))

    def complete(self) -> None:
        """Make the object visible."""
        if self._upload is None:
            self._target.put(memoryview(self._block)[: self._filled])
            return
        if self._filled:
            self._send()
        self._target.complete(self._upload.result(), [part.result() for part in self._parts])

    def abort(self) -> None:
        """Drop what has been sent. Waits for parts under way first: S3 might keep a part that comes after an abort."""
        for part in self._parts:
            part.cancel()
        wait(self._parts)
        if self._upload is not None and not self._upload.cancel() and not self._upload.exception():
            self._target.abort(self._upload.result())

    def _smallest_copy(self) -> int:
        """The smallest range worth a part of its own: it grows once half of the 10,000 part numbers are used."""
        return SMALLEST_PART_BYTES if len(self._parts) < _PARTS_MAX // 2 else self._next_block_bytes()

    def _next_block_bytes(self) -> int:
        return self._block_bytes << len(self._parts) // _PARTS_PER_SIZE

    def _free_block(self) -> bytearray:
        """A block for the next part. Waits for the oldest part while there is no room for another."""
        size = self._next_block_bytes()
        while len(self._in_flight) >= max(1, IN_FLIGHT_BYTES // size):
            part, block = self._in_flight.popleft()
            part.result()
            self._spare.append(block)
        self._spare = [block for block in self._spare if len(block) == size]
        return self._spare.pop() if self._spare else bytearray(size)

    def _send(self) -> None:
        block = self._block
        part = self._submit(self._target.send, memoryview(block)[: self._filled])
        self._in_flight.append((part, block))
        self._filled = 0

    def _submit(self, act: Any, *arguments: Any) -> Future[Any]:
        if self._upload is None:
            self._upload = self._threads.submit(self._target.begin)
        upload, number = self._upload, len(self._parts) + 1
        part = self._threads.submit(lambda: act(upload.result(), number, *arguments))
        self._parts.append(part)
        return part


def _whole(store: Fetches, path: str, start: int, length: int) -> Any:
    """A range within an object. Repeats a request whose answer was too short; raises StoreError after three."""
    for _ in range(_SHORT_ANSWERS_MAX):
        data = store.fetch(path, start, length).result().data
        if data.size == length:
            return data
    raise StoreError(
        f"{getattr(store, 'uri', '')}{path}: the store returned {data.size} of {length} bytes from {start}"
    )


def _pieces(start: int, length: int) -> Iterator[tuple[int, int]]:
    """A range in equal pieces of at most LARGEST_COPY_BYTES: start and length of each."""
    count = -(-length // LARGEST_COPY_BYTES)
    bounds = [start + length * number // count for number in range(count + 1)]
    return ((begin, end - begin) for begin, end in pairwise(bounds))
