"""Small parts of a table are read ahead, side by side, and returned in order. Large parts are read batch by batch.

parts     2 MB   2 MB   900 MB   2 MB                 at most 64 at a time, 256 MB in memory together
threads   1      2      -        3                    begin before anybody asks for their rows
caller    rows of 1, of 2, then the large one batch by batch, then 4, which is there already
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
U = TypeVar("U")

AHEAD_BYTES = 256 << 20
"""At most so many bytes of rows are read ahead."""
_SMALL_BYTES = AHEAD_BYTES // 8
"""A part of up to this size is read ahead. A larger one keeps its reader busy by itself."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part of a table: the size of its rows in memory, about, and a function that reads them.

    `is_open`: its file had to be opened before, to find out which rows live.
    """

    bytes: int
    tables: Callable[[], Iterator[pa.Table]]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class ReadParts:
    """The parts of some files to read, and how many files were opened to find them, and how many are skipped."""

    parts: list[TablePart]
    opened: int = 0
    skipped: int = 0


def read_in_order(parts: Iterable[TablePart], at_once: int) -> Iterator[pa.Table]:
    """The rows of all parts, in order. An error of a part is raised in the place of its rows."""
    if at_once == 1:
        for part in parts:
            yield from part.tables()
        return
    todo = iter(parts)
    under_way: deque[tuple[TablePart, Future[list[pa.Table]] | None]] = deque()
    with _threads(at_once) as threads:
        while True:
            while len(under_way) < at_once and sum(part.bytes for part, ahead in under_way if ahead) < AHEAD_BYTES:
                if (later := next(todo, None)) is None:
                    break
                is_small = later.bytes <= _SMALL_BYTES
                under_way.append((later, threads.submit(copy_context().run, _read, later) if is_small else None))
            if not under_way:
                return
            part, ahead = under_way.popleft()
            yield from part.tables() if ahead is None else ahead.result()


def ahead_of_use(items: Iterable[T], work: Callable[[T], U], at_once: int) -> Iterator[U]:
    """The results of the work in order. Up to `at_once` of them are begun before they are asked for."""
    if at_once == 1:
        yield from map(work, items)
        return
    todo, under_way = iter(items), deque[Future[U]]()
    with _threads(at_once) as threads:
        while True:
            for item in todo:
                under_way.append(threads.submit(copy_context().run, work, item))
                if len(under_way) == at_once:
                    break
            if not under_way:
                return
            yield under_way.popleft().result()


def _read(part: TablePart) -> list[pa.Table]:
    return list(part.tables())


@contextlib.contextmanager
def _threads(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. After an error, Ctrl-C, or a reader that stops halfway, we do not wait for them."""
    threads = ThreadPoolExecutor(at_once, "deltacompact-reads")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
